// residual += input; input = residual / rms(residual) * weight, launched as SGLang ships it: one block
// of (32, warps) per row, 16-byte accesses, the float sums kept in dynamic shared memory behind one
// float per warp for the reduction.
#include <cuda_fp16.h>

struct __align__(16) Pack {
  __half2 pair[4];
};

struct __align__(16) Sums {
  float2 pair[4];
};

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

extern "C" __global__ void fused_add_rmsnorm(__half* __restrict__ input,
                                             __half* __restrict__ residual,
                                             const __half* __restrict__ weight, int tokens, int d,
                                             float eps) {
  extern __shared__ float4 shared[];
  const int warps = blockDim.y;
  const int thread = threadIdx.y * 32 + threadIdx.x;
  const int threads = warps * 32;
  const int packs = d / 8;
  float* partial = reinterpret_cast<float*>(shared);
  Sums* kept = reinterpret_cast<Sums*>(partial + (warps + 3) / 4 * 4);
  Pack* x = reinterpret_cast<Pack*>(input + size_t(blockIdx.x) * d);
  Pack* r = reinterpret_cast<Pack*>(residual + size_t(blockIdx.x) * d);

  float squares = 0.0f;
  for (int at = thread; at < packs; at += threads) {
    const Pack a = x[at];
    const Pack b = r[at];
    Pack rounded;
    Sums sums;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 p = __half22float2(a.pair[k]);
      const float2 q = __half22float2(b.pair[k]);
      const float2 sum = make_float2(p.x + q.x, p.y + q.y);
      squares += sum.x * sum.x;
      squares += sum.y * sum.y;
      rounded.pair[k] = __floats2half2_rn(sum.x, sum.y);
      sums.pair[k] = sum;
    }
    r[at] = rounded;
    kept[at] = sums;
  }

  squares = warp_sum(squares);
  if (threadIdx.x == 0) partial[threadIdx.y] = squares;
  __syncthreads();
  if (threadIdx.y == 0) {
    squares = warp_sum(threadIdx.x < warps ? partial[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) partial[0] = squares;
  }
  __syncthreads();
  const float scale = rsqrtf(partial[0] / float(d) + eps);

  for (int at = thread; at < packs; at += threads) {
    const Pack w = reinterpret_cast<const Pack*>(weight)[at];
    const Sums sums = kept[at];
    Pack normalised;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 g = __half22float2(w.pair[k]);
      normalised.pair[k] =
          __floats2half2_rn(sums.pair[k].x * scale * g.x, sums.pair[k].y * scale * g.y);
    }
    x[at] = normalised;
  }
}
