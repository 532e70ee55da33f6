#include "portable.h"
#ifndef TILE
#define TILE 16
#endif
#ifndef STEP
#define STEP 4
#endif

// A tile goes through local memory, a column wider than it is high so that banks do not collide.
KERNEL void transpose(GLOBAL float* RESTRICT out, GLOBAL const float* RESTRICT in, int height, int width) {
  LOCAL float tile[TILE][TILE + 1];
  int x = GROUP_ID * TILE + LOCAL_ID, y = GROUP_ID_Y * TILE + LOCAL_ID_Y;
  for (int j = 0; j < TILE; j += STEP)
    if (x < width && y + j < height) tile[LOCAL_ID_Y + j][LOCAL_ID] = in[(y + j) * width + x];
  BARRIER;
  x = GROUP_ID_Y * TILE + LOCAL_ID;
  y = GROUP_ID * TILE + LOCAL_ID_Y;
  for (int j = 0; j < TILE; j += STEP)
    if (x < height && y + j < width) out[(y + j) * height + x] = tile[LOCAL_ID][LOCAL_ID_Y + j];
}
