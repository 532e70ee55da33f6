// What a device can do at most: a copy, nothing at all, plain matrix products.
#include <cuda_fp16.h>
#include <mma.h>

extern "C" __global__ void copy(uint4* to, const uint4* from, long long count) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i];
}

extern "C" __global__ void nothing() {}

constexpr int TILE = 64, DEEP = 16, EACH = 4;

// c = a b, all n by n with n a multiple of 64: a block of 16 by 16 threads makes a tile of 64 by 64.
extern "C" __global__ void product_float32(float* c, const float* a, const float* b, int n) {
  __shared__ __align__(16) float left[DEEP][TILE], right[DEEP][TILE];
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
  float sum[EACH][EACH] = {};
  for (int k = 0; k < n; k += DEEP) {
    for (int i = threadIdx.x; i < TILE * DEEP; i += 256) {
      left[i % DEEP][i / DEEP] = a[(row + i / DEEP) * n + k + i % DEEP];
      right[i / TILE][i % TILE] = b[(k + i / TILE) * n + column + i % TILE];
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < DEEP; ++d) {
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
#pragma unroll
        for (int j = 0; j < EACH; ++j) sum[i][j] += left[d][y * EACH + i] * right[d][x * EACH + j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < EACH; ++i) {
    for (int j = 0; j < EACH; ++j) c[(row + y * EACH + i) * n + column + x * EACH + j] = sum[i][j];
  }
}

// The same on tensor cores: each of 8 warps makes 32 by 64 of a block's 128 by 128, from the cache.
extern "C" __global__ void product_float16(half* c, const half* a, const half* b, int n) {
  using namespace nvcuda::wmma;
  const int warp = threadIdx.x / 32;
  const int row = blockIdx.y * 128 + warp / 2 * 32, column = blockIdx.x * 128 + warp % 2 * 64;
  fragment<accumulator, 16, 16, 16, half> sum[2][4];
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) fill_fragment(sum[i][j], __float2half(0.0f));
  }
  for (int k = 0; k < n; k += 16) {
    fragment<matrix_a, 16, 16, 16, half, row_major> left[2];
    fragment<matrix_b, 16, 16, 16, half, row_major> right[4];
    for (int i = 0; i < 2; ++i) load_matrix_sync(left[i], a + (row + 16 * i) * n + k, n);
    for (int j = 0; j < 4; ++j) load_matrix_sync(right[j], b + k * n + column + 16 * j, n);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 4; ++j) mma_sync(sum[i][j], left[i], right[j], sum[i][j]);
    }
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) {
      store_matrix_sync(c + (row + 16 * i) * n + column + 16 * j, sum[i][j], n, mem_row_major);
    }
  }
}
