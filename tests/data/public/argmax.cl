#include "portable.h"
#ifndef BLOCK
#define BLOCK 64
#endif

// The place and value of each row's maximum; the first of equals.
KERNEL void argmax(GLOBAL int* RESTRICT place, GLOBAL float* RESTRICT value, GLOBAL const float* RESTRICT x, int columns) {
  LOCAL float tops[BLOCK];
  LOCAL int places[BLOCK];
  GLOBAL const float* row = x + (size_t)GROUP_ID * columns;
  float top = -INFINITY;
  int at = columns;
  for (int i = LOCAL_ID; i < columns; i += BLOCK)
    if (row[i] > top) {
      top = row[i];
      at = i;
    }
  tops[LOCAL_ID] = top;
  places[LOCAL_ID] = at;
  BARRIER;
  for (int reach = BLOCK / 2; reach > 0; reach /= 2) {
    if (LOCAL_ID < reach) {
      const float other = tops[LOCAL_ID + reach];
      const int where = places[LOCAL_ID + reach];
      if (other > tops[LOCAL_ID] || (other == tops[LOCAL_ID] && where < places[LOCAL_ID])) {
        tops[LOCAL_ID] = other;
        places[LOCAL_ID] = where;
      }
    }
    BARRIER;
  }
  if (LOCAL_ID == 0) {
    place[GROUP_ID] = places[0];
    value[GROUP_ID] = tops[0];
  }
}
