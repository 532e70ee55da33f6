#include "portable.h"
#ifndef BLOCK
#define BLOCK 256
#endif

// Sums within a block, after Hillis and Steele; the block's whole sum beside them.
KERNEL void scan_blocks(GLOBAL float* RESTRICT out, GLOBAL float* RESTRICT sums, GLOBAL const float* RESTRICT x, int n) {
  LOCAL float kept[BLOCK];
  kept[LOCAL_ID] = GLOBAL_ID < n ? x[GLOBAL_ID] : 0.0f;
  BARRIER;
  for (int step = 1; step < BLOCK; step *= 2) {
    const float before = LOCAL_ID >= step ? kept[LOCAL_ID - step] : 0.0f;
    BARRIER;
    kept[LOCAL_ID] += before;
    BARRIER;
  }
  if (GLOBAL_ID < n) out[GLOBAL_ID] = kept[LOCAL_ID];
  if (LOCAL_ID == BLOCK - 1) sums[GROUP_ID] = kept[LOCAL_ID];
}

// What lies ahead of a block is added to it.
KERNEL void add_sums(GLOBAL float* RESTRICT out, GLOBAL const float* RESTRICT sums, int n) {
  LOCAL float ahead[1];
  if (LOCAL_ID == 0) {
    float sum = 0.0f;
    for (int block = 0; block < GROUP_ID; ++block) sum += sums[block];
    ahead[0] = sum;
  }
  BARRIER;
  if (GLOBAL_ID < n) out[GLOBAL_ID] += ahead[0];
}
