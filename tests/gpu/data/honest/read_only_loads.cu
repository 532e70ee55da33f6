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

extern "C" __global__ void read_only_loads(float* __restrict__ out, const float* __restrict__ x, int rows,
                                           int columns) {
  float own = 0.0f;
  for (int k = threadIdx.x; k < columns; k += 256) own += __ldg(x + blockIdx.x * columns + k);
  const float sum = sum_of_block(own);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
