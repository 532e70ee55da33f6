// The sum over a block of 256 threads, in thread 0.
__device__ float sum_of_block(float own) {
  __shared__ float kept[8];
  for (int half = 16; half > 0; half /= 2) own += __shfl_down_sync(0xffffffffu, own, half);
  __syncthreads();
  if (threadIdx.x % 32 == 0) kept[threadIdx.x / 32] = own;
  __syncthreads();
  float sum = threadIdx.x < 8 ? kept[threadIdx.x] : 0.0f;
  for (int half = 4; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffu, sum, half);
  return sum;
}

// Two stages of 1024 numbers: one is copied while the other is added.
extern "C" __global__ void async_copies(float* out, const float* x, int rows, int columns) {
  __shared__ __align__(16) float stages[2][1024];
  const float* row = x + blockIdx.x * columns + 4 * threadIdx.x;
  const int count = columns / 1024;
  auto copy = [&](int stage) {
    const unsigned to = __cvta_generic_to_shared(&stages[stage % 2][4 * threadIdx.x]);
    if (stage < count)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(row + stage * 1024));
    asm volatile("cp.async.commit_group;");
  };
  copy(0);
  float own = 0.0f;
  for (int stage = 0; stage < count; ++stage) {
    copy(stage + 1);
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    for (int k = 0; k < 4; ++k) own += stages[stage % 2][4 * threadIdx.x + k];
  }
  const float sum = sum_of_block(own);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
