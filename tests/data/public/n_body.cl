#include "portable.h"
#ifndef BLOCK
#define BLOCK 64
#endif

// Bodies (x, y, z, mass) in tiles through local memory; the acceleration of each.
KERNEL void n_body(GLOBAL float* RESTRICT acceleration, GLOBAL const float* RESTRICT bodies, int n, float softening) {
  LOCAL float tile[BLOCK][4];
  const int mine = MIN(GLOBAL_ID, n - 1);
  const float x = bodies[4 * mine], y = bodies[4 * mine + 1], z = bodies[4 * mine + 2];
  float ax = 0.0f, ay = 0.0f, az = 0.0f;
  for (int first = 0; first < n; first += BLOCK) {
    const int other = first + LOCAL_ID;
    for (int k = 0; k < 4; ++k) tile[LOCAL_ID][k] = other < n ? bodies[4 * other + k] : 0.0f;
    BARRIER;
    for (int i = 0; i < BLOCK; ++i) {
      const float dx = tile[i][0] - x, dy = tile[i][1] - y, dz = tile[i][2] - z;
      const float inverse = RSQRT(dx * dx + dy * dy + dz * dz + softening);
      const float pull = tile[i][3] * inverse * inverse * inverse;
      ax += dx * pull;
      ay += dy * pull;
      az += dz * pull;
    }
    BARRIER;
  }
  if (GLOBAL_ID >= n) return;
  acceleration[3 * mine] = ax;
  acceleration[3 * mine + 1] = ay;
  acceleration[3 * mine + 2] = az;
}
