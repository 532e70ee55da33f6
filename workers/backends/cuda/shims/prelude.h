// What nvcc and the host's C and C++ headers declare in every file, for compilers that compile for
// the device alone: integers, limits, constants, and the parts of namespace std that kernels use.
#pragma once

#pragma nv_diag_suppress 47    // the toolchain's headers define some of these macros again
#pragma nv_diag_suppress 1105  // and warn of each other

#include <cuda/std/cfloat>
#include <cuda/std/climits>
#include <cuda/std/cstdint>

using ssize_t = long;
using uint = unsigned int;
using ushort = unsigned short;
using ulong = unsigned long;

#ifndef CUDART_VERSION
#define CUDART_VERSION (__CUDACC_VER_MAJOR__ * 1000 + __CUDACC_VER_MINOR__ * 10)
#endif
#ifndef CUDA_VERSION
#define CUDA_VERSION CUDART_VERSION
#endif

#ifndef FLT_MAX  // <cuda/std/cfloat> of CUDA 13.0 is empty for NVRTC
#define FLT_RADIX 2
#define FLT_MANT_DIG 24
#define FLT_DIG 6
#define FLT_MIN_EXP (-125)
#define FLT_MAX_EXP 128
#define FLT_MIN 1.17549435e-38f
#define FLT_MAX 3.40282347e+38f
#define FLT_EPSILON 1.19209290e-7f
#define DBL_MANT_DIG 53
#define DBL_DIG 15
#define DBL_MIN_EXP (-1021)
#define DBL_MAX_EXP 1024
#define DBL_MIN 2.2250738585072014e-308
#define DBL_MAX 1.7976931348623157e+308
#define DBL_EPSILON 2.2204460492503131e-16
#endif
#ifndef INFINITY
#define INFINITY __builtin_bit_cast(float, 0x7F800000)
#define NAN __builtin_bit_cast(float, 0x7FFFFFFF)
#define HUGE_VALF INFINITY
#define HUGE_VAL __builtin_bit_cast(double, 0x7FF0000000000000)
#endif
#ifndef M_PI
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif

namespace std {
using size_t = decltype(sizeof(0));
using ptrdiff_t = decltype((char*)0 - (char*)0);
using nullptr_t = decltype(nullptr);
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::intptr_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::uintptr_t;

using ::abs;
using ::acos;
using ::asin;
using ::atan;
using ::atan2;
using ::ceil;
using ::copysign;
using ::cos;
using ::cosh;
using ::erf;
using ::erfc;
using ::exp;
using ::exp2;
using ::expm1;
using ::fabs;
using ::floor;
using ::fma;
using ::fmax;
using ::fmin;
using ::fmod;
using ::isfinite;
using ::isinf;
using ::isnan;
using ::log;
using ::log10;
using ::log1p;
using ::log2;
using ::memcpy;
using ::memset;
using ::pow;
using ::rint;
using ::round;
using ::sin;
using ::sinh;
using ::sqrt;
using ::tan;
using ::tanh;
using ::trunc;

template <class T>
__host__ __device__ constexpr const T& min(const T& a, const T& b) {
  return b < a ? b : a;
}
template <class T>
__host__ __device__ constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}
template <class T>
__host__ __device__ constexpr const T& clamp(const T& v, const T& lo, const T& hi) {
  return v < lo ? lo : hi < v ? hi : v;
}
template <class T>
__host__ __device__ constexpr void swap(T& a, T& b) {
  T kept = a;
  a = b;
  b = kept;
}

template <class T, T V>
struct integral_constant {
  static constexpr T value = V;
  using value_type = T;
  using type = integral_constant;
  __host__ __device__ constexpr operator T() const { return V; }
  __host__ __device__ constexpr T operator()() const { return V; }
};
template <bool V>
using bool_constant = integral_constant<bool, V>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool V, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool V, class T = void>
using enable_if_t = typename enable_if<V, T>::type;
template <bool V, class T, class F>
struct conditional {
  using type = T;
};
template <class T, class F>
struct conditional<false, T, F> {
  using type = F;
};
template <bool V, class T, class F>
using conditional_t = typename conditional<V, T, F>::type;
template <class...>
using void_t = void;

template <class T>
struct remove_reference {
  using type = T;
};
template <class T>
struct remove_reference<T&> {
  using type = T;
};
template <class T>
struct remove_reference<T&&> {
  using type = T;
};
template <class T>
struct remove_const {
  using type = T;
};
template <class T>
struct remove_const<const T> {
  using type = T;
};
template <class T>
struct remove_volatile {
  using type = T;
};
template <class T>
struct remove_volatile<volatile T> {
  using type = T;
};
template <class T>
struct remove_pointer {
  using type = T;
};
template <class T>
struct remove_pointer<T*> {
  using type = T;
};
template <class T>
struct type_identity {
  using type = T;
};
template <class T>
using remove_reference_t = typename remove_reference<T>::type;
template <class T>
using remove_const_t = typename remove_const<T>::type;
template <class T>
using remove_pointer_t = typename remove_pointer<T>::type;
template <class T>
using remove_cv_t = typename remove_volatile<remove_const_t<T>>::type;
template <class T>
struct remove_cv {
  using type = remove_cv_t<T>;
};
template <class T>
using remove_cvref_t = remove_cv_t<remove_reference_t<T>>;
template <class T>
using decay_t = remove_cvref_t<T>;
template <class T>
struct decay {
  using type = decay_t<T>;
};

template <class T>
__host__ __device__ remove_reference_t<T>&& declval();

template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class A, class B>
struct is_same : bool_constant<is_same_v<A, B>> {};

template <class T, class... Ts>
inline constexpr bool is_any_of_v = (is_same_v<remove_cv_t<T>, Ts> || ...);
template <class T>
inline constexpr bool is_floating_point_v = is_any_of_v<T, float, double>;
template <class T>
inline constexpr bool is_integral_v =
    is_any_of_v<T, bool, char, signed char, unsigned char, short, unsigned short, int, unsigned int,
                long, unsigned long, long long, unsigned long long>;
template <class T>
inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T>
inline constexpr bool is_signed_v = is_arithmetic_v<T> && T(-1) < T(0);
template <class T>
inline constexpr bool is_unsigned_v = is_integral_v<T> && !is_signed_v<T>;
template <class T>
inline constexpr bool is_void_v = is_same_v<remove_cv_t<T>, void>;
template <class T>
inline constexpr bool is_pointer_v = false;
template <class T>
inline constexpr bool is_pointer_v<T*> = true;
template <class T>
inline constexpr bool is_const_v = false;
template <class T>
inline constexpr bool is_const_v<const T> = true;
template <class T>
inline constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);
template <class T>
inline constexpr bool is_trivial_v = __is_trivial(T);
template <class T>
inline constexpr bool is_pod_v = __is_pod(T);
template <class T>
inline constexpr bool is_enum_v = __is_enum(T);
template <class T>
inline constexpr bool is_class_v = __is_class(T);
template <class A, class B>
inline constexpr bool is_base_of_v = __is_base_of(A, B);
template <class A, class B>
inline constexpr bool is_convertible_v = __is_convertible_to(A, B);
template <class T>
struct is_floating_point : bool_constant<is_floating_point_v<T>> {};
template <class T>
struct is_integral : bool_constant<is_integral_v<T>> {};
template <class T>
struct is_arithmetic : bool_constant<is_arithmetic_v<T>> {};
template <class T>
struct is_signed : bool_constant<is_signed_v<T>> {};
template <class T>
struct is_unsigned : bool_constant<is_unsigned_v<T>> {};
template <class T>
struct is_void : bool_constant<is_void_v<T>> {};
template <class T>
struct is_pointer : bool_constant<is_pointer_v<T>> {};
template <class T>
struct is_const : bool_constant<is_const_v<T>> {};
template <class T>
struct is_trivially_copyable : bool_constant<is_trivially_copyable_v<T>> {};
template <class T>
struct is_pod : bool_constant<is_pod_v<T>> {};
template <class T>
struct is_enum : bool_constant<is_enum_v<T>> {};
template <class A, class B>
struct is_base_of : bool_constant<is_base_of_v<A, B>> {};
template <class A, class B>
struct is_convertible : bool_constant<is_convertible_v<A, B>> {};
template <class T>
using underlying_type_t = __underlying_type(T);

template <class T>
struct numeric_limits;
template <class T>
struct numeric_limits<const T> : numeric_limits<T> {};
#define KERNELWRIGHT_LIMITS(TYPE, LOWEST, MIN, MAX, EPSILON, INF, NOT_A_NUMBER, INTEGER)            \
  template <>                                                                                       \
  struct numeric_limits<TYPE> {                                                                     \
    static constexpr bool is_specialized = true;                                                    \
    static constexpr bool is_integer = INTEGER;                                                     \
    static constexpr bool is_signed = is_signed_v<TYPE>;                                            \
    static constexpr bool has_infinity = !INTEGER;                                                  \
    static constexpr int digits = INTEGER ? 8 * sizeof(TYPE) - is_signed : sizeof(TYPE) == 4 ? 24 : 53; \
    __host__ __device__ static constexpr TYPE lowest() noexcept { return LOWEST; }                  \
    __host__ __device__ static constexpr TYPE min() noexcept { return MIN; }                        \
    __host__ __device__ static constexpr TYPE max() noexcept { return MAX; }                        \
    __host__ __device__ static constexpr TYPE epsilon() noexcept { return EPSILON; }                \
    __host__ __device__ static constexpr TYPE infinity() noexcept { return INF; }                   \
    __host__ __device__ static constexpr TYPE quiet_NaN() noexcept { return NOT_A_NUMBER; }         \
  }
#define KERNELWRIGHT_INTEGER(TYPE, MIN, MAX) KERNELWRIGHT_LIMITS(TYPE, MIN, MIN, MAX, 0, 0, 0, true)
KERNELWRIGHT_LIMITS(float, -FLT_MAX, FLT_MIN, FLT_MAX, FLT_EPSILON, INFINITY, NAN, false);
KERNELWRIGHT_LIMITS(double, -DBL_MAX, DBL_MIN, DBL_MAX, DBL_EPSILON, HUGE_VAL, NAN, false);
KERNELWRIGHT_INTEGER(bool, false, true);
KERNELWRIGHT_INTEGER(char, CHAR_MIN, CHAR_MAX);
KERNELWRIGHT_INTEGER(signed char, SCHAR_MIN, SCHAR_MAX);
KERNELWRIGHT_INTEGER(unsigned char, 0, UCHAR_MAX);
KERNELWRIGHT_INTEGER(short, SHRT_MIN, SHRT_MAX);
KERNELWRIGHT_INTEGER(unsigned short, 0, USHRT_MAX);
KERNELWRIGHT_INTEGER(int, INT_MIN, INT_MAX);
KERNELWRIGHT_INTEGER(unsigned int, 0, UINT_MAX);
KERNELWRIGHT_INTEGER(long, LONG_MIN, LONG_MAX);
KERNELWRIGHT_INTEGER(unsigned long, 0, ULONG_MAX);
KERNELWRIGHT_INTEGER(long long, LLONG_MIN, LLONG_MAX);
KERNELWRIGHT_INTEGER(unsigned long long, 0, ULLONG_MAX);
#undef KERNELWRIGHT_INTEGER
#undef KERNELWRIGHT_LIMITS
}  // namespace std
