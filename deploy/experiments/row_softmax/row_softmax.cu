// out[r] = softmax(scores[r]), one block per row.
__device__ __forceinline__ float block_reduce(float value, bool maximum, float* partial) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, value, distance);
    value = maximum ? fmaxf(value, other) : value + other;
  }
  const int warps = blockDim.x / 32;
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  value = partial[0];
  for (int warp = 1; warp < warps; ++warp) {
    value = maximum ? fmaxf(value, partial[warp]) : value + partial[warp];
  }
  __syncthreads();
  return value;
}

extern "C" __global__ void row_softmax(const float* __restrict__ scores, float* __restrict__ out,
                                       int rows, int columns) {
  __shared__ float partial[32];
  const float* x = scores + size_t(blockIdx.x) * columns;
  float* y = out + size_t(blockIdx.x) * columns;
  float top = x[0];
  for (int i = threadIdx.x; i < columns; i += blockDim.x) top = fmaxf(top, x[i]);
  top = block_reduce(top, true, partial);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(x[i] - top);
  sum = block_reduce(sum, false, partial);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) y[i] = expf(x[i] - top) / sum;
}
