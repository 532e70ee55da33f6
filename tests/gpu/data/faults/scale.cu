// out[i] = 2 * input[i], one element a thread.
extern "C" __global__ void scale(float* out, const float* input, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * input[i];
}
