#include "portable.h"

// Two numbers of four bits in a byte, a scale and a zero for each group of 32.
KERNEL void dequantise(GLOBAL float* RESTRICT out, GLOBAL const unsigned char* RESTRICT packed,
                       GLOBAL const float* RESTRICT scales, GLOBAL const unsigned char* RESTRICT zeros, int groups) {
  for (int i = GLOBAL_ID; i < groups * 16; i += GLOBAL_SIZE) {
    const int group = i / 16;
    const float scale = scales[group];
    const int zero = zeros[group], pair = packed[i];
    out[2 * i] = scale * ((pair & 15) - zero);
    out[2 * i + 1] = scale * ((pair >> 4) - zero);
  }
}
