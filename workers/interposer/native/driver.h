/* The part of the CUDA driver's interface that the interposer uses, declared without CUDA headers.
 *
 * Layouts and numbers are those of the driver's stable binary interface (CUDA 12 and 13).
 */
#ifndef KW_DRIVER_H
#define KW_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

enum { CUDA_SUCCESS = 0, CUDA_ERROR_NOT_FOUND = 500 };
enum { CU_CAPTURE_MODE_RELAXED = 2 };
enum { CU_EVENT_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
enum { CU_GET_PROC_PER_THREAD_STREAM = 2 };
enum { CU_NODE_KERNEL = 0, CU_NODE_GRAPH = 4 };
enum {
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
};
enum {
    CU_FUNC_MAX_THREADS = 0,
    CU_FUNC_SHARED_BYTES = 1,
    CU_FUNC_CONST_BYTES = 2,
    CU_FUNC_LOCAL_BYTES = 3,
    CU_FUNC_REGISTERS = 4,
    CU_FUNC_MAX_DYNAMIC_SHARED_BYTES = 8,
};
enum {
    CU_DEVICE_MAX_SHARED_BYTES_OPTIN = 97,
    CU_DEVICE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_CAPABILITY_MINOR = 76,
};
enum {
    CU_POINTER_MEMORY_TYPE = 2,
    CU_POINTER_RANGE_START = 11,
    CU_POINTER_RANGE_SIZE = 12,
};

#define CU_LAUNCH_PARAM_END ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

typedef union {
    char bytes[64];
    int cooperative;
    unsigned cluster[3];
} CUlaunchAttributeValue;

typedef struct {
    int id;
    int padding;
    CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct {
    unsigned grid[3], block[3], shared_bytes;
    CUstream stream;
    CUlaunchAttribute *attributes;
    unsigned attribute_count;
} CUlaunchConfig;

typedef struct {
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    void **parameters;
    void **extra;
    CUkernel kernel;
    CUcontext context;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct {
    unsigned char from_port, to_port, type, reserved[5];
} CUgraphEdgeData;

/* Functions that the interposer calls, by their exported names. */
#define KW_DRIVER_FUNCTIONS(F) \
    F(cuDriverGetVersion, (int *)) \
    F(cuCtxGetCurrent, (CUcontext *)) \
    F(cuCtxGetDevice, (CUdevice *)) \
    F(cuDeviceGetName, (char *, int, CUdevice)) \
    F(cuDeviceGetAttribute, (int *, int, CUdevice)) \
    F(cuFuncGetName, (const char **, CUfunction)) \
    F(cuFuncGetModule, (CUmodule *, CUfunction)) \
    F(cuFuncGetParamInfo, (CUfunction, size_t, size_t *, size_t *)) \
    F(cuFuncGetAttribute, (int *, int, CUfunction)) \
    F(cuFuncSetAttribute, (CUfunction, int, int)) \
    F(cuKernelGetName, (const char **, CUkernel)) \
    F(cuKernelGetLibrary, (CUlibrary *, CUkernel)) \
    F(cuKernelGetFunction, (CUfunction *, CUkernel)) \
    F(cuKernelGetParamInfo, (CUkernel, size_t, size_t *, size_t *)) \
    F(cuLibraryGetModule, (CUmodule *, CUlibrary)) \
    F(cuModuleLoadData, (CUmodule *, const void *)) \
    F(cuModuleGetFunction, (CUfunction *, CUmodule, const char *)) \
    F(cuPointerGetAttribute, (void *, int, CUdeviceptr)) \
    F(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr)) \
    F(cuMemRetainAllocationHandle, (uint64_t *, void *)) \
    F(cuMemRelease, (uint64_t)) \
    F(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream)) \
    F(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream)) \
    F(cuStreamCreate, (CUstream *, unsigned)) \
    F(cuStreamDestroy_v2, (CUstream)) \
    F(cuStreamSynchronize, (CUstream)) \
    F(cuStreamIsCapturing, (CUstream, int *)) \
    F(cuThreadExchangeStreamCaptureMode, (int *)) \
    F(cuEventCreate, (CUevent *, unsigned)) \
    F(cuEventRecord, (CUevent, CUstream)) \
    F(cuEventQuery, (CUevent)) \
    F(cuEventElapsedTime, (float *, CUevent, CUevent)) \
    F(cuEventDestroy_v2, (CUevent)) \
    F(cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **)) \
    F(cuGraphClone, (CUgraph *, CUgraph)) \
    F(cuGraphDestroy, (CUgraph)) \
    F(cuGraphDestroyNode, (CUgraphNode)) \
    F(cuGraphNodeFindInClone, (CUgraphNode *, CUgraphNode, CUgraph)) \
    F(cuGraphGetNodes, (CUgraph, CUgraphNode *, size_t *)) \
    F(cuGraphNodeGetType, (CUgraphNode, int *)) \
    F(cuGraphGetEdges_v2, (CUgraph, CUgraphNode *, CUgraphNode *, CUgraphEdgeData *, size_t *)) \
    F(cuGraphAddEventRecordNode, \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent)) \
    F(cuGraphAddDependencies_v2, \
      (CUgraph, const CUgraphNode *, const CUgraphNode *, const CUgraphEdgeData *, size_t)) \
    F(cuGraphChildGraphNodeGetGraph, (CUgraphNode, CUgraph *)) \
    F(cuGraphKernelNodeGetParams_v2, (CUgraphNode, CUDA_KERNEL_NODE_PARAMS *)) \
    F(cuGraphKernelNodeGetAttribute, (CUgraphNode, int, CUlaunchAttributeValue *)) \
    F(cuGraphKernelNodeSetParams_v2, (CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *)) \
    F(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long)) \
    F(cuGraphLaunch, (CUgraphExec, CUstream)) \
    F(cuGraphExecDestroy, (CUgraphExec))

typedef struct {
#define KW_FIELD(name, arguments) CUresult (*name) arguments;
    KW_DRIVER_FUNCTIONS(KW_FIELD)
#undef KW_FIELD
} kw_driver_table;

/* The driver's own functions; NULL where this driver lacks one. */
extern kw_driver_table kw_driver;

/* Calls the driver's own function, or yields CUDA_ERROR_NOT_FOUND where it lacks it. */
#define KW_CU(name, ...) (kw_driver.name ? kw_driver.name(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND)

/* Fills kw_driver from the libcuda that the application loaded; 0 if it loaded none. */
int kw_driver_open(void);

/* The exported driver function `name`, or NULL. */
void *kw_driver_symbol(const char *name);

#endif
