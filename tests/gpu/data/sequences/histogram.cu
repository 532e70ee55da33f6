// Counts keys by bin in a scratch array that a memset clears, then ranks the bins.
extern "C" __global__ void count(const int* keys, int* counts, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&counts[keys[i]], 1);
}

extern "C" __global__ void ends(int* out, const int* counts, int bins) {
  const int bin = blockIdx.x * blockDim.x + threadIdx.x;
  if (bin >= bins) return;
  int sum = 0;
  for (int k = 0; k <= bin; ++k) sum += counts[k];
  out[bin] = sum;
}
