// A 3 x 3 weighted sum around every cell, the border repeated outwards.
//
// A work-group of BX x BY work-items covers a tile of BX columns and BY * ROWS rows. The tile and
// its rim come from local memory (TILED) or straight from global memory.
#define TILE_ROWS (BY * ROWS)

static float cell(global const float *cells, int row, int column, int height, int width) {
  return cells[(size_t)clamp(row, 0, height - 1) * width + clamp(column, 0, width - 1)];
}

kernel __attribute__((reqd_work_group_size(BX, BY, 1)))
void stencil(global float *restrict out, global const float *restrict cells,
             global const float *restrict weights, int height, int width) {
  int left = get_group_id(0) * BX;
  int above = get_group_id(1) * TILE_ROWS;
  int lx = get_local_id(0);
  int ly = get_local_id(1);
#if TILED
  local float tile[(TILE_ROWS + 2) * (BX + 2)];
  for (int i = ly * BX + lx; i < (TILE_ROWS + 2) * (BX + 2); i += BX * BY) {
    tile[i] = cell(cells, above + i / (BX + 2) - 1, left + i % (BX + 2) - 1, height, width);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#define AT(dy, dx) tile[(ty + 1 + (dy)) * (BX + 2) + lx + 1 + (dx)]
#else
#define AT(dy, dx) cell(cells, above + ty + (dy), left + lx + (dx), height, width)
#endif
  for (int turn = 0; turn < ROWS; ++turn) {
    int ty = ly + turn * BY;
    if (left + lx < width && above + ty < height) {
      float sum = 0.0f;
#pragma unroll
      for (int dy = -1; dy <= 1; ++dy) {
#pragma unroll
        for (int dx = -1; dx <= 1; ++dx) sum += weights[(dy + 1) * 3 + dx + 1] * AT(dy, dx);
      }
      out[(size_t)(above + ty) * width + left + lx] = sum;
    }
  }
}
