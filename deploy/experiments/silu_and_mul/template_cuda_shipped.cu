// out[t][i] = silu(input[t][i]) * input[t][d + i] as a family of kernels that may be launched dependently.
//
// A block takes BLOCK * UNROLL packs of VEC elements, counted over all rows; a thread takes UNROLL of
// them, BLOCK apart, and issues all its loads before its first product. D, the row length, is known to
// the compiler. Addresses are computed before the wait for the kernel ahead (DEPENDENT); the next
// kernel may begin at once, after the loads, or after the stores (LETS_GO).
#include <cuda_fp16.h>

#if VEC == 8
using Words = uint4;
#define LOAD_WORDS(how)                                                                        \
  asm volatile("ld.global" how ".v4.u32 {%0, %1, %2, %3}, [%4];"                            \
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)                    \
               : "l"(from)                                                                     \
               : "memory")
#else
using Words = uint2;
#define LOAD_WORDS(how)                                 \
  asm volatile("ld.global" how ".v2.u32 {%0, %1}, [%2];" \
               : "=r"(words.x), "=r"(words.y)               \
               : "l"(from)                  \
               : "memory")
#endif

union Pack {
  Words words;
  __half2 pair[VEC / 2];
  __device__ Pack() {}
};

constexpr unsigned PACKS = D / VEC;
constexpr unsigned TILE = BLOCK * UNROLL;

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

__device__ __forceinline__ float silu(float x) {
#if FAST
  return __fdividef(x, 1.0f + __expf(-x));
#else
  return x / (1.0f + expf(-x));
#endif
}

__device__ __forceinline__ void let_go(bool here) {
#if DEPENDENT
  if (here) asm volatile("griddepcontrol.launch_dependents;");
#endif
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    silu_and_mul(__half* __restrict__ out, const __half* input, int tokens, int d) {
  const unsigned first = blockIdx.x * TILE + threadIdx.x;
  const unsigned total = unsigned(tokens) * PACKS;
  const Words* gates[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const unsigned at = first + u * BLOCK;
    gates[u] = reinterpret_cast<const Words*>(input) + (at + at / PACKS * PACKS);
  }
  let_go(LETS_GO == LETS_GO_first);
#if DEPENDENT
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif

  Pack gate[UNROLL], up[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    if (first + u * BLOCK < total) {
      gate[u].words = load(gates[u]);
      up[u].words = load(gates[u] + PACKS);
    }
  }
  let_go(LETS_GO == LETS_GO_loaded);
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    if (first + u * BLOCK >= total) continue;
    Pack product;
#pragma unroll
    for (int k = 0; k < VEC / 2; ++k) {
      const float2 g = __half22float2(gate[u].pair[k]);
      const float2 v = __half22float2(up[u].pair[k]);
      product.pair[k] = __floats2half2_rn(silu(g.x) * v.x, silu(g.y) * v.y);
    }
    store(reinterpret_cast<Words*>(out) + first + u * BLOCK, product.words);
  }
  let_go(LETS_GO == LETS_GO_stored);
}
