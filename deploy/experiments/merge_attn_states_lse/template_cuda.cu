// Merges two partial attention results by their log-sum-exp, as a family.
//
// The packs of VEC elements of all heads are numbered through; a block takes BLOCK * UNROLL of them, a
// thread UNROLL of those, BLOCK apart. All loads of a thread, the log-sum-exps too, are issued
// before its first exponential. D, the head size, is known to the compiler.
#include <cuda_fp16.h>
#include <math_constants.h>

#if VEC == 8
using Words = uint4;
#define LOAD_WORDS(how)                                                     \
  asm volatile("ld.global.nc" how ".v4.u32 {%0, %1, %2, %3}, [%4];"         \
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) \
               : "l"(from))
#else
using Words = uint2;
#define LOAD_WORDS(how)                                     \
  asm volatile("ld.global.nc" how ".v2.u32 {%0, %1}, [%2];" \
               : "=r"(words.x), "=r"(words.y)               \
               : "l"(from))
#endif

union Pack {
  Words words;
  __half2 pair[VEC / 2];
  __device__ Pack() {}
};

constexpr unsigned PACKS = D / VEC;

__device__ __forceinline__ Words load(const __half* array, unsigned at) {
  const Words* from = reinterpret_cast<const Words*>(array) + at;
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

__device__ __forceinline__ void store(__half* array, unsigned at, Words words) {
  Words* to = reinterpret_cast<Words*>(array) + at;
#if STORE == STORE_streaming
  __stcs(to, words);
#else
  *to = words;
#endif
}

#if FAST
#define EXPONENTIAL __expf
#define LOGARITHM __logf
#define DIVIDE __fdividef
#else
#define EXPONENTIAL expf
#define LOGARITHM logf
#define DIVIDE(a, b) ((a) / (b))
#endif

extern "C" __global__ void __launch_bounds__(BLOCK)
    merge_attn_states_lse(__half* __restrict__ out, float* __restrict__ out_lse,
                          const __half* __restrict__ prefix_out,
                          const float* __restrict__ prefix_lse,
                          const __half* __restrict__ suffix_out,
                          const float* __restrict__ suffix_lse, int n, int h, int d) {
  const unsigned total = unsigned(n) * h * PACKS;
  const unsigned first = blockIdx.x * (BLOCK * UNROLL) + threadIdx.x;

  Pack p[UNROLL], s[UNROLL];
  float prefix[UNROLL], suffix[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const unsigned at = first + u * BLOCK;
    if (at < total) {
      p[u].words = load(prefix_out, at);
      s[u].words = load(suffix_out, at);
      prefix[u] = __ldg(prefix_lse + at / PACKS);
      suffix[u] = __ldg(suffix_lse + at / PACKS);
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const unsigned at = first + u * BLOCK;
    if (at < total) {
      const float before = isinf(prefix[u]) ? -CUDART_INF_F : prefix[u];
      const float after = isinf(suffix[u]) ? -CUDART_INF_F : suffix[u];
      const float top = fmaxf(before, after);
      const float prefix_weight = EXPONENTIAL(before - top);
      const float suffix_weight = EXPONENTIAL(after - top);
      const float sum = prefix_weight + suffix_weight;
      const float prefix_share = DIVIDE(prefix_weight, sum);
      const float suffix_share = DIVIDE(suffix_weight, sum);
      Pack merged;
#pragma unroll
      for (int k = 0; k < VEC / 2; ++k) {
        const float2 a = __half22float2(p[u].pair[k]);
        const float2 b = __half22float2(s[u].pair[k]);
        merged.pair[k] = __floats2half2_rn(a.x * prefix_share + b.x * suffix_share,
                                           a.y * prefix_share + b.y * suffix_share);
      }
      store(out, at, merged.words);
      if (at % PACKS == 0) out_lse[at / PACKS] = LOGARITHM(sum) + top;
    }
  }
}
