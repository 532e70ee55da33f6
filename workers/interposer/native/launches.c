/* Counts, times, observes or replaces a launch. */
#include "launches.h"

#include <string.h>

#include "memory.h"
#include "observe.h"
#include "record.h"
#include "substitution.h"
#include "timing.h"

typedef struct {
    const kw_launch *launch;
    kw_call call;
    void *real;
} request;

static CUresult perform(void *context)
{
    const request *wanted = context;
    return wanted->call(wanted->launch, wanted->real);
}

static CUresult observed(kw_shape *shape, unsigned char *area, request *wanted)
{
    int mode = CU_CAPTURE_MODE_RELAXED; /* other streams may be recording a graph meanwhile */
    KW_CU(cuThreadExchangeStreamCaptureMode, &mode);
    kw_settle(wanted->launch->stream);
    CUresult result = kw_observe(shape, wanted->launch, area, 0, perform, wanted);
    KW_CU(cuThreadExchangeStreamCaptureMode, &mode);
    return result;
}

static CUresult timed(kw_shape *shape, request *wanted)
{
    int timing = kw_timing_begin(shape, wanted->launch->stream);
    kw_pause(); /* a launch may wait for room in the stream */
    CUresult result = perform(wanted);
    kw_continue();
    if (timing >= 0)
        kw_timing_end(timing, wanted->launch->stream, result);
    return result;
}

/* Launches what replaces the launch, or the original where nothing does or that fails. */
static CUresult replaced(kw_shape *shape, unsigned char *area, request *wanted)
{
    int recorded = kw_is_recording(wanted->launch->stream);
    void *parameters[KW_MOST_ARGUMENTS];
    kw_launch tuned;
    int replaces = kw_substitute(shape, wanted->launch, area, &tuned, parameters);
    kw_counter *counter =
        shape->substitution ? kw_record_counter(shape->substitution->slot) : NULL;
    kw_pause();
    CUresult result = replaces ? wanted->call(&tuned, wanted->real) : CUDA_SUCCESS;
    int failed = result != CUDA_SUCCESS;
    if (failed || !replaces)
        result = perform(wanted);
    kw_continue();
    if (counter) {
        counter->substituted += replaces && !failed;
        counter->recorded += replaces && !failed && recorded;
        counter->fell_back += failed;
        counter->original += !replaces && !result;
    }
    return result;
}

CUresult kw_launched(const kw_launch *launch, kw_call call, void *real)
{
    request wanted = {launch, call, real};
    CUresult result;
    if (!kw_enter())
        return call(launch, real);
    int injects = kw_settings.mode == KW_INJECT;
    /* What is recorded into a graph is counted when the graph is launched. */
    int recorded = !injects && kw_is_recording(launch->stream);
    kw_kernel *kernel = recorded ? NULL : kw_kernel_of(launch->function);
    if (!kernel || (injects && !kernel->rule)) {
        kw_pause();
        result = call(launch, real);
        kw_continue();
        kw_leave();
        return result;
    }
    unsigned char area[kernel->area_size + 8];
    if (!kw_arguments(kernel, launch, area))
        kernel->unreadable = 1;
    kw_shape *shape = kw_shape_of(kernel, launch, area);
    if (!shape)
        result = call(launch, real);
    else if (injects)
        result = replaced(shape, area, &wanted);
    else if (kw_observes(shape))
        result = observed(shape, area, &wanted);
    else if (kw_settings.mode == KW_PROFILE)
        result = timed(shape, &wanted);
    else {
        kw_pause();
        result = call(launch, real);
        kw_continue();
    }
    if (shape && !result)
        kw_record_counter(shape->slot)->eager++;
    kw_leave();
    return result;
}

int kw_replaced_node(const CUDA_KERNEL_NODE_PARAMS *params, kw_node_call call, void *context,
                     CUresult *result)
{
    kw_launch launch = kw_launch_of_node(params), tuned;
    void *parameters[KW_MOST_ARGUMENTS];
    kw_kernel *kernel = kw_settings.mode == KW_INJECT ? kw_kernel_of(launch.function) : NULL;
    if (!kernel || !kernel->rule)
        return 0;
    unsigned char area[kernel->area_size + 8];
    if (!kw_arguments(kernel, &launch, area))
        return 0;
    kw_shape *shape = kw_shape_of(kernel, &launch, area);
    if (!shape)
        return 0;
    if (!kw_substitute(shape, &launch, area, &tuned, parameters)) {
        if (shape->substitution)
            kw_record_counter(shape->substitution->slot)->original++;
        return 0;
    }
    CUDA_KERNEL_NODE_PARAMS other = {.function = tuned.function,
                                     .shared_bytes = tuned.shared_bytes,
                                     .parameters = tuned.parameters,
                                     .context = params->context};
    memcpy(other.grid, tuned.grid, sizeof other.grid);
    memcpy(other.block, tuned.block, sizeof other.block);
    kw_counter *counter = kw_record_counter(shape->substitution->slot);
    *result = call(&other, context);
    counter->fell_back += *result != CUDA_SUCCESS;
    counter->substituted += *result == CUDA_SUCCESS;
    counter->recorded += *result == CUDA_SUCCESS;
    return *result == CUDA_SUCCESS;
}
