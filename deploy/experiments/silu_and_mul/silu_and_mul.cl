// out[t][i] = silu(input[t][i]) * input[t][d + i], one work-item per element.
kernel void silu_and_mul(global half *out, global const half *input, int d) {
  int i = get_global_id(0);
  size_t row = get_global_id(1);
  if (i >= d) return;
  float gate = vload_half(row * 2 * d + i, input);
  float up = vload_half(row * 2 * d + d + i, input);
  vstore_half(gate / (1.0f + exp(-gate)) * up, row * d + i, out);
}
