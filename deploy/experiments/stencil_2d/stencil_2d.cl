// A 3 x 3 weighted sum around every cell, the border repeated outwards; one work-item per cell.
kernel void stencil_2d(global float *out, global const float *cells, global const float *weights,
                    int height, int width) {
  int x = get_global_id(0);
  int y = get_global_id(1);
  if (x >= width || y >= height) return;
  float sum = 0.0f;
  for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) {
      int row = clamp(y + dy, 0, height - 1);
      int column = clamp(x + dx, 0, width - 1);
      sum += weights[(dy + 1) * 3 + dx + 1] * cells[(size_t)row * width + column];
    }
  }
  out[(size_t)y * width + x] = sum;
}
