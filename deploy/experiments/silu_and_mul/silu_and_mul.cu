// out[t][i] = silu(input[t][i]) * input[t][d + i], launched as SGLang ships it: one block per row,
// min(d / 8, 1024) threads, 16-byte accesses. The elements after the last whole stride of the block
// are computed once more, one by one: harmless, and part of what the shipped kernel costs.
#include <cuda_fp16.h>

union Pack {
  uint4 words;  // what is moved: a struct of pairs would be loaded in four pieces
  __half2 pair[4];
  __device__ Pack() {}
  __device__ explicit Pack(uint4 words) : words(words) {}
};

__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

extern "C" __global__ void silu_and_mul(__half* __restrict__ out, const __half* __restrict__ input,
                                        int d) {
  const long long row = blockIdx.x;
  const __half* gates = input + row * 2 * d;
  const __half* ups = gates + d;
  __half* result = out + row * d;
  const int stride = blockDim.x;

#pragma unroll 1
  for (int at = threadIdx.x; at < d / 8; at += stride) {
    const Pack gate(reinterpret_cast<const uint4*>(gates)[at]);
    const Pack up(reinterpret_cast<const uint4*>(ups)[at]);
    Pack product;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 g = __half22float2(gate.pair[k]);
      const float2 u = __half22float2(up.pair[k]);
      product.pair[k] = __floats2half2_rn(silu(g.x) * u.x, silu(g.y) * u.y);
    }
    reinterpret_cast<uint4*>(result)[at] = product.words;
  }

  const int rest = d % (stride * 8);
#pragma unroll 1
  for (int at = threadIdx.x; at < rest; at += stride) {
    const int i = d - rest + at;
    result[i] = __float2half(silu(__half2float(gates[i])) * __half2float(ups[i]));
  }
}
