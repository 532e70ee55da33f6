// out[t][i] = silu(input[t][i]) * input[t][d + i], launched as SGLang's main branch does on Hopper:
// one thread per 16 bytes of the output, counted over all rows, blocks of 256, dependent launches.
// Every thread waits for the kernel ahead before it reads, and lets the next begin after its store.
// The input is not __restrict__: a load of constant memory could be moved ahead of the wait.
#include <cuda_fp16.h>

union Pack {
  uint4 words;  // what is moved: a struct of pairs would be loaded in four pieces
  __half2 pair[4];
  __device__ Pack() {}
  __device__ explicit Pack(uint4 words) : words(words) {}
};

__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

extern "C" __global__ void silu_and_mul(__half* __restrict__ out, const __half* input, int tokens,
                                        int d) {
  const unsigned packs = unsigned(d) / 8;
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned row = at / packs;
  if (row >= unsigned(tokens)) return;
  const uint4* gates = reinterpret_cast<const uint4*>(input) + row * 2 * packs + at % packs;

  asm volatile("griddepcontrol.wait;" ::: "memory");
  const Pack gate(gates[0]);
  const Pack up(gates[packs]);
  Pack product;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float2 g = __half22float2(gate.pair[k]);
    const float2 u = __half22float2(up.pair[k]);
    product.pair[k] = __floats2half2_rn(silu(g.x) * u.x, silu(g.y) * u.y);
  }
  reinterpret_cast<uint4*>(out)[at] = product.words;
  asm volatile("griddepcontrol.launch_dependents;");
}
