// residual += input; input = residual / rms(residual) * weight, one block a row: a choice for every
// load, every store, their order and places, the rounding of sums, and the reduction. LOAD_X, LOAD_R,
// STORE_X and STORE_R are indices into the cache hints below; rows fill their threads exactly.
#include <cuda_fp16.h>

#if VEC == 8
typedef uint4 Words;
#elif VEC == 4
typedef uint2 Words;
#else
typedef unsigned Words;
#endif

union Pack {
  Words words;
  __half2 pair[VEC / 2];
  __device__ Pack() {}
};

constexpr unsigned PACKS = D / VEC;
constexpr unsigned WARPS = THREADS / 32;

#define CAT4 ".v4.u32 {%0, %1, %2, %3}, [%4];"
#define CAT2 ".v2.u32 {%0, %1}, [%2];"
#define CAT1 ".u32 %0, [%1];"
#if VEC == 8
#define LD(how, words, from) asm volatile("ld.global" how CAT4 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) : "l"(from) : "memory")
#define ST(how, words, to) asm volatile("st.global" how ".v4.u32 [%4], {%0, %1, %2, %3};" :: "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w), "l"(to) : "memory")
#elif VEC == 4
#define LD(how, words, from) asm volatile("ld.global" how CAT2 : "=r"(words.x), "=r"(words.y) : "l"(from) : "memory")
#define ST(how, words, to) asm volatile("st.global" how ".v2.u32 [%2], {%0, %1};" :: "r"(words.x), "r"(words.y), "l"(to) : "memory")
#else
#define LD(how, words, from) asm volatile("ld.global" how CAT1 : "=r"(words) : "l"(from) : "memory")
#define ST(how, words, to) asm volatile("st.global" how ".u32 [%1], %0;" :: "r"(words), "l"(to) : "memory")
#endif

template <int HOW>
__device__ __forceinline__ Words load(const Words* from) {
  Words words;
  if constexpr (HOW == 0) words = *from;
  if constexpr (HOW == 1) LD(".L1::no_allocate", words, from);
  if constexpr (HOW == 2) LD(".L1::no_allocate.L2::256B", words, from);
  if constexpr (HOW == 3) LD(".L1::evict_first", words, from);
  if constexpr (HOW == 4) LD(".cs", words, from);
  if constexpr (HOW == 5) LD(".cg", words, from);
  if constexpr (HOW == 6) LD(".L2::128B", words, from);
  return words;
}
template <int HOW>
__device__ __forceinline__ void store(Words* to, Words words) {
  if constexpr (HOW == 0) *to = words;
  if constexpr (HOW == 1) ST(".cs", words, to);
  if constexpr (HOW == 2) ST(".wt", words, to);
  if constexpr (HOW == 3) ST(".cg", words, to);
  if constexpr (HOW == 4) ST(".L1::no_allocate", words, to);
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

#if MIN_BLOCKS > 0
#define BOUNDS __launch_bounds__(THREADS, MIN_BLOCKS)
#else
#define BOUNDS __launch_bounds__(THREADS)
#endif

extern "C" __global__ void BOUNDS
fused_add_rmsnorm(__half* __restrict__ input, __half* __restrict__ residual,
                  const __half* __restrict__ weight, int tokens, int d, float eps) {
  constexpr int pairs = VEC / 2;
  __shared__ __align__(16) float partial[32];
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  Words* x = reinterpret_cast<Words*>(input) + size_t(blockIdx.x) * PACKS;
  Words* r = reinterpret_cast<Words*>(residual) + size_t(blockIdx.x) * PACKS;
  const Words* w = reinterpret_cast<const Words*>(weight);
  auto place = [=](int u) { return CONTIGUOUS ? threadIdx.x * UNROLL + u : u * THREADS + threadIdx.x; };

  Pack a[UNROLL], b[UNROLL], g[UNROLL];
#if WEIGHTS == WEIGHTS_first
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) g[u].words = __ldg(w + place(u));
#endif
#if ORDER == ORDER_pairs
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    a[u].words = load<LOAD_X>(x + place(u));
    b[u].words = load<LOAD_R>(r + place(u));
#if WEIGHTS == WEIGHTS_between
    g[u].words = __ldg(w + place(u));
#endif
  }
#else
#if ORDER == ORDER_x_first
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) a[u].words = load<LOAD_X>(x + place(u));
#endif
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) b[u].words = load<LOAD_R>(r + place(u));
#if ORDER == ORDER_r_first
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) a[u].words = load<LOAD_X>(x + place(u));
#endif
#if WEIGHTS == WEIGHTS_between
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) g[u].words = __ldg(w + place(u));
#endif
#endif

  float2 sums[UNROLL][pairs];
  float squares = 0.0f;
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
    for (int k = 0; k < pairs; ++k) {
#if ROUNDED
      b[u].pair[k] = __hadd2(a[u].pair[k], b[u].pair[k]);
      sums[u][k] = __half22float2(b[u].pair[k]);
#else
      const float2 p = __half22float2(a[u].pair[k]);
      const float2 q = __half22float2(b[u].pair[k]);
      sums[u][k] = make_float2(p.x + q.x, p.y + q.y);
      b[u].pair[k] = __floats2half2_rn(sums[u][k].x, sums[u][k].y);
#endif
      squares += sums[u][k].x * sums[u][k].x + sums[u][k].y * sums[u][k].y;
    }
#if KEEP == KEEP_early
    store<STORE_R>(r + place(u), b[u].words);
#endif
  }
  squares = warp_sum(squares);
  if (lane == 0) partial[warp] = squares;
#if KEEP == KEEP_middle
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) store<STORE_R>(r + place(u), b[u].words);
#endif
#if WEIGHTS == WEIGHTS_middle
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) g[u].words = __ldg(w + place(u));
#endif
#if WEIGH == WEIGH_before
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
    for (int k = 0; k < pairs; ++k) {
      const float2 v = __half22float2(g[u].pair[k]);
      sums[u][k] = make_float2(sums[u][k].x * v.x, sums[u][k].y * v.y);
    }
  }
#endif
  __syncthreads();
#if REDUCE == REDUCE_shuffles
  const float total = warp_sum(lane < WARPS ? partial[lane] : 0.0f);
#else
  float total = 0.0f;
#pragma unroll
  for (unsigned i = 0; i < (WARPS + 3) / 4; ++i) {
    const float4 four = reinterpret_cast<const float4*>(partial)[i];
    total += four.x;
    if (4 * i + 1 < WARPS) total += four.y;
    if (4 * i + 2 < WARPS) total += four.z;
    if (4 * i + 3 < WARPS) total += four.w;
  }
#endif
  const float scale = rsqrtf(total / float(D) + eps);
#if KEEP == KEEP_late
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) store<STORE_R>(r + place(u), b[u].words);
#endif
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    Pack normalised;
#pragma unroll
    for (int k = 0; k < pairs; ++k) {
#if WEIGH == WEIGH_before
      normalised.pair[k] = __floats2half2_rn(sums[u][k].x * scale, sums[u][k].y * scale);
#else
      const float2 v = __half22float2(g[u].pair[k]);
      normalised.pair[k] = __floats2half2_rn(sums[u][k].x * scale * v.x, sums[u][k].y * scale * v.y);
#endif
    }
    store<STORE_X>(x + place(u), normalised.words);
  }
}
