// A 3 x 3 weighted sum around every cell, the border repeated outwards; one thread per cell.
extern "C" __global__ void stencil_2d(float* __restrict__ out, const float* __restrict__ cells,
                                      const float* __restrict__ weights, int height, int width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float sum = 0.0f;
  for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) {
      const int row = min(max(y + dy, 0), height - 1);
      const int column = min(max(x + dx, 0), width - 1);
      sum += weights[(dy + 1) * 3 + dx + 1] * cells[size_t(row) * width + column];
    }
  }
  out[size_t(y) * width + x] = sum;
}
