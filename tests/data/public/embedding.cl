#include "portable.h"

// Rows of a table by token, with a learned position added.
KERNEL void embedding(GLOBAL float* RESTRICT out, GLOBAL const int* RESTRICT tokens, GLOBAL const float* RESTRICT table,
                      GLOBAL const float* RESTRICT positions, int count, int length, int width) {
  for (int i = GLOBAL_ID; i < count * width; i += GLOBAL_SIZE) {
    const int token = i / width, column = i % width;
    out[i] = table[tokens[token] * width + column] + positions[token % length * width + column];
  }
}
