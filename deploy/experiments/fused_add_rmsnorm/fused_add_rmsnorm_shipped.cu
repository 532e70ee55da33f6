// residual += input; input = residual / rms(residual) * weight, launched as SGLang does on Hopper: one
// block of (32, warps) per row, 16-byte accesses, the float sums kept in dynamic shared memory behind
// one float per warp for the reduction, dependent launches. Every thread waits for the kernel ahead
// before it reads, and lets the next begin after its last store.
#include <cuda_fp16.h>

union Pack {
  uint4 words;  // what is moved: a struct of pairs would be loaded in four pieces
  __half2 pair[4];
  __device__ Pack() {}
  __device__ explicit Pack(uint4 words) : words(words) {}
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
                                             const __half* weight, int tokens, int d,
                                             float eps) {
  extern __shared__ float4 shared[];
  const unsigned warps = blockDim.y;
  const unsigned thread = threadIdx.y * 32 + threadIdx.x;
  const unsigned threads = warps * 32;
  const unsigned packs = d / 8;
  const unsigned rounds = (d + threads * 8 - 1) / (threads * 8);
  float* partial = reinterpret_cast<float*>(shared);
  float4* kept = shared + (warps + 3) / 4;
  uint4* x = reinterpret_cast<uint4*>(input + size_t(blockIdx.x) * d);
  uint4* r = reinterpret_cast<uint4*>(residual + size_t(blockIdx.x) * d);

  asm volatile("griddepcontrol.wait;" ::: "memory");
  float squares = 0.0f;
  for (unsigned round = 0; round < rounds; ++round) {
    const unsigned at = round * threads + thread;
    Pack a(make_uint4(0, 0, 0, 0)), b(make_uint4(0, 0, 0, 0));
    if (at < packs) {
      a.words = x[at];
      b.words = r[at];
    }
    float2 sums[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 p = __half22float2(a.pair[k]);
      const float2 q = __half22float2(b.pair[k]);
      sums[k] = make_float2(p.x + q.x, p.y + q.y);
      squares += sums[k].x * sums[k].x;
      squares += sums[k].y * sums[k].y;
      b.pair[k] = __floats2half2_rn(sums[k].x, sums[k].y);
    }
    if (at < packs) {
      r[at] = b.words;
      kept[2 * at] = make_float4(sums[0].x, sums[0].y, sums[1].x, sums[1].y);
      kept[2 * at + 1] = make_float4(sums[2].x, sums[2].y, sums[3].x, sums[3].y);
    }
  }

  squares = warp_sum(squares);
  partial[threadIdx.y] = squares;
  __syncthreads();
  if (threadIdx.y == 0) {
    squares = warp_sum(threadIdx.x < warps ? partial[threadIdx.x] : 0.0f);
    partial[0] = squares;
  }
  __syncthreads();
  const float scale = rsqrtf(partial[0] / float(d) + eps);

  for (unsigned round = 0; round < rounds; ++round) {
    const unsigned at = round * threads + thread;
    Pack w(make_uint4(0, 0, 0, 0)), normalised;
    float4 low = make_float4(0, 0, 0, 0), high = low;
    if (at < packs) {
      w.words = reinterpret_cast<const uint4*>(weight)[at];
      low = kept[2 * at];
      high = kept[2 * at + 1];
    }
    const float2 sums[4] = {{low.x, low.y}, {low.z, low.w}, {high.x, high.y}, {high.z, high.w}};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 g = __half22float2(w.pair[k]);
      normalised.pair[k] = __floats2half2_rn(sums[k].x * scale * g.x, sums[k].y * scale * g.y);
    }
    if (at < packs) x[at] = normalised.words;
  }
  asm volatile("griddepcontrol.launch_dependents;");
}
