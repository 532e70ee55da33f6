// Merges two partial attention results by their log-sum-exp, as a family.
//
// SPLIT work-items share one head of one token, HEADS heads follow each other in one work-item, so
// the weights are computed SPLIT times a head instead of once an element. Each walks its share in
// vectors of VEC elements, UNROLL at a time. D is the head size, known to the compiler.
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

#if VEC == 1
#define FLOATS float
#define LOAD vload_half
#define STORE vstore_half
#else
#define FLOATS PASTE(float, VEC)
#define LOAD PASTE(vload_half, VEC)
#define STORE PASTE(vstore_half, VEC)
#endif

#define VECTORS (D / VEC)

kernel __attribute__((reqd_work_group_size(BLOCK, 1, 1)))
void merge_attn_states_lse(global half *restrict out, global float *restrict out_lse,
                           global const half *restrict prefix_out,
                           global const float *restrict prefix_lse,
                           global const half *restrict suffix_out,
                           global const float *restrict suffix_lse, int n, int h, int d) {
  size_t heads = (size_t)n * h;
  size_t item = get_global_id(0);
  int part = item % SPLIT;
  size_t first = item / SPLIT * HEADS;
  for (size_t head = first; head < first + HEADS && head < heads; ++head) {
    float prefix = isinf(prefix_lse[head]) ? -INFINITY : prefix_lse[head];
    float suffix = isinf(suffix_lse[head]) ? -INFINITY : suffix_lse[head];
    float top = fmax(prefix, suffix);
    float prefix_weight = exp(prefix - top);
    float suffix_weight = exp(suffix - top);
    float total = prefix_weight + suffix_weight;
    float prefix_share = prefix_weight / total;
    float suffix_share = suffix_weight / total;
    global const half *p = prefix_out + head * D;
    global const half *s = suffix_out + head * D;
    global half *o = out + head * D;
#pragma unroll UNROLL
    for (int at = part; at < VECTORS; at += SPLIT) {
      STORE(LOAD(at, p) * prefix_share + LOAD(at, s) * suffix_share, at, o);
    }
    if (part == 0) {
      for (int i = VECTORS * VEC; i < D; ++i) {
        vstore_half(vload_half(i, p) * prefix_share + vload_half(i, s) * suffix_share, i, o);
      }
      out_lse[head] = log(total) + top;
    }
  }
}
