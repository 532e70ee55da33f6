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

extern "C" __global__ void split_rows(float* parts, const float* x, int columns) {
  const int share = columns / 8, begin = blockIdx.y * share;
  float own = 0.0f;
  for (int k = threadIdx.x; k < share; k += 256) own += x[blockIdx.x * columns + begin + k];
  const float sum = sum_of_block(own);
  if (threadIdx.x == 0) parts[blockIdx.x * 8 + blockIdx.y] = sum;
}

extern "C" __global__ void join_rows(float* out, const float* parts, int rows) {
  const int row = blockIdx.x * 256 + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int k = 0; k < 8; ++k) sum += parts[row * 8 + k];
  out[row] = sum;
}
