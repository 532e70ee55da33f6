// out[t][i] = silu(input[t][i]) * input[t][d + i], one block per row: what the space starts from.
#include <cuda_fp16.h>

extern "C" __global__ void silu(__half* out, const __half* input, int d) {
  const __half* gates = input + 2ll * blockIdx.x * d;
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    const float gate = __half2float(gates[i]);
    out[(long long)blockIdx.x * d + i] =
        __float2half(gate / (1.0f + expf(-gate)) * __half2float(gates[d + i]));
  }
}
