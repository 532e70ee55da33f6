// out[t][i] = silu(input[t][i]) * input[t][d + i] as a family.
//
// A block takes BLOCK * UNROLL packs of VEC elements of one row, so that several blocks share a row; a
// thread takes UNROLL of them, BLOCK apart, and issues all its loads before its first product. D, the
// row length, is known to the compiler, hence which threads have nothing to do.
#include <cuda_fp16.h>

#if VEC == 8
using Words = uint4;
#define LOAD_WORDS(how)                                                                        \
  asm volatile("ld.global.nc" how ".v4.u32 {%0, %1, %2, %3}, [%4];"                            \
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)                    \
               : "l"(from))
#else
using Words = uint2;
#define LOAD_WORDS(how)                                 \
  asm volatile("ld.global.nc" how ".v2.u32 {%0, %1}, [%2];" \
               : "=r"(words.x), "=r"(words.y)               \
               : "l"(from))
#endif

union Pack {
  Words words;
  __half2 pair[VEC / 2];
  __device__ Pack() {}
};

constexpr int PACKS = D / VEC;
constexpr int TILE = BLOCK * UNROLL;
constexpr int TILES = (PACKS + TILE - 1) / TILE;

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

extern "C" __global__ void __launch_bounds__(BLOCK)
    silu_and_mul(__half* __restrict__ out, const __half* __restrict__ input, int d) {
  const size_t row = blockIdx.x / TILES;
  const int first = blockIdx.x % TILES * TILE + threadIdx.x;
  const Words* gates = reinterpret_cast<const Words*>(input) + row * 2 * PACKS;
  const Words* ups = gates + PACKS;
  Words* result = reinterpret_cast<Words*>(out) + row * PACKS;

  Pack gate[UNROLL], up[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const int at = first + u * BLOCK;
    if (PACKS % TILE == 0 || at < PACKS) {
      gate[u].words = load(gates + at);
      up[u].words = load(ups + at);
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const int at = first + u * BLOCK;
    if (PACKS % TILE == 0 || at < PACKS) {
      Pack product;
#pragma unroll
      for (int k = 0; k < VEC / 2; ++k) {
        const float2 g = __half22float2(gate[u].pair[k]);
        const float2 y = __half22float2(up[u].pair[k]);
        product.pair[k] = __floats2half2_rn(silu(g.x) * y.x, silu(g.y) * y.y);
      }
      store(result + at, product.words);
    }
  }
}
