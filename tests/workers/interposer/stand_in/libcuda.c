/* A stand-in for libcuda.so.1: memory, modules, launches and events, without a GPU.
 *
 * Device memory is host memory, and everything is done at once. A cubin is a shared library: kernel
 * NAME in it is `void NAME(const unsigned grid[3], const unsigned block[3], void **params)`, with
 * the sizes of its parameters in `const int NAME_params[]`, ending with 0. A real cubin's kernels
 * are looked up in the library that $STAND_IN_KERNELS names.
 */
#define _GNU_SOURCE
#include "stand_in.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 4096, INVALID = 1, DRIVER = 13000 };

static struct {
    char *start;
    size_t size;
} allocations[MOST];
static int allocation_count;

struct CUctx_st {
    int used;
} context;

API cuInit(unsigned flags) { return flags; }
API cuDriverGetVersion(int *version) { return *version = DRIVER, 0; }
API cuCtxGetCurrent(CUcontext *current) { return *current = &context, 0; }
API cuCtxGetDevice(CUdevice *device) { return *device = 0, 0; }
API cuDeviceGetName(char *name, int size, CUdevice device)
{
    snprintf(name, (size_t)size, "Stand-in %d", device);
    return 0;
}
API cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    *value = attribute == 75 ? 9 : attribute == 97 ? 232448 : device;
    return 0;
}

API cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
    size_t rounded = (size + 255) / 256 * 256;
    char *start = aligned_alloc(256, rounded);
    memset(start, 0, rounded);
    allocations[allocation_count].start = start;
    allocations[allocation_count++].size = size;
    *address = (CUdeviceptr)start;
    return 0;
}

static int allocation_of(CUdeviceptr address)
{
    for (int i = 0; i < allocation_count; i++)
        if ((char *)address >= allocations[i].start &&
            (char *)address < allocations[i].start + allocations[i].size)
            return i;
    return -1;
}

API cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr address)
{
    int i = allocation_of(address);
    if (i < 0)
        return INVALID;
    *start = (CUdeviceptr)allocations[i].start;
    *size = allocations[i].size;
    return 0;
}
API cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address)
{
    if (attribute != CU_POINTER_MEMORY_TYPE || allocation_of(address) < 0)
        return INVALID;
    return *(unsigned *)value = 2, 0;
}
API cuMemRetainAllocationHandle(uint64_t *handle, void *address)
{
    return *handle = (uint64_t)address, INVALID;
}
API cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t count)
{
    memcpy((void *)to, from, count);
    return 0;
}
API cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t count)
{
    memcpy(to, (void *)from, count);
    return 0;
}
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t count, CUstream stream)
{
    return (void)stream, cuMemcpyHtoD_v2(to, from, count);
}
API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t count, CUstream stream)
{
    return (void)stream, cuMemcpyDtoH_v2(to, from, count);
}

API cuEventCreate(CUevent *event, unsigned flags)
{
    *event = calloc(1, sizeof(struct timespec));
    return (int)flags;
}
API cuEventRecord(CUevent event, CUstream stream)
{
    return (void)stream, clock_gettime(CLOCK_MONOTONIC, (struct timespec *)event);
}
API cuEventQuery(CUevent event) { return event ? 0 : INVALID; }
API cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
    struct timespec *a = (struct timespec *)begin, *b = (struct timespec *)end;
    *ms = (float)(b->tv_sec - a->tv_sec) * 1e3f + (float)(b->tv_nsec - a->tv_nsec) * 1e-6f;
    return 0;
}
API cuEventDestroy_v2(CUevent event) { return free(event), 0; }

/* Modules, libraries and kernels. */
struct CUmod_st {
    void *library;
};
typedef struct CUfunc_st function;

static void *open_bytes(const unsigned char *bytes, size_t size)
{
    enum { CUDA_MACHINE = 190 };
    if (bytes[18] == CUDA_MACHINE)
        return dlopen(getenv("STAND_IN_KERNELS"), RTLD_NOW | RTLD_LOCAL);
    char path[64];
    int file = memfd_create("cubin", 0);
    if (file < 0 || write(file, bytes, size) != (ssize_t)size)
        return NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* An ELF file ends with its section headers. */
static size_t elf_size(const unsigned char *bytes)
{
    return *(const uint64_t *)(bytes + 40) +
           (size_t)(*(const uint16_t *)(bytes + 58)) * *(const uint16_t *)(bytes + 60);
}

API cuModuleLoadData(CUmodule *module, const void *image)
{
    const unsigned char *bytes = image;
    if (*(const uint32_t *)bytes == 0x466243b1) /* the wrapper of what is compiled in */
        bytes = *(const unsigned char *const *)(bytes + 8);
    if (*(const uint32_t *)bytes == 0xba55ed50) /* a fatbin; here with one cubin */
        bytes += *(const uint16_t *)(bytes + 6);
    if (memcmp(bytes, "\177ELF", 4))
        return 200;
    *module = calloc(1, sizeof **module);
    (*module)->library = open_bytes(bytes, elf_size(bytes));
    return (*module)->library ? 0 : 200;
}
API cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *o, void **v)
{
    return (void)n, (void)o, (void)v, cuModuleLoadData(module, image);
}
API cuModuleUnload(CUmodule module) { return module ? 0 : INVALID; }
API cuLibraryLoadData(CUlibrary *library, const void *image, int *a, void **b, unsigned c, int *d,
                      void **e, unsigned f)
{
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    return cuModuleLoadData((CUmodule *)library, image);
}
/* A module of a library has a handle of its own, as in the driver. */
API cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    return *module = (CUmodule)((char *)library + 1), 0;
}

static CUresult get_function(function **found, void *owner, void *library, const char *name)
{
    char sizes[600];
    snprintf(sizes, sizeof sizes, "%s_params", name);
    function *made = calloc(1, sizeof *made);
    made->owner = owner;
    made->max_dynamic = 49152;
    snprintf(made->name, sizeof made->name, "%s", name);
    *(void **)&made->run = dlsym(library, name);
    made->sizes = dlsym(library, sizes);
    *found = made;
    return made->run && made->sizes ? 0 : CUDA_ERROR_NOT_FOUND;
}
API cuModuleGetFunction(CUfunction *f, CUmodule module, const char *name)
{
    return get_function((function **)f, module, module->library, name);
}
API cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    void *symbols = ((CUmodule)library)->library;
    CUresult result = get_function((function **)kernel, library, symbols, name);
    ((function *)*kernel)->is_kernel = 1;
    return result;
}
/* The kernels that the application of the tests uses. */
API cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library)
{
    static const char *const names[] = {"_Z4siluPKfPfi", "_Z5scale3boxfi"};
    for (unsigned i = 0; i < count && i < 2; i++)
        cuLibraryGetKernel(&kernels[i], library, names[i]);
    return count > 2;
}
API cuKernelGetFunction(CUfunction *f, CUkernel kernel)
{
    function *made = malloc(sizeof *made);
    *made = *(function *)kernel;
    made->is_kernel = 0;
    made->owner = (char *)made->owner + 1;
    return *f = made, 0;
}
API cuKernelGetName(const char **name, CUkernel kernel)
{
    return *name = ((function *)kernel)->name, 0;
}
API cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    return *library = ((function *)kernel)->owner, 0;
}
API cuFuncGetName(const char **name, CUfunction f)
{
    return *name = f->name, f->is_kernel ? INVALID : 0;
}
API cuFuncGetModule(CUmodule *module, CUfunction f) { return *module = f->owner, 0; }
API cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset, size_t *size)
{
    size_t end = 0;
    for (size_t i = 0; f->sizes[i]; i++) {
        size_t bytes = (size_t)f->sizes[i], align = bytes % 8 ? 4 : 8;
        end = (end + align - 1) / align * align;
        if (i == index)
            return *offset = end, *size = bytes, 0;
        end += bytes;
    }
    return INVALID;
}
API cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    return cuFuncGetParamInfo((CUfunction)kernel, index, offset, size);
}
API cuFuncGetAttribute(int *value, int attribute, CUfunction f)
{
    static const int values[] = {1024, 16, 0, 0, 32, 0, 0, 0};
    *value = attribute == CU_FUNC_MAX_DYNAMIC_SHARED_BYTES ? f->max_dynamic : values[attribute];
    return 0;
}
API cuFuncSetAttribute(CUfunction f, int attribute, int value)
{
    if (attribute == CU_FUNC_MAX_DYNAMIC_SHARED_BYTES)
        f->max_dynamic = value;
    return value > 232448;
}
API cuTexObjectCreate(uint64_t *handle, const void *a, const void *b, const void *c)
{
    return (void)a, (void)b, (void)c, *handle = 1 << 20, 0;
}

/* Launches, in a stream or recorded into a graph. */
API cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
    CUDA_KERNEL_NODE_PARAMS launch = {.function = f,
                                      .grid = {gx, gy, gz},
                                      .block = {bx, by, bz},
                                      .shared_bytes = shared,
                                      .parameters = params,
                                      .extra = extra};
    if (!f || (size_t)bx * by * bz > 1024 || !gx || !bx || (int)shared > f->max_dynamic ||
        gx == REFUSED_GRID)
        return INVALID;
    if (stand_in_records(stream))
        return stand_in_record(&launch);
    return stand_in_run(&launch);
}
API cuLaunchKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,
                        void **extra)
{
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}
API cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    return cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1],
                          c->block[2], c->shared_bytes, c->stream, params, extra);
}
API cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    return cuLaunchKernelEx(c, f, params, extra);
}

CUresult stand_in_run(const CUDA_KERNEL_NODE_PARAMS *launch)
{
    function *f = launch->function;
    void *pointers[64], *packed = NULL;
    for (void **extra = launch->extra; !launch->parameters && extra && *extra; extra += 2)
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            packed = extra[1];
    for (size_t i = 0, offset, size; !cuFuncGetParamInfo(f, i, &offset, &size); i++)
        pointers[i] = packed ? (char *)packed + offset : launch->parameters[i];
    f->run(launch->grid, launch->block, pointers);
    return 0;
}

API cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status)
{
    static const char *const suffixes[] = {"_v2", "WithFlags", ""};
    void *self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    char full[256];
    *found = NULL;
    if (flags & CU_GET_PROC_PER_THREAD_STREAM) {
        snprintf(full, sizeof full, "%s_ptsz", name);
        *found = dlsym(self, full);
    }
    for (int i = 0; i < 3 && !*found; i++) {
        snprintf(full, sizeof full, "%s%s", name, suffixes[i]);
        *found = dlsym(self, full);
    }
    if (status)
        *status = !*found;
    return *found && version ? 0 : CUDA_ERROR_NOT_FOUND;
}
API cuGetProcAddress(const char *name, void **found, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, found, version, flags, NULL);
}
