extern "C" __global__ void float_atomics(float* out, const float* x, int columns) {
  const int share = columns / 8, begin = blockIdx.y * share;
  float own = 0.0f;
  for (int k = threadIdx.x; k < share; k += 256) own += x[blockIdx.x * columns + begin + k];
  atomicAdd(out + blockIdx.x, own);
}
