// out[t][i] = silu(input[t][i]) * input[t][d + i] as a family.
//
// A work-group owns a tile of BLOCK * ITEMS vectors of VEC elements of one row; a work-item takes
// ITEMS of them, either neighbours (WALK_chunk) or BLOCK vectors apart (WALK_stride). The elements
// after the row's last whole vector are computed one by one by the first work-item of the row.
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

#if EXP == EXP_native
#define EXPONENTIAL native_exp
#else
#define EXPONENTIAL exp
#endif

kernel __attribute__((reqd_work_group_size(BLOCK, 1, 1)))
void silu_and_mul(global half *restrict out, global const half *restrict input, int d) {
  size_t row = get_group_id(1);
  global const half *gates = input + row * 2 * d;
  global const half *ups = gates + d;
  global half *result = out + row * d;
  int vectors = d / VEC;
  int tile = get_group_id(0) * BLOCK * ITEMS;
#if WALK == WALK_chunk
  int first = tile + get_local_id(0) * ITEMS;
  const int step = 1;
#else
  int first = tile + get_local_id(0);
  const int step = BLOCK;
#endif

#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    int at = first + item * step;
    if (at < vectors) {
      FLOATS gate = LOAD(at, gates);
      FLOATS up = LOAD(at, ups);
      STORE(gate / (1.0f + EXPONENTIAL(-gate)) * up, at, result);
    }
  }

  if (get_global_id(0) == 0) {
    for (int i = vectors * VEC; i < d; ++i) {
      float gate = vload_half(i, gates);
      vstore_half(gate / (1.0f + EXPONENTIAL(-gate)) * vload_half(i, ups), i, result);
    }
  }
}
