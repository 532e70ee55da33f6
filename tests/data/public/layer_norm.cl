#include "portable.h"
#ifndef BLOCK
#define BLOCK 64
#endif

FUNCTION float sum_of_block(float own, LOCAL_POINTER float* kept) {
  kept[LOCAL_ID] = own;
  BARRIER;
  for (int reach = BLOCK / 2; reach > 0; reach /= 2) {
    if (LOCAL_ID < reach) kept[LOCAL_ID] += kept[LOCAL_ID + reach];
    BARRIER;
  }
  const float sum = kept[0];
  BARRIER;
  return sum;
}

// One block to a row: the mean, then the variance around it. Mean and rstd are kept for a backward pass.
KERNEL void layer_norm(GLOBAL float* RESTRICT out, GLOBAL float* RESTRICT mean, GLOBAL float* RESTRICT rstd,
                       GLOBAL const float* RESTRICT x, GLOBAL const float* RESTRICT weight,
                       GLOBAL const float* RESTRICT bias, int columns, float epsilon) {
  LOCAL float kept[BLOCK];
  GLOBAL const float* row = x + (size_t)GROUP_ID * columns;
  float sum = 0.0f;
  for (int i = LOCAL_ID; i < columns; i += BLOCK) sum += row[i];
  const float m = sum_of_block(sum, kept) / columns;
  float squares = 0.0f;
  for (int i = LOCAL_ID; i < columns; i += BLOCK) squares += (row[i] - m) * (row[i] - m);
  const float r = RSQRT(sum_of_block(squares, kept) / columns + epsilon);
  for (int i = LOCAL_ID; i < columns; i += BLOCK)
    out[(size_t)GROUP_ID * columns + i] = (row[i] - m) * r * weight[i] + bias[i];
  if (LOCAL_ID == 0) {
    mean[GROUP_ID] = m;
    rstd[GROUP_ID] = r;
  }
}
