/* The intercepted functions, and the state that they share.
 *
 * Each calls the driver's own function exactly once, with what the application gave or, when a
 * kernel is substituted, with what replaces it.
 */
#define _GNU_SOURCE
#include "hooks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "graphs.h"
#include "images.h"
#include "launches.h"
#include "lookup.h"
#include "memory.h"
#include "record.h"
#include "timing.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int inside; /* in a call of our own, which is not to be recorded */
static enum { UNKNOWN, ON, OFF } state;

static void at_exit(void)
{
    if (state == ON && kw_enter()) {
        kw_timing_collect(200);
        kw_leave();
    }
}

static void in_forked_child(void)
{
    pthread_mutex_init(&lock, NULL);
    inside = 0;
    kw_record_forget();
    kw_kernels_forget();
    kw_images_forget();
    kw_capture_forget();
    kw_graphs_forget();
    kw_timing_forget();
    state = UNKNOWN;
}

static void start(void)
{
    static int registered;
    state = OFF;
    if (!kw_driver_open() || !kw_record_open())
        return;
    state = ON;
    if (!registered) {
        registered = 1;
        atexit(at_exit);
        pthread_atfork(NULL, NULL, in_forked_child);
    }
}

int kw_enter(void)
{
    if (inside || state == OFF)
        return 0;
    inside = 1;
    pthread_mutex_lock(&lock);
    if (state == UNKNOWN)
        start();
    if (state == ON)
        return 1;
    kw_leave();
    return 0;
}

void kw_leave(void)
{
    pthread_mutex_unlock(&lock);
    inside = 0;
}

void kw_pause(void)
{
    pthread_mutex_unlock(&lock);
}

void kw_continue(void)
{
    pthread_mutex_lock(&lock);
}

int kw_is_recording(CUstream stream)
{
    int status = 0;
    return KW_CU(cuStreamIsCapturing, stream, &status) || status;
}

/* The driver's own function, looked up at the first call. */
#define REAL(name) \
    static typeof(&name) real; \
    if (!real) \
        *(void **)&real = kw_driver_symbol(#name); \
    if (!real) \
        return CUDA_ERROR_NOT_FOUND

#define PARAMETERS \
    CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
        unsigned shared, CUstream stream, void **parameters
#define LAUNCH(per_thread) \
    {.function = f, .grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared_bytes = shared, \
     .stream = (per_thread) && !stream ? CU_STREAM_PER_THREAD : stream, .parameters = parameters}

static CUresult call_plain(const kw_launch *l, void *real)
{
    return ((CUresult(*)(PARAMETERS, void **))real)(
        l->function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
        l->shared_bytes, l->stream, l->parameters, l->extra);
}

static CUresult call_cooperative(const kw_launch *l, void *real)
{
    return ((CUresult(*)(PARAMETERS))real)(l->function, l->grid[0], l->grid[1], l->grid[2],
                                           l->block[0], l->block[1], l->block[2], l->shared_bytes,
                                           l->stream, l->parameters);
}

static CUresult call_ex(const kw_launch *l, void *real)
{
    CUlaunchConfig config = {.shared_bytes = l->shared_bytes,
                             .stream = l->stream,
                             .attributes = l->attributes,
                             .attribute_count = l->attribute_count};
    memcpy(config.grid, l->grid, sizeof config.grid);
    memcpy(config.block, l->block, sizeof config.block);
    return ((CUresult(*)(const CUlaunchConfig *, CUfunction, void **, void **))real)(
        &config, l->function, l->parameters, l->extra);
}

static void read_attributes(kw_launch *launch)
{
    for (unsigned i = 0; i < launch->attribute_count; i++) {
        const CUlaunchAttribute *attribute = &launch->attributes[i];
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            launch->cooperative = attribute->value.cooperative != 0;
        else if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            memcpy(launch->cluster, attribute->value.cluster, sizeof launch->cluster);
    }
}

#define PLAIN(name, per_thread) \
    KW_EXPORT CUresult name(PARAMETERS, void **extra) \
    { \
        REAL(name); \
        kw_launch launch = LAUNCH(per_thread); \
        launch.extra = extra; \
        return kw_launched(&launch, call_plain, (void *)real); \
    }
#define COOPERATIVE(name, per_thread) \
    KW_EXPORT CUresult name(PARAMETERS) \
    { \
        REAL(name); \
        kw_launch launch = LAUNCH(per_thread); \
        launch.cooperative = 1; \
        return kw_launched(&launch, call_cooperative, (void *)real); \
    }
#define EX(name, per_thread) \
    KW_EXPORT CUresult name(const CUlaunchConfig *config, CUfunction function, void **parameters, \
                            void **extra) \
    { \
        REAL(name); \
        if (!config) \
            return real(config, function, parameters, extra); \
        kw_launch launch = {.function = function, \
                            .shared_bytes = config->shared_bytes, \
                            .stream = config->stream, \
                            .parameters = parameters, \
                            .extra = extra, \
                            .attributes = config->attributes, \
                            .attribute_count = config->attribute_count}; \
        memcpy(launch.grid, config->grid, sizeof launch.grid); \
        memcpy(launch.block, config->block, sizeof launch.block); \
        if ((per_thread) && !launch.stream) \
            launch.stream = CU_STREAM_PER_THREAD; \
        read_attributes(&launch); \
        return kw_launched(&launch, call_ex, (void *)real); \
    }

PLAIN(cuLaunchKernel, 0)
PLAIN(cuLaunchKernel_ptsz, 1)
COOPERATIVE(cuLaunchCooperativeKernel, 0)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz, 1)
EX(cuLaunchKernelEx, 0)
EX(cuLaunchKernelEx_ptsz, 1)

/* A function whose effect is noted after the driver's own has succeeded. */
#define AFTER(name, arguments, values, effect) \
    KW_EXPORT CUresult name arguments \
    { \
        REAL(name); \
        CUresult result = real values; \
        if (result == CUDA_SUCCESS && kw_enter()) { \
            effect; \
            kw_leave(); \
        } \
        return result; \
    }
/* A function whose effect is noted before. */
#define BEFORE(name, arguments, values, effect) \
    KW_EXPORT CUresult name arguments \
    { \
        REAL(name); \
        if (kw_enter()) { \
            effect; \
            kw_leave(); \
        } \
        return real values; \
    }

AFTER(cuModuleLoad, (CUmodule * module, const char *path), (module, path),
      kw_image_keep_file(*module, path))
AFTER(cuModuleLoadData, (CUmodule * module, const void *image), (module, image),
      kw_image_keep(*module, image))
AFTER(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image),
      kw_image_keep(*module, image))
AFTER(cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned n, int *o, void **v),
      (module, image, n, o, v), kw_image_keep(*module, image))
AFTER(cuLibraryLoadData,
      (CUlibrary * library, const void *image, int *a, void **b, unsigned c, int *d, void **e,
       unsigned f),
      (library, image, a, b, c, d, e, f), kw_image_keep(*library, image))
AFTER(cuLibraryLoadFromFile,
      (CUlibrary * library, const char *path, int *a, void **b, unsigned c, int *d, void **e,
       unsigned f),
      (library, path, a, b, c, d, e, f), kw_image_keep_file(*library, path))
AFTER(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name),
      (kernel, library, name), kw_kernel_is_library_kernel(*kernel))
BEFORE(cuModuleUnload, (CUmodule module), (module),
       (kw_image_unloaded(module), kw_kernels_forget_handles()))
BEFORE(cuLibraryUnload, (CUlibrary library), (library),
       (kw_image_unloaded(library), kw_kernels_forget_handles()))

AFTER(cuTexObjectCreate, (uint64_t * handle, const void *a, const void *b, const void *c),
      (handle, a, b, c), kw_capture_saw_texture(*handle))
AFTER(cuSurfObjectCreate, (uint64_t * handle, const void *a), (handle, a),
      kw_capture_saw_texture(*handle))
AFTER(cuTensorMapEncodeTiled,
      (void *map, int type, unsigned rank, void *address, const uint64_t *a, const uint64_t *b,
       const unsigned *c, const unsigned *d, int e, int f, int g, int h),
      (map, type, rank, address, a, b, c, d, e, f, g, h), kw_capture_saw_tensor_map(map))

AFTER(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
      (exec, graph, flags), kw_graph_instantiated(*exec, graph))
AFTER(cuGraphInstantiateWithParams, (CUgraphExec * exec, CUgraph graph, void *params),
      (exec, graph, params), kw_graph_instantiated(*exec, graph))
AFTER(cuGraphInstantiateWithParams_ptsz, (CUgraphExec * exec, CUgraph graph, void *params),
      (exec, graph, params), kw_graph_instantiated(*exec, graph))
AFTER(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, void *info), (exec, graph, info),
      kw_graph_updated(exec, graph))
AFTER(cuGraphExecKernelNodeSetParams_v2,
      (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params),
      (exec, node, params), kw_graph_node_set(exec, node, params))
AFTER(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, void *params),
      (exec, node, params), kw_graph_changed(exec))
BEFORE(cuGraphExecDestroy, (CUgraphExec exec), (exec), kw_graph_destroyed(exec))

#define GRAPH_LAUNCH(name, per_thread) \
    KW_EXPORT CUresult name(CUgraphExec exec, CUstream stream) \
    { \
        CUresult result; \
        CUstream own = (per_thread) && !stream ? CU_STREAM_PER_THREAD : stream; \
        REAL(name); \
        if (kw_enter()) { \
            int launched = kw_graph_launched(exec, own, &result); \
            kw_leave(); \
            if (launched) \
                return result; \
        } \
        return real(exec, stream); \
    }
GRAPH_LAUNCH(cuGraphLaunch, 0)
GRAPH_LAUNCH(cuGraphLaunch_ptsz, 1)

KW_EXPORT CUresult cuGetProcAddress(const char *, void **, int, uint64_t);
KW_EXPORT CUresult cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

void *kw_replacement(const char *name)
{
#define HOOK(name) {#name, (void *)name}
    static const struct {
        const char *name;
        void *function;
    } hooks[] = {
        HOOK(cuGetProcAddress),
        HOOK(cuGetProcAddress_v2),
        HOOK(cuLaunchKernel),
        HOOK(cuLaunchKernel_ptsz),
        HOOK(cuLaunchKernelEx),
        HOOK(cuLaunchKernelEx_ptsz),
        HOOK(cuLaunchCooperativeKernel),
        HOOK(cuLaunchCooperativeKernel_ptsz),
        HOOK(cuModuleLoad),
        HOOK(cuModuleLoadData),
        HOOK(cuModuleLoadDataEx),
        HOOK(cuModuleLoadFatBinary),
        HOOK(cuModuleUnload),
        HOOK(cuLibraryLoadData),
        HOOK(cuLibraryLoadFromFile),
        HOOK(cuLibraryGetKernel),
        HOOK(cuLibraryUnload),
        HOOK(cuTexObjectCreate),
        HOOK(cuSurfObjectCreate),
        HOOK(cuTensorMapEncodeTiled),
        HOOK(cuGraphInstantiateWithFlags),
        HOOK(cuGraphInstantiateWithParams),
        HOOK(cuGraphInstantiateWithParams_ptsz),
        HOOK(cuGraphExecUpdate_v2),
        HOOK(cuGraphExecKernelNodeSetParams_v2),
        HOOK(cuGraphExecNodeSetParams),
        HOOK(cuGraphExecDestroy),
        HOOK(cuGraphLaunch),
        HOOK(cuGraphLaunch_ptsz),
    };
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (!strcmp(hooks[i].name, name))
            return hooks[i].function;
    return NULL;
}
