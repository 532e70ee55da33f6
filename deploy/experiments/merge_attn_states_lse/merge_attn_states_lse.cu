// Merges two partial attention results by their log-sum-exp, launched as SGLang ships it: one thread
// per 16-byte pack, blocks of 128. An infinite log-sum-exp counts as minus infinity: nothing was
// attended to.
#include <cuda_fp16.h>
#include <math_constants.h>

union Pack {
  uint4 words;  // what is moved: a struct of pairs would be loaded in four pieces
  __half2 pair[4];
  __device__ Pack() {}
  __device__ explicit Pack(uint4 words) : words(words) {}
};

extern "C" __global__ void merge_attn_states_lse(__half* __restrict__ out,
                                                 float* __restrict__ out_lse,
                                                 const __half* __restrict__ prefix_out,
                                                 const float* __restrict__ prefix_lse,
                                                 const __half* __restrict__ suffix_out,
                                                 const float* __restrict__ suffix_lse, int n, int h,
                                                 int d) {
  const unsigned packs = d / 8;
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n * h * packs) return;
  const unsigned head = at / packs;

  float prefix = prefix_lse[head];
  float suffix = suffix_lse[head];
  prefix = isinf(prefix) ? -CUDART_INF_F : prefix;
  suffix = isinf(suffix) ? -CUDART_INF_F : suffix;
  const float top = fmaxf(prefix, suffix);
  prefix = expf(prefix - top);
  suffix = expf(suffix - top);
  const float total = prefix + suffix;
  const float prefix_share = prefix / total;
  const float suffix_share = suffix / total;

  const Pack p(reinterpret_cast<const uint4*>(prefix_out)[at]);
  const Pack s(reinterpret_cast<const uint4*>(suffix_out)[at]);
  Pack merged;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float2 a = __half22float2(p.pair[k]);
    const float2 b = __half22float2(s.pair[k]);
    merged.pair[k] = __floats2half2_rn(a.x * prefix_share + b.x * suffix_share,
                                       a.y * prefix_share + b.y * suffix_share);
  }
  reinterpret_cast<uint4*>(out)[at] = merged.words;
  if (at % packs == 0) out_lse[head] = logf(total) + top;
}
