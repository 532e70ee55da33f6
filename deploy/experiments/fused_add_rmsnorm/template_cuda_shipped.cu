// residual += input; input = residual / rms(residual) * weight as a family of kernels that may be launched
// dependently.
//
// THREADS threads share a row, UNROLL packs of VEC elements each, and ROWS rows share a block. All
// loads of a thread are issued before its first sum. The sums stay in registers (KEEP), or both
// operands are read again once the row's scale is known. The weights are read before the reduction
// (EARLY), which hides their latency behind it, or after, which frees registers. D, the row length, is
// known to the compiler. Both buffers are written here, so their loads are coherent ones. A DEPENDENT
// launch waits for the kernel ahead before its first load; the next kernel may begin at once, after
// the loads, or after the stores (LETS_GO).
#include <cuda_fp16.h>

#if VEC == 8
using Words = uint4;
#define LOAD_WORDS(how)                                                     \
  asm volatile("ld.global" how ".v4.u32 {%0, %1, %2, %3}, [%4];"            \
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) \
               : "l"(from)                                                  \
               : "memory")
#else
using Words = uint2;
#define LOAD_WORDS(how)                                  \
  asm volatile("ld.global" how ".v2.u32 {%0, %1}, [%2];" \
               : "=r"(words.x), "=r"(words.y)            \
               : "l"(from)                               \
               : "memory")
#endif

constexpr int PAIRS = VEC / 2;
constexpr int PACKS = D / VEC;
constexpr int WARPS = THREADS / 32;

union Pack {
  Words words;
  __half2 pair[PAIRS];
  __device__ Pack() {}
};

__device__ __forceinline__ Words load(const Words* from) {
  Words words;
#if LOAD == LOAD_bypass
  LOAD_WORDS(".L1::no_allocate");
#elif LOAD == LOAD_wide
  LOAD_WORDS(".L1::no_allocate.L2::256B");
#elif LOAD == LOAD_streaming
  LOAD_WORDS(".L1::evict_first");
#else
  LOAD_WORDS("");
#endif
  return words;
}

__device__ __forceinline__ void store(Words* to, Words words) {
#if STORE == STORE_streaming
  __stcs(to, words);
#else
  *to = words;
#endif
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

__device__ __forceinline__ float2 add(__half2 a, __half2 b) {
  const float2 x = __half22float2(a);
  const float2 y = __half22float2(b);
  return make_float2(x.x + y.x, x.y + y.y);
}

__device__ __forceinline__ void store_sums(Words* to, const float2 (&sums)[PAIRS]) {
  Pack rounded;
#pragma unroll
  for (int k = 0; k < PAIRS; ++k) rounded.pair[k] = __floats2half2_rn(sums[k].x, sums[k].y);
  store(to, rounded.words);
}

__device__ __forceinline__ void let_go(bool here) {
#if DEPENDENT
  if (here) asm volatile("griddepcontrol.launch_dependents;");
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS* ROWS)
    fused_add_rmsnorm(__half* __restrict__ input, __half* __restrict__ residual,
                      const __half* weight, int tokens, int d, float eps) {
  __shared__ float partial[ROWS][WARPS];
  const size_t row = size_t(blockIdx.x) * ROWS + threadIdx.y;
  const size_t start = row * PACKS + threadIdx.x;
  Words* x = reinterpret_cast<Words*>(input) + start;
  Words* r = reinterpret_cast<Words*>(residual) + start;
  const Words* w = reinterpret_cast<const Words*>(weight) + threadIdx.x;
  const int left = ROWS == 1 || row < tokens ? PACKS - int(threadIdx.x) : 0;
  auto owns = [=](int u) {
    return (ROWS == 1 && (u + 1) * THREADS <= PACKS) || u * THREADS < left;
  };

  let_go(LETS_GO == LETS_GO_first);
#if DEPENDENT
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  Pack a[UNROLL], b[UNROLL], gain[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    if (!owns(u)) continue;
    a[u].words = load(x + u * THREADS);
    b[u].words = load(r + u * THREADS);
  }
#if EARLY
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    if (owns(u)) gain[u].words = w[u * THREADS];
  }
#endif

  let_go(LETS_GO == LETS_GO_loaded);
  float squares = 0.0f;
  float2 sums[UNROLL][PAIRS];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    if (!owns(u)) continue;
#pragma unroll
    for (int k = 0; k < PAIRS; ++k) {
      const float2 sum = add(a[u].pair[k], b[u].pair[k]);
      squares += sum.x * sum.x + sum.y * sum.y;
      sums[u][k] = sum;
    }
#if KEEP
    store_sums(r + u * THREADS, sums[u]);
#endif
  }
  squares = warp_sum(squares);
#if THREADS > 32
  const int lane = threadIdx.x % 32;
  if (lane == 0) partial[threadIdx.y][threadIdx.x / 32] = squares;
  __syncthreads();
  squares = warp_sum(lane < WARPS ? partial[threadIdx.y][lane] : 0.0f);
#endif
  const float scale = rsqrtf(squares / D + eps);

#if !EARLY
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    if (owns(u)) gain[u].words = w[u * THREADS];
  }
#endif
#if !KEEP
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    if (!owns(u)) continue;
    a[u].words = load(x + u * THREADS);
    b[u].words = load(r + u * THREADS);
#pragma unroll
    for (int k = 0; k < PAIRS; ++k) sums[u][k] = add(a[u].pair[k], b[u].pair[k]);
    store_sums(r + u * THREADS, sums[u]);
  }
#endif
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    if (!owns(u)) continue;
    Pack normalised;
#pragma unroll
    for (int k = 0; k < PAIRS; ++k) {
      const float2 g = __half22float2(gain[u].pair[k]);
      const float2 sum = sums[u][k];
      normalised.pair[k] = __floats2half2_rn(sum.x * scale * g.x, sum.y * scale * g.y);
    }
    store(x + u * THREADS, normalised.words);
  }
  let_go(LETS_GO == LETS_GO_stored);
}
