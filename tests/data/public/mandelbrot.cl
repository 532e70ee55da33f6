#include "portable.h"

// How many steps until a point leaves the circle of radius 2: integers without any input array.
KERNEL void mandelbrot(GLOBAL int* RESTRICT steps, int width, int height, float left, float top, float pixel, int most) {
  if (GLOBAL_ID >= width || GLOBAL_ID_Y >= height) return;
  const float cx = left + GLOBAL_ID * pixel, cy = top + GLOBAL_ID_Y * pixel;
  float x = 0.0f, y = 0.0f;
  int step = 0;
  while (step < most && x * x + y * y <= 4.0f) {
    const float next = x * x - y * y + cx;
    y = 2.0f * x * y + cy;
    x = next;
    ++step;
  }
  steps[GLOBAL_ID_Y * width + GLOBAL_ID] = step;
}
