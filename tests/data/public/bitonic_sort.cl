#include "portable.h"
#define SIZE 512
#ifndef BLOCK
#define BLOCK 256
#endif

// Each row of at most 512 keys sorted in local memory by one block, after Batcher.
KERNEL void bitonic_sort(GLOBAL float* RESTRICT out, GLOBAL const float* RESTRICT keys, int columns) {
  LOCAL float kept[SIZE];
  const int first = GROUP_ID * columns;
  for (int i = LOCAL_ID; i < SIZE; i += BLOCK) kept[i] = i < columns ? keys[first + i] : INFINITY;
  for (int size = 2; size <= SIZE; size *= 2)
    for (int apart = size / 2; apart > 0; apart /= 2) {
      BARRIER;
      for (int pair = LOCAL_ID; pair < SIZE / 2; pair += BLOCK) {
        const int low = pair / apart * 2 * apart + pair % apart, high = low + apart;
        const float a = kept[low], b = kept[high];
        if ((a > b) == ((low & size) == 0)) {
          kept[low] = b;
          kept[high] = a;
        }
      }
    }
  BARRIER;
  for (int i = LOCAL_ID; i < columns; i += BLOCK) out[first + i] = kept[i];
}
