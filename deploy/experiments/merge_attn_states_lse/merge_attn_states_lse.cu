// Merges two partial attention results by their log-sum-exp, launched as SGLang ships it: one thread
// per 16-byte pack, blocks of 128; the packs are read once the weights are known, behind a bound that
// always holds, as there. An infinite log-sum-exp counts as minus infinity: nothing was attended to.
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
  const unsigned row = at / packs;
  const unsigned place = at % packs * 8;
  const unsigned token = row / h;
  const unsigned head = row % h;
  const unsigned start = token * h * d + head * d;

  float prefix = prefix_lse[token * h + head];
  float suffix = suffix_lse[token * h + head];
  prefix = isinf(prefix) ? -CUDART_INF_F : prefix;
  suffix = isinf(suffix) ? -CUDART_INF_F : suffix;
  const float top = fmaxf(prefix, suffix);
  prefix = expf(prefix - top);
  suffix = expf(suffix - top);
  const float total = prefix + suffix;
  const float prefix_share = prefix / total;
  const float suffix_share = suffix / total;

  if (place < d) {
    const Pack p(reinterpret_cast<const uint4*>(prefix_out + start)[place / 8]);
    const Pack s(reinterpret_cast<const uint4*>(suffix_out + start)[place / 8]);
    Pack merged;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 a = __half22float2(p.pair[k]);
      const float2 b = __half22float2(s.pair[k]);
      merged.pair[k] = __floats2half2_rn(a.x * prefix_share + b.x * suffix_share,
                                         a.y * prefix_share + b.y * suffix_share);
    }
    reinterpret_cast<uint4*>(out + start)[place / 8] = merged.words;
  }
  if (place == 0) out_lse[token * h + head] = logf(total) + top;
}
