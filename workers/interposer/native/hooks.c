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
#include "rules.h"
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
    kw_rules_forget();
    state = UNKNOWN;
}

static void start(void)
{
    static int registered;
    state = OFF;
    if (!kw_driver_open() || !kw_record_open())
        return;
    if ((kw_settings.mode == KW_INJECT || kw_settings.mode == KW_VERIFY) && !kw_rules_read())
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
        KW_REAL(name); \
        kw_launch launch = LAUNCH(per_thread); \
        launch.extra = extra; \
        return kw_launched(&launch, call_plain, (void *)real); \
    }
#define COOPERATIVE(name, per_thread) \
    KW_EXPORT CUresult name(PARAMETERS) \
    { \
        KW_REAL(name); \
        kw_launch launch = LAUNCH(per_thread); \
        launch.cooperative = 1; \
        return kw_launched(&launch, call_cooperative, (void *)real); \
    }
#define EX(name, per_thread) \
    KW_EXPORT CUresult name(const CUlaunchConfig *config, CUfunction function, void **parameters, \
                            void **extra) \
    { \
        KW_REAL(name); \
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

KW_AFTER(cuModuleLoad, (CUmodule * module, const char *path), (module, path),
      kw_image_keep_file(*module, path))
KW_AFTER(cuModuleLoadData, (CUmodule * module, const void *image), (module, image),
      kw_image_keep(*module, image))
KW_AFTER(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image),
      kw_image_keep(*module, image))
KW_AFTER(cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned n, int *o, void **v),
      (module, image, n, o, v), kw_image_keep(*module, image))
KW_AFTER(cuLibraryLoadData,
      (CUlibrary * library, const void *image, int *a, void **b, unsigned c, int *d, void **e,
       unsigned f),
      (library, image, a, b, c, d, e, f), kw_image_keep(*library, image))
KW_AFTER(cuLibraryLoadFromFile,
      (CUlibrary * library, const char *path, int *a, void **b, unsigned c, int *d, void **e,
       unsigned f),
      (library, path, a, b, c, d, e, f), kw_image_keep_file(*library, path))
KW_AFTER(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name),
      (kernel, library, name), kw_kernel_is_library_kernel(*kernel))
static void saw_kernels(const CUkernel *kernels, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (kernels[i])
            kw_kernel_is_library_kernel(kernels[i]);
}
KW_AFTER(cuLibraryEnumerateKernels, (CUkernel * kernels, unsigned count, CUlibrary library),
         (kernels, count, library), saw_kernels(kernels, count))
KW_BEFORE(cuModuleUnload, (CUmodule module), (module),
       (kw_image_unloaded(module), kw_kernels_forget_handles()))
KW_BEFORE(cuLibraryUnload, (CUlibrary library), (library),
       (kw_image_unloaded(library), kw_kernels_forget_handles()))

KW_AFTER(cuTexObjectCreate, (uint64_t * handle, const void *a, const void *b, const void *c),
      (handle, a, b, c), kw_capture_saw_texture(*handle))
KW_AFTER(cuSurfObjectCreate, (uint64_t * handle, const void *a), (handle, a),
      kw_capture_saw_texture(*handle))
KW_AFTER(cuTensorMapEncodeTiled,
      (void *map, int type, unsigned rank, void *address, const uint64_t *a, const uint64_t *b,
       const unsigned *c, const unsigned *d, int e, int f, int g, int h),
      (map, type, rank, address, a, b, c, d, e, f, g, h), kw_capture_saw_tensor_map(map))

KW_EXPORT CUresult cuGetProcAddress(const char *, void **, int, uint64_t);
KW_EXPORT CUresult cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

void *kw_replacement(const char *name)
{
    static const kw_hook hooks[] = {
        KW_HOOK(cuGetProcAddress),
        KW_HOOK(cuGetProcAddress_v2),
        KW_HOOK(cuLaunchKernel),
        KW_HOOK(cuLaunchKernel_ptsz),
        KW_HOOK(cuLaunchKernelEx),
        KW_HOOK(cuLaunchKernelEx_ptsz),
        KW_HOOK(cuLaunchCooperativeKernel),
        KW_HOOK(cuLaunchCooperativeKernel_ptsz),
        KW_HOOK(cuModuleLoad),
        KW_HOOK(cuModuleLoadData),
        KW_HOOK(cuModuleLoadDataEx),
        KW_HOOK(cuModuleLoadFatBinary),
        KW_HOOK(cuModuleUnload),
        KW_HOOK(cuLibraryLoadData),
        KW_HOOK(cuLibraryLoadFromFile),
        KW_HOOK(cuLibraryGetKernel),
        KW_HOOK(cuLibraryEnumerateKernels),
        KW_HOOK(cuLibraryUnload),
        KW_HOOK(cuTexObjectCreate),
        KW_HOOK(cuSurfObjectCreate),
        KW_HOOK(cuTensorMapEncodeTiled),
    };
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (!strcmp(hooks[i].name, name))
            return hooks[i].function;
    for (const kw_hook *hook = kw_graph_hooks; hook->name; hook++)
        if (!strcmp(hook->name, name))
            return hook->function;
    return NULL;
}
