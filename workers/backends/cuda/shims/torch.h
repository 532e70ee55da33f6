// PyTorch's element types and annotations, for device code compiled without PyTorch's headers.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define C10_DEVICE __device__
#define C10_HOST __host__
#define C10_HOST_DEVICE __host__ __device__
#define C10_RESTRICT __restrict__
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define GPU_LAMBDA __host__ __device__
#define CUDA_KERNEL_LOOP(i, n) \
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)
#define CUDA_KERNEL_ASSERT(condition) assert(condition)

namespace c10 {
using Half = __half;
using BFloat16 = __nv_bfloat16;
}  // namespace c10
namespace at {
using c10::BFloat16;
using c10::Half;
template <class T, bool on_device>
struct AccumulateType {
  using type = std::conditional_t<std::is_same_v<T, double>, double,
                                  std::conditional_t<std::is_integral_v<T>, long long, float>>;
};
template <class T, bool on_device = true>
using acc_type = typename AccumulateType<T, on_device>::type;
template <class T>
using opmath_type = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;
}  // namespace at
namespace torch {
using c10::BFloat16;
using c10::Half;
}  // namespace torch
