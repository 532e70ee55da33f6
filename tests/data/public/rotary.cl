#include "portable.h"

// Rotates pairs of a head's elements in place, by the angle of its token's position.
KERNEL void rotary(GLOBAL float* RESTRICT query, GLOBAL const int* RESTRICT positions, GLOBAL const float* RESTRICT cosines,
                   GLOBAL const float* RESTRICT sines, int heads, int pairs) {
  const int token = GROUP_ID;
  GLOBAL const float* c = cosines + positions[token] * pairs;
  GLOBAL const float* s = sines + positions[token] * pairs;
  for (int i = LOCAL_ID; i < heads * pairs; i += LOCAL_SIZE) {
    GLOBAL float* head = query + (token * heads + i / pairs) * 2 * pairs;
    const int k = i % pairs;
    const float x = head[k], y = head[k + pairs];
    head[k] = x * c[k] - y * s[k];
    head[k + pairs] = y * c[k] + x * s[k];
  }
}
