/* Tells kernels and shapes apart, and logs each once. */
#include "kernels.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "images.h"
#include "memory.h"
#include "record.h"
#include "rules.h"

enum { HANDLES = 1 << 16, MOST_SHAPES = 512, LONGEST_NAME = 4096 };

static struct {
    CUfunction handle;
    kw_kernel *kernel;
} handles[HANDLES];

static CUfunction library_kernels[HANDLES];
static unsigned handle_count, library_count;
static kw_kernel *kernels;
static unsigned kernel_count;

static unsigned bucket(const void *handle)
{
    return (unsigned)(((uintptr_t)handle >> 4) * 2654435761u >> 8) & (HANDLES - 1);
}

static int is_library_kernel(CUfunction handle)
{
    for (unsigned i = bucket(handle); library_kernels[i]; i = (i + 1) & (HANDLES - 1))
        if (library_kernels[i] == handle)
            return 1;
    return 0;
}

void kw_kernel_is_library_kernel(CUkernel kernel)
{
    CUfunction handle = (CUfunction)kernel;
    if (is_library_kernel(handle) || library_count >= HANDLES / 2)
        return;
    unsigned i = bucket(handle);
    while (library_kernels[i])
        i = (i + 1) & (HANDLES - 1);
    library_kernels[i] = handle;
    library_count++;
}

void kw_kernels_forget_handles(void)
{
    memset(handles, 0, sizeof handles);
    handle_count = 0;
}

void kw_kernels_forget(void)
{
    kw_kernels_forget_handles();
    memset(library_kernels, 0, sizeof library_kernels);
    library_count = 0;
    kernels = NULL; /* their memory belongs to the parent's state, which may be inconsistent */
    kernel_count = 0;
}

static void log_device(void)
{
    char name[256] = "?";
    int driver = 0, major = 0, minor = 0;
    CUdevice device = 0;
    kw_text line = {0};
    KW_CU(cuDriverGetVersion, &driver);
    if (!KW_CU(cuCtxGetDevice, &device)) {
        KW_CU(cuDeviceGetName, name, (int)sizeof name, device);
        KW_CU(cuDeviceGetAttribute, &major, CU_DEVICE_CAPABILITY_MAJOR, device);
        KW_CU(cuDeviceGetAttribute, &minor, CU_DEVICE_CAPABILITY_MINOR, device);
    }
    kw_text_add(&line, "{\"device\":");
    kw_text_quoted(&line, name);
    kw_text_add(&line, ",\"compute_capability\":%d,\"driver\":%d}", 10 * major + minor, driver);
    kw_record_line(&line);
}

static void log_kernel(const kw_kernel *kernel, CUfunction function)
{
    static const int attributes[] = {CU_FUNC_REGISTERS,   CU_FUNC_SHARED_BYTES,
                                     CU_FUNC_MAX_DYNAMIC_SHARED_BYTES,
                                     CU_FUNC_LOCAL_BYTES, CU_FUNC_CONST_BYTES,
                                     CU_FUNC_MAX_THREADS};
    kw_text line = {0};
    kw_text_add(&line, "{\"kernel\":%u,\"name\":", kernel->id);
    kw_text_quoted(&line, kernel->name);
    kw_text_add(&line, ",\"readable\":%s,\"parameters\":[", kernel->unreadable ? "false" : "true");
    for (unsigned i = 0; i < kernel->parameter_count; i++)
        kw_text_add(&line, "%s[%zu,%zu]", i ? "," : "", kernel->offsets[i], kernel->sizes[i]);
    kw_text_add(&line, "],\"attributes\":[");
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        int value = 0;
        if (KW_CU(cuFuncGetAttribute, &value, attributes[i], function) || value < 0)
            value = 0;
        kw_text_add(&line, "%s%d", i ? "," : "", value);
    }
    kw_text_add(&line, "]}");
    kw_record_line(&line);
}

static void read_parameters(kw_kernel *kernel, CUfunction handle, int library)
{
    size_t offsets[KW_MOST_PARAMETERS], sizes[KW_MOST_PARAMETERS], end = 0;
    unsigned count = 0;
    kernel->unreadable = library ? !kw_driver.cuKernelGetParamInfo : !kw_driver.cuFuncGetParamInfo;
    while (!kernel->unreadable && count < KW_MOST_PARAMETERS) {
        size_t offset, size;
        if (library ? KW_CU(cuKernelGetParamInfo, (CUkernel)handle, count, &offset, &size)
                    : KW_CU(cuFuncGetParamInfo, handle, count, &offset, &size))
            break;
        if (offset < end || !size || size > KW_MOST_PARAMETER_BYTES ||
            offset > KW_MOST_PARAMETER_BYTES - size) {
            kernel->unreadable = 1;
            break;
        }
        offsets[count] = offset;
        sizes[count++] = size;
        end = offset + size;
    }
    if (kernel->unreadable || count == KW_MOST_PARAMETERS)
        count = 0, end = 0, kernel->unreadable = 1;
    kernel->area_size = (end + 7) / 8 * 8;
    kernel->offsets = calloc(count + 1, sizeof *offsets);
    kernel->sizes = calloc(count + 1, sizeof *sizes);
    kernel->is_pointer = calloc(kernel->area_size / 8 + 1, 1);
    if (kernel->offsets && kernel->sizes && kernel->is_pointer) {
        memcpy(kernel->offsets, offsets, count * sizeof *offsets);
        memcpy(kernel->sizes, sizes, count * sizeof *sizes);
        kernel->parameter_count = count;
    }
}

static int matches(const char *pattern, const char *name)
{
    return *pattern && (strstr(name, pattern) || !fnmatch(pattern, name, 0));
}

static void free_kernel(kw_kernel *kernel)
{
    free(kernel->name);
    free(kernel->offsets);
    free(kernel->sizes);
    free(kernel->is_pointer);
    free(kernel);
}

static int same_kernel(const kw_kernel *a, const kw_kernel *b)
{
    size_t count = a->parameter_count;
    return count == b->parameter_count && !strcmp(a->name, b->name) &&
           !memcmp(a->sizes, b->sizes, count * sizeof *a->sizes) &&
           !memcmp(a->offsets, b->offsets, count * sizeof *a->offsets);
}

static CUresult read_name(CUfunction handle, int library, const char **name)
{
    CUresult result = library ? KW_CU(cuKernelGetName, name, (CUkernel)handle)
                              : KW_CU(cuFuncGetName, name, handle);
    return result || *name ? result : CUDA_ERROR_NOT_FOUND;
}

/* Reads a kernel from the driver; one that is already known under another handle is reused. */
static kw_kernel *new_kernel(CUfunction handle)
{
    const char *name = NULL;
    /* A CUkernel may be launched in place of a CUfunction. After its library was unloaded, the
     * driver may give its address to a handle of the other kind. */
    int library = is_library_kernel(handle);
    if (read_name(handle, library, &name) && read_name(handle, library = !library, &name))
        name = "?", library = 0;
    kw_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel || !(kernel->name = strndup(name, LONGEST_NAME)))
        return free(kernel), NULL;
    read_parameters(kernel, handle, library);
    if (!kernel->offsets || !kernel->sizes || !kernel->is_pointer)
        return free_kernel(kernel), NULL;
    for (kw_kernel *known = kernels; known; known = known->next)
        if (same_kernel(known, kernel)) {
            free_kernel(kernel);
            return known;
        }
    CUfunction function = handle;
    if (library && KW_CU(cuKernelGetFunction, &function, (CUkernel)handle))
        function = handle;
    if (!kernel_count)
        log_device();
    kernel->id = kernel_count++;
    kernel->wanted = kw_settings.mode == KW_CAPTURE && matches(kw_settings.kernel, kernel->name);
    kernel->rule = kw_rule_for(kernel->name);
    if (kernel->wanted)
        kernel->image = kw_image_of(handle, library);
    kernel->next = kernels;
    kernels = kernel;
    log_kernel(kernel, function);
    return kernel;
}

kw_launch kw_launch_of_node(const CUDA_KERNEL_NODE_PARAMS *params)
{
    kw_launch launch = {.function = params->function ? params->function
                                                     : (CUfunction)params->kernel,
                        .shared_bytes = params->shared_bytes,
                        .parameters = params->parameters,
                        .extra = params->extra};
    memcpy(launch.grid, params->grid, sizeof launch.grid);
    memcpy(launch.block, params->block, sizeof launch.block);
    return launch;
}

kw_kernel *kw_kernel_of(CUfunction handle)
{
    unsigned i = bucket(handle);
    for (; handles[i].handle; i = (i + 1) & (HANDLES - 1))
        if (handles[i].handle == handle)
            return handles[i].kernel;
    if (handle_count >= HANDLES / 2) {
        kw_kernels_forget_handles();
        i = bucket(handle);
    }
    int mode = CU_CAPTURE_MODE_RELAXED; /* asking may load the kernel while a graph is recorded */
    KW_CU(cuThreadExchangeStreamCaptureMode, &mode);
    kw_kernel *kernel = new_kernel(handle);
    KW_CU(cuThreadExchangeStreamCaptureMode, &mode);
    if (kernel) {
        handles[i].handle = handle;
        handles[i].kernel = kernel;
        handle_count++;
    }
    return kernel;
}

int kw_arguments(const kw_kernel *kernel, const kw_launch *launch, unsigned char *area)
{
    const unsigned char *packed = NULL;
    if (kernel->unreadable)
        return 0;
    memset(area, 0, kernel->area_size);
    if (!kernel->parameter_count)
        return 1;
    if (!launch->parameters) {
        for (void **extra = launch->extra; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2)
            if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
                packed = extra[1];
        if (!packed)
            return 0;
    }
    for (unsigned i = 0; i < kernel->parameter_count; i++) {
        size_t offset = kernel->offsets[i];
        const void *value = packed ? packed + offset : launch->parameters[i];
        if (!value)
            return 0;
        memcpy(area + offset, value, kernel->sizes[i]);
    }
    return 1;
}

static uint64_t hashed(const kw_kernel *kernel, const kw_launch *launch, const unsigned char *area)
{
    uint64_t hash = 1469598103934665603ull;
#define MIX(value) hash = (hash ^ (value)) * 1099511628211ull, hash ^= hash >> 29
    for (int i = 0; i < 3; i++) {
        MIX(launch->grid[i]);
        MIX(launch->block[i]);
        MIX(launch->cluster[i]);
    }
    MIX(launch->shared_bytes);
    MIX((unsigned)launch->cooperative);
    for (size_t word = 0; word < kernel->area_size / 8; word++) {
        uint64_t value;
        memcpy(&value, area + 8 * word, 8);
        MIX(kernel->is_pointer[word] ? 0 : value);
    }
#undef MIX
    return hash;
}

static kw_shape *known_shape(kw_kernel *kernel, uint64_t hash)
{
    if (kernel->last && kernel->last->hash == hash)
        return kernel->last;
    for (kw_shape *shape = kernel->shapes; shape; shape = shape->next)
        if (shape->hash == hash)
            return kernel->last = shape;
    return NULL;
}

/* Marks words that hold a device pointer now and did not before; 1 if there are any. */
static int find_pointers(kw_kernel *kernel, const unsigned char *area)
{
    int found = 0;
    kw_text line = {0};
    for (size_t word = 0; word < kernel->area_size / 8; word++) {
        CUdeviceptr value, start;
        size_t size;
        memcpy(&value, area + 8 * word, 8);
        if (kernel->is_pointer[word] || !kw_allocation(value, &start, &size))
            continue;
        kernel->is_pointer[word] = 1;
        found = 1;
    }
    if (!found)
        return 0;
    kw_text_add(&line, "{\"pointers_of\":%u,\"words\":[", kernel->id);
    const char *separator = "";
    for (size_t word = 0; word < kernel->area_size / 8; word++)
        if (kernel->is_pointer[word]) {
            kw_text_add(&line, "%s%zu", separator, word);
            separator = ",";
        }
    kw_text_add(&line, "]}");
    kw_record_line(&line);
    return 1;
}

void kw_arguments_add(kw_text *line, const kw_kernel *kernel, const unsigned char *area)
{
    kw_text_add(line, "\"arguments\":[");
    for (unsigned i = 0; i < kernel->parameter_count; i++) {
        kw_text_add(line, "%s", i ? "," : "");
        kw_text_hex(line, area + kernel->offsets[i], kernel->sizes[i]);
    }
    kw_text_add(line, "]");
}

static void log_shape(const kw_shape *shape, const unsigned char *area)
{
    kw_text line = {0};
    kw_text_add(&line, "{\"shape\":%u,\"of\":%u,\"grid\":", shape->slot, shape->kernel->id);
    kw_text_extent(&line, shape->grid);
    kw_text_add(&line, ",\"block\":");
    kw_text_extent(&line, shape->block);
    kw_text_add(&line, ",\"shared_bytes\":%u,\"cooperative\":%s,\"cluster\":", shape->shared_bytes,
                shape->cooperative ? "true" : "false");
    kw_text_extent(&line, shape->cluster);
    kw_text_add(&line, ",");
    kw_arguments_add(&line, shape->kernel, area);
    kw_text_add(&line, "}");
    kw_record_line(&line);
}

kw_shape *kw_shape_of(kw_kernel *kernel, const kw_launch *launch, const unsigned char *area)
{
    uint64_t hash = hashed(kernel, launch, area);
    kw_shape *shape = known_shape(kernel, hash);
    if (shape)
        return shape;
    if (kernel->shape_count >= MOST_SHAPES)
        return kernel->last = kernel->shapes; /* the last: shapes beyond are not told apart */
    if (find_pointers(kernel, area)) {
        /* A word that was null at first: with it set to 0, the shape may be a known one. */
        hash = hashed(kernel, launch, area);
        if ((shape = known_shape(kernel, hash)))
            return shape;
    }
    if (!(shape = calloc(1, sizeof *shape)))
        return NULL;
    memcpy(shape->grid, launch->grid, sizeof shape->grid);
    memcpy(shape->block, launch->block, sizeof shape->block);
    memcpy(shape->cluster, launch->cluster, sizeof shape->cluster);
    shape->shared_bytes = launch->shared_bytes;
    shape->cooperative = launch->cooperative;
    shape->kernel = kernel;
    shape->hash = hash;
    shape->slot = kw_record_slot();
    shape->next = kernel->shapes;
    kernel->shapes = kernel->last = shape;
    kernel->shape_count++;
    if (kernel->shape_count == MOST_SHAPES)
        kw_record_note(kernel->name, "more than %d shapes; those beyond are not told apart",
                       MOST_SHAPES - 1);
    log_shape(shape, area);
    return shape;
}
