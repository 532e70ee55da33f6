#include "portable.h"
#ifndef TILE
#define TILE 16
#endif

// Square tiles of both factors in local memory, one result to a thread.
KERNEL void matmul(GLOBAL float* RESTRICT c, GLOBAL const float* RESTRICT a, GLOBAL const float* RESTRICT b, int m,
                   int n, int k) {
  LOCAL float left[TILE][TILE], right[TILE][TILE];
  const int row = GLOBAL_ID_Y, column = GLOBAL_ID;
  float sum = 0.0f;
  for (int first = 0; first < k; first += TILE) {
    const int over = first + LOCAL_ID, down = first + LOCAL_ID_Y;
    left[LOCAL_ID_Y][LOCAL_ID] = row < m && over < k ? a[row * k + over] : 0.0f;
    right[LOCAL_ID_Y][LOCAL_ID] = down < k && column < n ? b[down * n + column] : 0.0f;
    BARRIER;
    for (int i = 0; i < TILE; ++i) sum += left[LOCAL_ID_Y][i] * right[i][LOCAL_ID];
    BARRIER;
  }
  if (row < m && column < n) c[row * n + column] = sum;
}
