// residual += input; input = residual / rms(residual) * weight, one work-item per row.
kernel void fused_add_rmsnorm(global half *input, global half *residual,
                              global const half *weight, int tokens, int d, float eps) {
  size_t row = get_global_id(0);
  if (row >= tokens) return;
  float squares = 0.0f;
  for (int i = 0; i < d; ++i) {
    float sum = vload_half(row * d + i, input) + vload_half(row * d + i, residual);
    squares += sum * sum;
  }
  float scale = 1.0f / sqrt(squares / d + eps);
  for (int i = 0; i < d; ++i) {
    float sum = vload_half(row * d + i, input) + vload_half(row * d + i, residual);
    vstore_half(sum, row * d + i, residual);
    vstore_half(sum * scale * vload_half(i, weight), row * d + i, input);
  }
}
