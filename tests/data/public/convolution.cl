#include "portable.h"
#define RADIUS 2
#ifndef BX
#define BX 16
#endif
#ifndef BY
#define BY 4
#endif

// 5 x 5 weights over a tile with its border; cells outside the image repeat its edge.
KERNEL void convolution(GLOBAL float* RESTRICT out, GLOBAL const float* RESTRICT image,
                        GLOBAL const float* RESTRICT weights, int height, int width) {
  LOCAL float tile[BY + 2 * RADIUS][BX + 2 * RADIUS];
  for (int y = LOCAL_ID_Y; y < BY + 2 * RADIUS; y += BY)
    for (int x = LOCAL_ID; x < BX + 2 * RADIUS; x += BX) {
      const int row = GROUP_ID_Y * BY + y - RADIUS, column = GROUP_ID * BX + x - RADIUS;
      const int nearest = row < 0 ? 0 : MIN(row, height - 1), beside = column < 0 ? 0 : MIN(column, width - 1);
      tile[y][x] = image[nearest * width + beside];
    }
  BARRIER;
  if (GLOBAL_ID >= width || GLOBAL_ID_Y >= height) return;
  float sum = 0.0f;
  for (int y = 0; y <= 2 * RADIUS; ++y)
    for (int x = 0; x <= 2 * RADIUS; ++x)
      sum += weights[y * (2 * RADIUS + 1) + x] * tile[LOCAL_ID_Y + y][LOCAL_ID + x];
  out[GLOBAL_ID_Y * width + GLOBAL_ID] = sum;
}
