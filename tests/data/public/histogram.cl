#include "portable.h"
#define BINS 256

// Each block counts in local memory and adds its counts to all others'.
KERNEL void histogram(GLOBAL int* counts, GLOBAL const unsigned char* RESTRICT pixels, int n) {
  LOCAL int own[BINS];
  for (int bin = LOCAL_ID; bin < BINS; bin += LOCAL_SIZE) own[bin] = 0;
  BARRIER;
  for (int i = GLOBAL_ID; i < n; i += GLOBAL_SIZE) ATOMIC_ADD(&own[pixels[i]], 1);
  BARRIER;
  for (int bin = LOCAL_ID; bin < BINS; bin += LOCAL_SIZE)
    if (own[bin] > 0) ATOMIC_ADD(&counts[bin], own[bin]);
}
