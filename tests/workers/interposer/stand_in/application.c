/* An application of the stand-in driver: `application KERNELS SCENARIO…`.
 *
 * Finds the driver like a static cudart (dlopen, dlsym, cuGetProcAddress), like a program that
 * calls dlsym for each function (DLSYM), or by linking it (LINKED). Prints a checksum.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

enum { ELEMENTS = 60000, REFUSED_GRID = 77777 };

#define FUNCTIONS(F) \
    F(cuMemAlloc, _v2, (CUdeviceptr *, size_t)) \
    F(cuMemcpyHtoD, _v2, (CUdeviceptr, const void *, size_t)) \
    F(cuMemcpyDtoH, _v2, (void *, CUdeviceptr, size_t)) \
    F(cuModuleLoadData, , (CUmodule *, const void *)) \
    F(cuModuleGetFunction, , (CUfunction *, CUmodule, const char *)) \
    F(cuLibraryLoadData, , \
      (CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned)) \
    F(cuLibraryGetKernel, , (CUkernel *, CUlibrary, const char *)) \
    F(cuLibraryEnumerateKernels, , (CUkernel *, unsigned, CUlibrary)) \
    F(cuKernelGetFunction, , (CUfunction *, CUkernel)) \
    F(cuTexObjectCreate, , (uint64_t *, const void *, const void *, const void *)) \
    F(cuLaunchKernel, , \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **)) \
    F(cuLaunchKernelEx, , (const CUlaunchConfig *, CUfunction, void **, void **)) \
    F(cuStreamCreate, , (CUstream *, unsigned)) \
    F(cuStreamBeginCapture, _v2, (CUstream, int)) \
    F(cuStreamEndCapture, , (CUstream, CUgraph *)) \
    F(cuGraphCreate, , (CUgraph *, unsigned)) \
    F(cuGraphAddKernelNode, _v2, \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS *)) \
    F(cuGraphInstantiate, WithFlags, (CUgraphExec *, CUgraph, unsigned long long)) \
    F(cuGraphExecKernelNodeSetParams, _v2, \
      (CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *)) \
    F(cuGraphLaunch, , (CUgraphExec, CUstream)) \
    F(cuGraphDestroy, , (CUgraph))

#ifdef LINKED
#define DECLARE(name, suffix, arguments) extern CUresult name##suffix arguments;
FUNCTIONS(DECLARE)
#endif
#define POINTER(name, suffix, arguments) CUresult (*name) arguments;
static struct {
    FUNCTIONS(POINTER)
} cu;

static void check(CUresult result, const char *what)
{
    if (result) {
        printf("%s: error %d\n", what, result);
        exit(2);
    }
}
#define CU(name, ...) check(cu.name(__VA_ARGS__), #name)

static void find_driver(void)
{
#ifdef LINKED
#define FIND(name, suffix, arguments) cu.name = name##suffix;
#else
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!handle)
        exit(2);
#ifdef DLSYM
#define FIND(name, suffix, arguments) *(void **)&cu.name = dlsym(handle, #name #suffix);
#else
    const uint64_t flags = getenv("PER_THREAD_STREAM") ? CU_GET_PROC_PER_THREAD_STREAM : 0;
    CUresult (*first)(const char *, void **, int, uint64_t, int *);
    CUresult (*get)(const char *, void **, int, uint64_t, int *);
    *(void **)&first = dlsym(handle, "cuGetProcAddress_v2");
    check(first("cuGetProcAddress", (void **)&get, 12040, 0, NULL), "cuGetProcAddress");
#define FIND(name, suffix, arguments) \
    check(get(#name, (void **)&cu.name, 12040, flags, NULL), #name);
#endif
#endif
    FUNCTIONS(FIND)
}

static CUfunction silu, scale, gather, sample;
static CUdeviceptr in, out;
static float host[ELEMENTS];
static double sum;

static void *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    void *bytes = malloc(*size);
    if (fread(bytes, 1, *size, file) != *size)
        exit(2);
    fclose(file);
    return bytes;
}

/* As a static cudart: a fatbin in a wrapper, a library, and functions of its kernels. */
static void load_as_library(const void *cubin, size_t size)
{
    CUlibrary library;
    CUkernel kernels[2];
    unsigned char *fatbin = calloc(1, 16 + size);
    *(uint32_t *)fatbin = 0xba55ed50;
    *(uint16_t *)(fatbin + 4) = 1;
    *(uint16_t *)(fatbin + 6) = 16;
    *(uint64_t *)(fatbin + 8) = size;
    memcpy(fatbin + 16, cubin, size);
    struct {
        uint32_t magic, version;
        const void *data, *unused;
    } *wrapper = calloc(1, sizeof *wrapper);
    wrapper->magic = 0x466243b1;
    wrapper->version = 1;
    wrapper->data = fatbin;
    CU(cuLibraryLoadData, &library, wrapper, NULL, NULL, 0, NULL, NULL, 0);
    if (getenv("ENUMERATED"))
        CU(cuLibraryEnumerateKernels, kernels, 2, library);
    else {
        CU(cuLibraryGetKernel, &kernels[0], library, "_Z4siluPKfPfi");
        CU(cuLibraryGetKernel, &kernels[1], library, "_Z5scale3boxfi");
    }
    silu = (CUfunction)kernels[0]; /* launched as it is */
    CU(cuKernelGetFunction, &scale, kernels[1]);
}

static void load_as_module(const void *cubin)
{
    CUmodule module;
    CU(cuModuleLoadData, &module, cubin);
    CU(cuModuleGetFunction, &silu, module, "_Z4siluPKfPfi");
    CU(cuModuleGetFunction, &scale, module, "_Z5scale3boxfi");
    CU(cuModuleGetFunction, &gather, module, "gather");
    CU(cuModuleGetFunction, &sample, module, "sample");
}

static void fill(int n, int seed)
{
    for (int i = 0; i < n; i++)
        host[i] = sinf((float)(i + seed)) * 4;
    CU(cuMemcpyHtoD, in, host, (size_t)n * 4);
}

static void add_results(int n)
{
    CU(cuMemcpyDtoH, host, out, (size_t)n * 4);
    for (int i = 0; i < n; i++)
        sum += host[i] * (1 + i % 7);
}

static unsigned blocks(int n, int block) { return (unsigned)((n + block - 1) / block); }

static void launch_silu(int n, CUstream stream)
{
    void *params[] = {&in, &out, &n};
    CU(cuLaunchKernel, silu, blocks(n, 256), 1, 1, 256, 1, 1, 0, stream, params, NULL);
}

static void launch_scale(int n, CUstream stream)
{
    struct {
        CUdeviceptr out;
        long long unused;
    } box = {out, 0};
    float factor = 0.5f;
    void *params[] = {&box, &factor, &n};
    CUlaunchConfig config = {
        .grid = {blocks(n, 128), 1, 1}, .block = {128, 1, 1}, .stream = stream};
    CU(cuLaunchKernelEx, &config, scale, params, NULL);
}

/* 5 launches of 1000 elements, 3 of 4096 and 2 of 50000; each silu, then scale. */
static void eager(void)
{
    static const int sizes[] = {1000, 4096, 50000}, times[] = {5, 3, 2};
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < times[s]; i++) {
            fill(sizes[s], s + i);
            launch_silu(sizes[s], NULL);
            launch_scale(sizes[s], NULL);
            add_results(sizes[s]);
        }
}

/* The same launch with its arguments in one piece of memory. */
static void packed(void)
{
    struct {
        CUdeviceptr in, out;
        int n;
    } arguments = {in, out, 777};
    size_t size = 20;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, (void *)2, &size,
                     CU_LAUNCH_PARAM_END};
    fill(777, 1);
    CU(cuLaunchKernel, silu, 4, 1, 1, 256, 1, 1, 0, NULL, NULL, extra);
    add_results(777);
}

/* A graph of explicit nodes: scale, silu, scale; 7000 elements, launched 4 times. */
static void explicit_graph(int updated)
{
    int n = 7000, fewer = 6000;
    float factor = 1.25f;
    struct {
        CUdeviceptr out;
        long long unused;
    } before = {in, 0}, after = {out, 0};
    void *first[] = {&before, &factor, &n}, *second[] = {&in, &out, &n};
    void *third[] = {&after, &factor, &n}, *changed[] = {&in, &out, &fewer};
    CUDA_KERNEL_NODE_PARAMS a = {scale, {blocks(n, 128), 1, 1}, {128, 1, 1}, 0, first, 0, 0, 0};
    CUDA_KERNEL_NODE_PARAMS b = {silu, {blocks(n, 256), 1, 1}, {256, 1, 1}, 0, second, 0, 0, 0};
    CUDA_KERNEL_NODE_PARAMS c = {scale, {blocks(n, 128), 1, 1}, {128, 1, 1}, 0, third, 0, 0, 0};
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode nodes[3];
    fill(n, 9);
    CU(cuGraphCreate, &graph, 0);
    CU(cuGraphAddKernelNode, &nodes[0], graph, NULL, 0, &a);
    CU(cuGraphAddKernelNode, &nodes[1], graph, nodes, 1, &b);
    CU(cuGraphAddKernelNode, &nodes[2], graph, nodes + 1, 1, &c);
    CU(cuGraphInstantiate, &exec, graph, 0);
    for (int i = 0; i < 4; i++) {
        if (updated && i == 2) {
            b.parameters = changed;
            b.grid[0] = blocks(fewer, 256);
            CU(cuGraphExecKernelNodeSetParams, exec, nodes[1], &b);
        }
        CU(cuGraphLaunch, exec, NULL);
    }
    CU(cuGraphDestroy, graph);
    add_results(n);
}

/* A graph recorded from a stream: silu and scale of 5000 elements, launched 3 times. */
static void recorded_graph(void)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    fill(5000, 4);
    CU(cuStreamCreate, &stream, 1);
    CU(cuStreamBeginCapture, stream, 0);
    launch_silu(5000, stream);
    launch_scale(5000, stream);
    CU(cuStreamEndCapture, stream, &graph);
    CU(cuGraphInstantiate, &exec, graph, 0);
    CU(cuGraphDestroy, graph);
    for (int i = 0; i < 3; i++)
        CU(cuGraphLaunch, exec, stream);
    add_results(5000);
}

static void pointers_in_memory(void)
{
    CUdeviceptr rows[2] = {in, out}, table;
    fill(10, 0);
    CU(cuMemAlloc, &table, sizeof rows);
    CU(cuMemcpyHtoD, table, rows, sizeof rows);
    void *params[] = {&table, &out};
    CU(cuLaunchKernel, gather, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
    add_results(1);
}

static void texture(void)
{
    uint64_t handle;
    CU(cuTexObjectCreate, &handle, NULL, NULL, NULL);
    void *params[] = {&handle, &out};
    CU(cuLaunchKernel, sample, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
    add_results(1);
}

/* A child that launches, beside its parent. */
static void forked(void)
{
    pid_t child = fork();
    if (!child) {
        for (int i = 0; i < 4; i++)
            launch_silu(2000, NULL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void refused_launch(void)
{
    int n = 10;
    void *params[] = {&in, &out, &n};
    printf("refused: %d\n", cu.cuLaunchKernel(silu, REFUSED_GRID, 1, 1, 256, 1, 1, 0, NULL, params,
                                              NULL));
}

static void run(const char *scenario)
{
    if (!strcmp(scenario, "eager"))
        eager();
    else if (!strcmp(scenario, "packed"))
        packed();
    else if (!strcmp(scenario, "graph"))
        explicit_graph(0);
    else if (!strcmp(scenario, "updated"))
        explicit_graph(1);
    else if (!strcmp(scenario, "recorded"))
        recorded_graph();
    else if (!strcmp(scenario, "gather"))
        pointers_in_memory();
    else if (!strcmp(scenario, "texture"))
        texture();
    else if (!strcmp(scenario, "fork"))
        forked();
    else if (!strcmp(scenario, "refused"))
        refused_launch();
    else if (!strcmp(scenario, "crash"))
        abort();
    else if (!strcmp(scenario, "exit"))
        _exit(7);
    else
        exit(64);
}

int main(int argc, char **argv)
{
    CUdeviceptr pool;
    size_t size;
    if (argc < 2)
        return 64;
    find_driver();
    void *cubin = read_file(argv[1], &size);
    if (getenv("AS_LIBRARY"))
        load_as_library(cubin, size);
    else
        load_as_module(cubin);
    size = (size_t)(getenv("POOL_MIB") ? atoi(getenv("POOL_MIB")) : 1) << 20;
    CU(cuMemAlloc, &pool, size); /* one segment for all tensors, as PyTorch's allocator has it */
    in = pool + 4096;
    out = pool + size / 2;
    for (int i = 2; i < argc; i++)
        run(argv[i]);
    printf("checksum %.6f\n", sum);
    return 0;
}
