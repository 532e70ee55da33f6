#define RADIUS 8

namespace filter {
__constant__ float weights[2 * RADIUS + 1];
}

extern "C" __global__ void rows(float* between, const float* image, int height, int width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x >= width) return;
  float sum = 0.0f;
  for (int k = -RADIUS; k <= RADIUS; ++k) {
    if (x + k >= 0 && x + k < width) sum += image[y * width + x + k] * filter::weights[RADIUS - k];
  }
  between[y * width + x] = sum;
}

extern "C" __global__ void columns(float* out, const float* between, int height, int width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x >= width) return;
  float sum = 0.0f;
  for (int k = -RADIUS; k <= RADIUS; ++k) {
    if (y + k >= 0 && y + k < height) sum += between[(y + k) * width + x] * filter::weights[RADIUS - k];
  }
  out[y * width + x] = sum;
}
