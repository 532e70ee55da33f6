// The same, and all the ways to fail at it.
extern "C" __global__ void __launch_bounds__(BLOCK)
    scale(float* __restrict__ out, const float* __restrict__ input, int n) {
  const int first = blockIdx.x * BLOCK * PER + threadIdx.x;
#if FAULT == FAULT_hang
  volatile float* patience = out;
  while (patience[0] == patience[0] || patience[1] != 1e30f) {
  }
#elif FAULT == FAULT_wild
  out[(long long)n << 30] = 1.0f;
#elif FAULT == FAULT_trap
  if (threadIdx.x == 0) __trap();
#elif FAULT == FAULT_greedy
  __shared__ float kept[20000];
  kept[threadIdx.x] = input[0];
  __syncthreads();
  out[0] = kept[n % BLOCK];
#elif FAULT == FAULT_behind
  if (first == 0) out[n] = 1.0f;
#elif FAULT == FAULT_wrong
  if (first == 0) out[n - 1] = 0.0f;
#endif
#pragma unroll
  for (int k = 0; k < PER; ++k) {
    const int i = first + k * BLOCK;
#if FAULT == FAULT_wrong
    if (i < n - 1) out[i] = 2.0f * input[i];
#else
    if (i < n) out[i] = 2.0f * input[i];
#endif
  }
}
