#include "portable.h"
#ifndef BLOCK
#define BLOCK 64
#endif
#ifndef SHARE
#define SHARE 1
#endif

// A matrix in compressed rows times a vector, SHARE threads to a row.
KERNEL void sparse_product(GLOBAL float* RESTRICT y, GLOBAL const int* RESTRICT begins, GLOBAL const int* RESTRICT columns,
                           GLOBAL const float* RESTRICT values, GLOBAL const float* RESTRICT x, int rows) {
  LOCAL float kept[BLOCK];
  const int row = GLOBAL_ID / SHARE, lane = LOCAL_ID % SHARE;
  float sum = 0.0f;
  if (row < rows)
    for (int i = begins[row] + lane; i < begins[row + 1]; i += SHARE) sum += values[i] * x[columns[i]];
  kept[LOCAL_ID] = sum;
  BARRIER;
  for (int reach = SHARE / 2; reach > 0; reach /= 2) {
    if (lane < reach) kept[LOCAL_ID] += kept[LOCAL_ID + reach];
    BARRIER;
  }
  if (row < rows && lane == 0) y[row] = kept[LOCAL_ID];
}
