#include "portable.h"
#ifndef BLOCK
#define BLOCK 128
#endif

// One block to a row: the maximum and the sum in one pass each, both reduced in a tree.
KERNEL void softmax(GLOBAL float* RESTRICT out, GLOBAL const float* RESTRICT x, int columns) {
  LOCAL float kept[BLOCK];
  GLOBAL const float* row = x + (size_t)GROUP_ID * columns;
  GLOBAL float* to = out + (size_t)GROUP_ID * columns;
  float top = -INFINITY;
  for (int i = LOCAL_ID; i < columns; i += BLOCK) top = FMAX(top, row[i]);
  kept[LOCAL_ID] = top;
  BARRIER;
  for (int reach = BLOCK / 2; reach > 0; reach /= 2) {
    if (LOCAL_ID < reach) kept[LOCAL_ID] = FMAX(kept[LOCAL_ID], kept[LOCAL_ID + reach]);
    BARRIER;
  }
  top = kept[0];
  BARRIER;
  float sum = 0.0f;
  for (int i = LOCAL_ID; i < columns; i += BLOCK) sum += EXP(row[i] - top);
  kept[LOCAL_ID] = sum;
  BARRIER;
  for (int reach = BLOCK / 2; reach > 0; reach /= 2) {
    if (LOCAL_ID < reach) kept[LOCAL_ID] += kept[LOCAL_ID + reach];
    BARRIER;
  }
  const float scale = 1.0f / kept[0];
  for (int i = LOCAL_ID; i < columns; i += BLOCK) to[i] = EXP(row[i] - top) * scale;
}
