/* The driver calls of an exported example, all of which succeed and do nothing. */
#include <stdio.h>

#define NOTHING(name) int name(void) { return 0; }
NOTHING(cuInit)
NOTHING(cuDeviceGet)
NOTHING(cuDevicePrimaryCtxRetain)
NOTHING(cuDevicePrimaryCtxRelease_v2)
NOTHING(cuCtxSetCurrent)
NOTHING(cuStreamCreate)
NOTHING(cuStreamDestroy_v2)
NOTHING(cuStreamSynchronize)
NOTHING(cuMemAlloc_v2)
NOTHING(cuMemFree_v2)
NOTHING(cuMemcpyHtoD_v2)
NOTHING(cuMemcpyDtoH_v2)
NOTHING(cuMemsetD8Async)
NOTHING(cuModuleLoadData)
NOTHING(cuModuleUnload)
NOTHING(cuFuncSetAttribute)
NOTHING(cuLaunchKernelEx)

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)function;
    (void)module;
    printf("function %s\n", name);
    return 0;
}
