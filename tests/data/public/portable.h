// One source for OpenCL and CUDA, in the way of projects that serve both.
#ifdef __OPENCL_VERSION__
#define KERNEL __kernel
#define FUNCTION
#define GLOBAL __global
#define LOCAL __local
#define LOCAL_POINTER __local
#define RESTRICT restrict
#define LOCAL_ID ((int)get_local_id(0))
#define LOCAL_SIZE ((int)get_local_size(0))
#define GROUP_ID ((int)get_group_id(0))
#define GLOBAL_ID ((int)get_global_id(0))
#define GLOBAL_SIZE ((int)get_global_size(0))
#define LOCAL_ID_Y ((int)get_local_id(1))
#define GROUP_ID_Y ((int)get_group_id(1))
#define GLOBAL_ID_Y ((int)get_global_id(1))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define ATOMIC_ADD atomic_add
#define MIN min
#define EXP exp
#define LOG log
#define SQRT sqrt
#define RSQRT rsqrt
#define FABS fabs
#define FMAX fmax
#else
#define KERNEL extern "C" __global__
#define FUNCTION __device__
#define GLOBAL
#define LOCAL __shared__
#define LOCAL_POINTER
#define RESTRICT __restrict__
#define LOCAL_ID ((int)threadIdx.x)
#define LOCAL_SIZE ((int)blockDim.x)
#define GROUP_ID ((int)blockIdx.x)
#define GLOBAL_ID ((int)(blockIdx.x * blockDim.x + threadIdx.x))
#define GLOBAL_SIZE ((int)(gridDim.x * blockDim.x))
#define LOCAL_ID_Y ((int)threadIdx.y)
#define GROUP_ID_Y ((int)blockIdx.y)
#define GLOBAL_ID_Y ((int)(blockIdx.y * blockDim.y + threadIdx.y))
#define BARRIER __syncthreads()
#define ATOMIC_ADD atomicAdd
#define MIN min
#define EXP expf
#define LOG logf
#define SQRT sqrtf
#define RSQRT rsqrtf
#define FABS fabsf
#define FMAX fmaxf
#endif
