// PyTorch's 8-bit element types, where they are used.
#pragma once
#include <cuda_fp8.h>

namespace c10 {
using Float8_e4m3fn = __nv_fp8_e4m3;
using Float8_e5m2 = __nv_fp8_e5m2;
struct Float8_e4m3fnuz;
}  // namespace c10
namespace at {
using c10::Float8_e4m3fn;
using c10::Float8_e5m2;
}  // namespace at
