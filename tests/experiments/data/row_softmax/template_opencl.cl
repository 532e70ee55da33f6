// out[r] = softmax(scores[r]), BLOCK work-items to a row.
//
// With ONLINE the maximum and the sum are found in one pass, the sum corrected whenever the maximum
// grows; without it in two. Each lane of a vector of VEC scores keeps a maximum and a sum of its
// own; the pairs of all lanes, then those of all work-items, are merged at the end.
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#if VEC == 1
#define FLOATS float
#define LOAD(at, from) ((from)[at])
#define STORE(value, at, to) ((to)[at] = (value))
#else
#define FLOATS PASTE(float, VEC)
#define LOAD PASTE(vload, VEC)
#define STORE PASTE(vstore, VEC)
#endif

kernel __attribute__((reqd_work_group_size(BLOCK, 1, 1)))
void row_softmax(global const float *restrict scores, global float *restrict out, int rows,
                 int columns) {
  local float tops[BLOCK];
  local float sums[BLOCK];
  size_t row = get_group_id(0);
  int lane = get_local_id(0);
  global const float *x = scores + row * columns;
  global float *y = out + row * columns;
  int vectors = columns / VEC;

  FLOATS top = -FLT_MAX;
  FLOATS sum = 0.0f;
#if ONLINE
  for (int at = lane; at < vectors; at += BLOCK) {
    FLOATS score = LOAD(at, x);
    FLOATS higher = fmax(top, score);
    sum = sum * exp(top - higher) + exp(score - higher);
    top = higher;
  }
#else
  for (int at = lane; at < vectors; at += BLOCK) top = fmax(top, LOAD(at, x));
  for (int at = lane; at < vectors; at += BLOCK) sum += exp(LOAD(at, x) - top);
#endif
  const float *lane_tops = (const float *)&top;
  const float *lane_sums = (const float *)&sum;
  float own_top = lane_tops[0];
  for (int i = 1; i < VEC; ++i) own_top = fmax(own_top, lane_tops[i]);
  for (int i = vectors * VEC + lane; i < columns; i += BLOCK) own_top = fmax(own_top, x[i]);
  float own_sum = 0.0f;
  for (int i = 0; i < VEC; ++i) own_sum += lane_sums[i] * exp(lane_tops[i] - own_top);
  for (int i = vectors * VEC + lane; i < columns; i += BLOCK) own_sum += exp(x[i] - own_top);
  tops[lane] = own_top;
  sums[lane] = own_sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  float row_top = tops[0];
  for (int i = 1; i < BLOCK; ++i) row_top = fmax(row_top, tops[i]);
  float row_sum = 0.0f;
  for (int i = 0; i < BLOCK; ++i) row_sum += sums[i] * exp(tops[i] - row_top);

  for (int at = lane; at < vectors; at += BLOCK) {
    STORE(exp(LOAD(at, x) - row_top) / row_sum, at, y);
  }
  for (int i = vectors * VEC + lane; i < columns; i += BLOCK) y[i] = exp(x[i] - row_top) / row_sum;
}
