// A row shared by SPLIT blocks, in packs of VEC elements, UNROLL of them in flight in each thread.
#include <cuda_fp16.h>

struct __align__(2 * VEC) Pack {
  __half element[VEC];
};

__device__ float silu_of(float x) {
#if FAST
  return __fdividef(x, 1.0f + __expf(-x));
#else
  return x / (1.0f + expf(-x));
#endif
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    silu(__half* __restrict__ out, const __half* __restrict__ input, int d) {
  const long long row = blockIdx.y;
  const Pack* gates = reinterpret_cast<const Pack*>(input + row * 2 * d);
  const Pack* ups = reinterpret_cast<const Pack*>(input + row * 2 * d + d);
  Pack* result = reinterpret_cast<Pack*>(out + row * d);
  const int packs = d / VEC, step = BLOCK * SPLIT;
  for (int start = blockIdx.x * BLOCK + threadIdx.x; start < packs; start += step * UNROLL) {
    Pack gate[UNROLL], up[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int at = start + u * step;
      if (at < packs) gate[u] = gates[at], up[u] = ups[at];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int at = start + u * step;
      if (at >= packs) continue;
      Pack product;
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        const float x = silu_of(__half2float(gate[u].element[k]));
        product.element[k] = __float2half(x * __half2float(up[u].element[k]));
      }
      result[at] = product;
    }
  }
}
