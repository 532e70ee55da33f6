// The harness's own kernels: make buffers whole, find damage, compare with the oracle, pass time.
// The numbers of element types and modes, and every structure, mirror checks.py.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef long long Int;
typedef unsigned long long Word;

enum Type {
  BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64,
  FLOAT8_E4M3, FLOAT8_E5M2
};
enum Mode { CLOSE, EXACT, ULP };
constexpr int THREADS = 256;

__device__ double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }
__device__ bool finite(double x) { return fabs(x) < infinity(); }
__device__ Word nanoseconds() {
  Word now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Copies the image of a set (words 16-byte words) over count sets, those of ids if it is given. What is
// read of the image is written to many sets, since reading costs as much as writing.
extern "C" __global__ void restore_sets(uint4* sets, const uint4* image, Int words, const int* ids,
                                        Int count) {
  const Int stride = Int(gridDim.x) * blockDim.x;
  for (Int i = Int(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += stride) {
    const uint4 word = image[i];
    for (Int n = blockIdx.y; n < count; n += gridDim.y) sets[(ids ? ids[n] : n) * words + i] = word;
  }
}

// What multiplies the n-th 4-byte word of a digest, or moves the n-th number: one of 2^64 for each key,
// as good as drawn.
__device__ Word factor(Word key, Word n) {
  Word x = key + n * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// Lets the next kernel begin, waits, and only then copies words of 16 bytes to two places.
extern "C" __global__ void write_late(uint4* first_to, const uint4* first, Int first_words,
                                      uint4* second_to, const uint4* second, Int second_words,
                                      Word delay) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  const Word end = nanoseconds() + delay;
  while (nanoseconds() < end) {}
  const Int begin = Int(blockIdx.x) * blockDim.x + threadIdx.x, stride = Int(gridDim.x) * blockDim.x;
  for (Int i = begin; i < first_words; i += stride) first_to[i] = first[i];
  for (Int i = begin; i < second_words; i += stride) second_to[i] = second[i];
}

// Leaves an ordinary number in the shared memory of whichever multiprocessor runs a block.
extern "C" __global__ void spoil_shared(Int words, Word noise) {
  extern __shared__ unsigned memory[];
  volatile unsigned* kept = memory;
  for (Int i = threadIdx.x; i < words; i += blockDim.x) kept[i] = unsigned(noise);
}

// A stretch of memory that no launch may change, and where in the image its bytes are. A guard in front
// of a buffer is read backwards, so that the damage nearest to the buffer is found first.
struct Stretch {
  Int offset;
  Int length;
  Int backwards;
  Int image;
};

// A number, and the stretches of memory from which a kernel makes another.
struct Asked {
  Word number;
  const unsigned char* memory;
  Stretch stretches[1];
};

// Leaves the least (stretch << 40 | distance) of a byte that differs from the image.
extern "C" __global__ void find_damage(Asked* asked, const unsigned char* image) {
  const Stretch stretch = asked->stretches[blockIdx.y];
  const unsigned char* memory = asked->memory + stretch.offset;
  image += stretch.image;
  const bool aligned = (reinterpret_cast<Word>(memory) | reinterpret_cast<Word>(image)) % 16 == 0;
  const Int stride = Int(gridDim.x) * blockDim.x * 16;
  for (Int at = (Int(blockIdx.x) * blockDim.x + threadIdx.x) * 16; at < stretch.length; at += stride) {
    const Int left = stretch.length - at;
    if (!stretch.backwards && left >= 16 && aligned) {
      const uint4 a = *reinterpret_cast<const uint4*>(memory + at);
      const uint4 b = *reinterpret_cast<const uint4*>(image + at);
      if (a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w) continue;
    }
    for (int k = 0; k < 16 && k < left; ++k) {
      const Int i = stretch.backwards ? stretch.length - 1 - at - k : at + k;
      if (memory[i] != image[i]) {
        atomicMin(&asked->number, Word(blockIdx.y) << 40 | Word(at + k));
        break;
      }
    }
  }
}

// Adds a digest of stretches of memory aligned to 16 bytes: the sum of its words, each times a factor
// that nobody knows without the key, so that no change is left out but by chance.
extern "C" __global__ void digest(Asked* asked, Word key) {
  const Stretch stretch = asked->stretches[blockIdx.y];
  const Int begin = stretch.offset, end = begin + stretch.length;
  const Int stride = Int(gridDim.x) * blockDim.x;
  Word own = 0;
  for (Int n = begin / 16 + Int(blockIdx.x) * blockDim.x + threadIdx.x; n * 16 < end; n += stride) {
    uint4 read = reinterpret_cast<const uint4*>(asked->memory)[n];
    unsigned char* bytes = reinterpret_cast<unsigned char*>(&read);
    if (n * 16 < begin || n * 16 + 16 > end) {
      for (int k = 0; k < 16; ++k) {
        if (n * 16 + k < begin || n * 16 + k >= end) bytes[k] = 0;
      }
    }
    own += factor(key, n * 4) * read.x + factor(key, n * 4 + 1) * read.y +
           factor(key, n * 4 + 2) * read.z + factor(key, n * 4 + 3) * read.w;
  }
  for (int half = 16; half > 0; half /= 2) own += __shfl_down_sync(0xffffffffu, own, half);
  if (threadIdx.x % 32 == 0) atomicAdd(&asked->number, own);
}

struct Worst {
  double error;
  double got;
  double want;
  Int index;
  Int first;  // of the failing elements; count where none fails
  Int failures;
  Int unwritten;
  Int poisoned;
};

// A format of 8 bits: bits of the mantissa, the least exponent of a normal number, the greatest
// number, and what greater ones become.
struct Small {
  int mantissa, least;
  double most, beyond;
};

__device__ Small small(int type) {
  if (type == FLOAT8_E4M3) return {3, -6, 448.0, __longlong_as_double(0x7ff8000000000000ll)};
  return {2, -14, 57344.0, infinity()};
}

__device__ int exponent(double x, const Small& format) {
  return x == 0.0 ? format.least : max(ilogb(x), format.least);
}

// The nearest number of the format, the even one of two.
__device__ double rounded(double x, const Small& format) {
  if (isnan(x)) return x;
  if (!finite(x)) return copysign(format.beyond, x);
  const double step = scalbn(1.0, exponent(x, format) - format.mantissa);
  const double near = rint(x / step) * step;
  return fabs(near) > format.most ? copysign(format.beyond, x) : near;
}

// A number by its bits. Those of E5M2 are the upper half of a float16; E4M3 has another bias.
__device__ double small_value(unsigned char bits, int type) {
  if (type == FLOAT8_E5M2) return __half2float(__ushort_as_half(bits << 8));
  if ((bits & 0x7f) == 0x7f) return __longlong_as_double(0x7ff8000000000000ll);
  const double size = 256.0 * __half2float(__ushort_as_half((bits & 0x7f) << 7));
  return bits & 0x80 ? -size : size;
}

struct Value {
  bool whole;    // an integer
  Int integer;   // its value, modulo 2^64
  double real;   // the value as a double
};

__device__ Value whole(Int x) { return {true, x, double(x)}; }
__device__ Value real(double x) { return {false, 0, x}; }

__device__ Value value(const void* array, Int at, int type) {
  switch (type) {
    case BOOL: return whole(static_cast<const unsigned char*>(array)[at] != 0);
    case INT8: return whole(static_cast<const signed char*>(array)[at]);
    case INT16: return whole(static_cast<const short*>(array)[at]);
    case INT32: return whole(static_cast<const int*>(array)[at]);
    case INT64: return whole(static_cast<const Int*>(array)[at]);
    case UINT8: return whole(static_cast<const unsigned char*>(array)[at]);
    case UINT16: return whole(static_cast<const unsigned short*>(array)[at]);
    case UINT32: return whole(static_cast<const unsigned*>(array)[at]);
    case UINT64: {
      const Word x = static_cast<const Word*>(array)[at];
      return {true, Int(x), double(x)};
    }
    case FLOAT16: return real(__half2float(static_cast<const __half*>(array)[at]));
    case BFLOAT16: return real(__bfloat162float(static_cast<const __nv_bfloat16*>(array)[at]));
    case FLOAT32: return real(static_cast<const float*>(array)[at]);
    case FLOAT8_E4M3:
    case FLOAT8_E5M2: return real(small_value(static_cast<const unsigned char*>(array)[at], type));
    default: return real(static_cast<const double*>(array)[at]);
  }
}

__device__ int bytes_of(int type) {
  switch (type) {
    case BOOL: case INT8: case UINT8: case FLOAT8_E4M3: case FLOAT8_E5M2: return 1;
    case INT16: case UINT16: case FLOAT16: case BFLOAT16: return 2;
    case INT32: case UINT32: case FLOAT32: return 4;
    default: return 8;
  }
}

// The place of x, rounded to a type, among the representable values of that type, -0 beside 0.
__device__ double place(double x, int type) {
  Word bits;
  int width;
  switch (type) {
    case FLOAT16: bits = __half_as_ushort(__double2half(x)), width = 16; break;
    case BFLOAT16: bits = __bfloat16_as_ushort(__double2bfloat16(x)), width = 16; break;
    case FLOAT32: bits = __float_as_uint(float(x)), width = 32; break;
    case FLOAT8_E4M3:
    case FLOAT8_E5M2: {
      const Small format = small(type);
      const double near = rounded(x, format);
      const int e = exponent(near, format), m = format.mantissa;
      const double rank = scalbn(double(e - format.least), m) + scalbn(fabs(near), m - e);
      return copysign(rank, near);
    }
    default: bits = __double_as_longlong(x), width = 64;
  }
  const Word sign = Word(1) << (width - 1);
  return bits & sign ? -double(bits & ~sign) : double(bits);
}

__device__ double rounded(double x, int type) {
  switch (type) {
    case FLOAT16: return __half2float(__double2half(x));
    case BFLOAT16: return __bfloat162float(__double2bfloat16(x));
    case FLOAT32: return float(x);
    case FLOAT8_E4M3:
    case FLOAT8_E5M2: return rounded(x, small(type));
    default: return x;
  }
}

// A set, and the places from which its elements are taken; where they are nudged, a key.
struct Own {
  Int set;
  Word first, second;
};

// How a buffer is varied: see workers/variations.py.
struct Recipe {
  Word mask, least, span, infinity, most;
  double lowest, highest;
};

// Writes a buffer of the image to a set as the recipe says.
template <typename T>
__device__ void vary(unsigned char* set, const unsigned char* image, Int bytes, int type, const Own& own,
                     const Recipe& how) {
  constexpr T sign = T(T(1) << (8 * sizeof(T) - 1));
  const Int stride = Int(gridDim.x) * blockDim.x, count = bytes / Int(sizeof(T));
  const T* from = reinterpret_cast<const T*>(image);
  T* to = reinterpret_cast<T*>(set);
  for (Int i = Int(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    if (how.infinity) {
      const T word = from[i], magnitude = T(word & T(~sign));
      T moved = T(magnitude + 1 + factor(own.first, i) % how.most);
      if (moved >= how.infinity) moved = T(magnitude - how.most);
      to[i] = !magnitude || magnitude >= how.infinity ? word : T(moved | (word & sign));
      continue;
    }
    const T first = from[(i + count - Int(own.first)) % count];
    const T second = from[(i + count - Int(own.second)) % count], least = T(how.least);
    if (how.span) {
      to[i] = T((Word(T(first - least)) + Word(T(second - least))) % how.span + how.least);
      continue;
    }
    to[i] = T((first & T(~how.mask)) | (second & T(how.mask)));
    const double found = value(to, i, type).real;
    if (how.mask && !(found >= how.lowest && found <= how.highest)) to[i] = first;
  }
}

// Writes what follows from a buffer of the image to that buffer of other sets; sizes are in bytes.
extern "C" __global__ void vary_sets(unsigned char* sets, const unsigned char* image, Int set_bytes,
                                     Int offset, Int bytes, Int type, const Own* own, Word mask,
                                     Word least, Word span, Word infinity, Word most, double lowest,
                                     double highest) {
  const Recipe how = {mask, least, span, infinity, most, lowest, highest};
  const Own& mine = own[blockIdx.y];
  unsigned char* set = sets + mine.set * set_bytes + offset;
  image += offset;
  switch (bytes_of(type)) {
    case 1: return vary<unsigned char>(set, image, bytes, type, mine, how);
    case 2: return vary<unsigned short>(set, image, bytes, type, mine, how);
    case 4: return vary<unsigned>(set, image, bytes, type, mine, how);
    default: return vary<Word>(set, image, bytes, type, mine, how);
  }
}

__device__ bool same(const Value& got, const Value& want) {
  if (got.whole && want.whole) return got.integer == want.integer;
  return got.real == want.real || (isnan(got.real) && isnan(want.real));
}

// Distance divided by bound, infinite where it must fail whatever the bound; never NaN.
// A close element's own bound counts instead of rtol and atol if it has one.
__device__ double error_of(const Value& got, const Value& want, int type, int mode, double rtol,
                           double atol, double ulp, const double* own) {
  if (mode == EXACT) return same(got, want) ? 0.0 : infinity();
  if (mode == ULP) {
    const double goal = rounded(want.real, type);
    double steps;
    if (got.whole) {
      steps = fabs(got.real - want.real);
    } else if (isnan(got.real) || isnan(goal)) {
      steps = isnan(got.real) && isnan(goal) ? 0.0 : infinity();
    } else if (!finite(got.real) || !finite(goal)) {
      steps = got.real == goal ? 0.0 : infinity();
    } else {
      steps = fabs(place(got.real, type) - place(goal, type));
    }
    const double error = steps / fmax(ulp, 1.0);
    return steps <= ulp ? error : fmax(error, 1.0 + 1e-9);
  }
  if (got.whole && want.whole && rtol + atol == 0.0) return same(got, want) ? 0.0 : infinity();
  if (!finite(got.real) || !finite(want.real)) return same(got, want) ? 0.0 : infinity();
  const double bound = own ? *own : __dadd_rn(atol, __dmul_rn(rtol, fabs(want.real)));
  const double distance = fabs(got.real - want.real);
  if (distance <= bound) return distance / fmax(bound, 1e-300);
  return bound > 0.0 ? distance / bound : infinity();
}

__device__ void merge(Worst& into, const Worst& other) {
  into.failures += other.failures;
  into.unwritten += other.unwritten;
  into.poisoned += other.poisoned;
  into.first = min(into.first, other.first);
  if (other.error > into.error || (other.error == into.error && other.index < into.index)) {
    into.error = other.error;
    into.got = other.got;
    into.want = other.want;
    into.index = other.index;
  }
}

// Compares count elements; each block leaves its own worst. poison < 0: not poisoned before.
extern "C" __global__ void __launch_bounds__(THREADS)
    compare(const unsigned char* got, int got_type, const unsigned char* want, int want_type,
            Int count, int mode, double rtol, double atol, double ulp, const double* bounds, int poison,
            Worst* worst) {
  __shared__ Worst shared[THREADS];
  Worst own = {-1.0, 0.0, 0.0, 0x7fffffffffffffffll, count, 0, 0, 0};
  const Int stride = Int(gridDim.x) * THREADS;
  for (Int i = Int(blockIdx.x) * THREADS + threadIdx.x; i < count; i += stride) {
    const Value x = value(got, i, got_type);
    const Value r = value(want, i, want_type);
    const double* limit = bounds ? bounds + i : nullptr;
    const double error = error_of(x, r, got_type, mode, rtol, atol, ulp, limit);
    const bool wrong = !(error <= 1.0);
    own.failures += wrong;
    if (wrong) own.first = min(own.first, i);
    if (poison >= 0) {
      const int bytes = bytes_of(got_type);
      bool untouched = true;
      for (int k = 0; k < bytes; ++k) untouched &= got[i * bytes + k] == poison;
      own.poisoned += untouched;
      own.unwritten += untouched && wrong;
    }
    if (error > own.error) {
      own.error = error;
      own.got = x.real;
      own.want = r.real;
      own.index = i;
    }
  }
  shared[threadIdx.x] = own;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) merge(shared[threadIdx.x], shared[threadIdx.x + half]);
  }
  if (threadIdx.x == 0) worst[blockIdx.x] = shared[0];
}

// Reads through memory that no candidate uses, so that the cache forgets what was written before.
extern "C" __global__ void sweep(const uint4* memory, Int words, unsigned* sink) {
  const Int stride = Int(gridDim.x) * blockDim.x;
  unsigned sum = 0;
  for (Int i = Int(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += stride) {
    const uint4 word = memory[i];
    sum += word.x ^ word.y ^ word.z ^ word.w;
  }
  if (sum == 0x12345678u) *sink = sum;
}

// Keeps every thread busy for so long; sink is written only to keep the work from being dropped.
extern "C" __global__ void busy(Word duration, float* sink) {
  const Word end = nanoseconds() + duration;
  float x = threadIdx.x;
  while (nanoseconds() < end) {
#pragma unroll
    for (int k = 0; k < 64; ++k) x = x * 0.999f + 1.0f;
  }
  if (x < 0.0f) *sink = x;
}

// Holds what is queued behind it until the host says go, or for so long at most.
extern "C" __global__ void hold(const volatile int* go, Word most) {
  const Word end = nanoseconds() + most;
  while (threadIdx.x == 0 && !*go && nanoseconds() < end) {}
}
