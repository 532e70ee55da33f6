// Merges two partial attention results by their log-sum-exp, one work-item per output element.
kernel void merge_attn_states_lse(global half *out, global float *out_lse,
                                  global const half *prefix_out, global const float *prefix_lse,
                                  global const half *suffix_out, global const float *suffix_lse,
                                  int n, int h, int d) {
  size_t i = get_global_id(0);
  if (i >= (size_t)n * h * d) return;
  size_t head = i / d;
  float prefix = isinf(prefix_lse[head]) ? -INFINITY : prefix_lse[head];
  float suffix = isinf(suffix_lse[head]) ? -INFINITY : suffix_lse[head];
  float top = fmax(prefix, suffix);
  float prefix_weight = exp(prefix - top);
  float suffix_weight = exp(suffix - top);
  float total = prefix_weight + suffix_weight;
  float merged = vload_half(i, prefix_out) * (prefix_weight / total) +
                 vload_half(i, suffix_out) * (suffix_weight / total);
  vstore_half(merged, i, out);
  if (i % d == 0) out_lse[head] = log(total) + top;
}
