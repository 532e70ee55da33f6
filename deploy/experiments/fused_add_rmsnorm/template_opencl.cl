// residual += input; input = residual / rms(residual) * weight as a family.
//
// A work-group of BLOCK work-items shares one row at a time and takes ROWS rows in turn. Each
// work-item walks the row in vectors of VEC elements, BLOCK vectors apart, with CHAINS independent
// sums of squares. The sums input + residual are kept in local memory (KEEP) or computed again from
// global memory in the second pass. D is the row length, known to the compiler.
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

static float across(FLOATS v) {
  const float *lanes = (const float *)&v;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < VEC; ++i) sum += lanes[i];
  return sum;
}

kernel __attribute__((reqd_work_group_size(BLOCK, 1, 1)))
void fused_add_rmsnorm(global half *restrict input, global half *restrict residual,
                       global const half *restrict weight, int tokens, int d, float eps) {
  local float partial[BLOCK];
#if KEEP
  local FLOATS kept[VECTORS + 1];
#endif
  int lane = get_local_id(0);
  size_t first = get_group_id(0) * ROWS;
  for (size_t row = first; row < first + ROWS && row < tokens; ++row) {
    global half *x = input + row * D;
    global half *r = residual + row * D;

    FLOATS squares[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) squares[c] = 0.0f;
    for (int base = lane; base < VECTORS; base += BLOCK * CHAINS) {
#pragma unroll
      for (int c = 0; c < CHAINS; ++c) {
        int at = base + c * BLOCK;
        if (at < VECTORS) {
          FLOATS sum = LOAD(at, x) + LOAD(at, r);
          squares[c] += sum * sum;
#if KEEP
          kept[at] = sum;
#endif
        }
      }
    }
    float own = 0.0f;
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) own += across(squares[c]);
    if (lane == 0) {
      for (int i = VECTORS * VEC; i < D; ++i) {
        float sum = vload_half(i, x) + vload_half(i, r);
        own += sum * sum;
      }
    }

#if BLOCK > 1
    partial[lane] = own;
    barrier(CLK_LOCAL_MEM_FENCE);
#if REDUCE == REDUCE_tree
    for (int half_way = BLOCK / 2; half_way > 0; half_way /= 2) {
      if (lane < half_way) partial[lane] += partial[lane + half_way];
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    float total = partial[0];
#else
    float total = 0.0f;
    for (int i = 0; i < BLOCK; ++i) total += partial[i];
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
#else
    float total = own;
#endif

    float scale = 1.0f / sqrt(total / D + eps);
    for (int at = lane; at < VECTORS; at += BLOCK) {
#if KEEP
      FLOATS sum = kept[at];
#else
      FLOATS sum = LOAD(at, x) + LOAD(at, r);
#endif
      STORE(sum, at, r);
      STORE(sum * scale * LOAD(at, weight), at, x);
    }
    if (lane == 0) {
      for (int i = VECTORS * VEC; i < D; ++i) {
        float sum = vload_half(i, x) + vload_half(i, r);
        vstore_half(sum, i, r);
        vstore_half(sum * scale * vload_half(i, weight), i, x);
      }
    }
  }
}
