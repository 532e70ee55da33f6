#include "portable.h"
#ifndef BLOCK
#define BLOCK 128
#endif

FUNCTION float sum_of_block(float own, LOCAL_POINTER float* kept) {
  kept[LOCAL_ID] = own;
  BARRIER;
  for (int reach = BLOCK / 2; reach > 0; reach /= 2) {
    if (LOCAL_ID < reach) kept[LOCAL_ID] += kept[LOCAL_ID + reach];
    BARRIER;
  }
  return kept[0];
}

// Each block's share of a dot product.
KERNEL void partial_sums(GLOBAL float* RESTRICT parts, GLOBAL const float* RESTRICT x, GLOBAL const float* RESTRICT y,
                         int n) {
  LOCAL float kept[BLOCK];
  float own = 0.0f;
  for (int i = GLOBAL_ID; i < n; i += GLOBAL_SIZE) own += x[i] * y[i];
  const float sum = sum_of_block(own, kept);
  if (LOCAL_ID == 0) parts[GROUP_ID] = sum;
}

// The shares added up in one block.
KERNEL void total(GLOBAL float* RESTRICT out, GLOBAL const float* RESTRICT parts, int count) {
  LOCAL float kept[BLOCK];
  float own = 0.0f;
  for (int i = LOCAL_ID; i < count; i += BLOCK) own += parts[i];
  const float sum = sum_of_block(own, kept);
  if (LOCAL_ID == 0) out[0] = sum;
}
