/* Counts, times or captures a launch. */
#include "launches.h"

#include "capture.h"
#include "memory.h"
#include "record.h"
#include "timing.h"

static CUresult captured(kw_shape *shape, const unsigned char *area, const kw_launch *launch,
                         kw_call call, void *real)
{
    int mode = CU_CAPTURE_MODE_RELAXED; /* other streams may be recording a graph meanwhile */
    KW_CU(cuThreadExchangeStreamCaptureMode, &mode);
    kw_settle(launch->stream);
    kw_capture *capture = kw_capture_begin(shape, area, 0);
    CUresult result = call(launch, real);
    if (capture)
        kw_capture_end(capture, result ? result : kw_settle(launch->stream));
    KW_CU(cuThreadExchangeStreamCaptureMode, &mode);
    return result;
}

CUresult kw_launched(const kw_launch *launch, kw_call call, void *real)
{
    static unsigned char area[KW_MOST_PARAMETER_BYTES + 8];
    int timing = -1;
    if (!kw_enter())
        return call(launch, real);
    kw_shape *shape = NULL;
    kw_kernel *kernel = kw_kernel_of(launch->function);
    if (kernel && !kw_is_recording(launch->stream)) { /* what is recorded is counted when it runs */
        if (!kw_arguments(kernel, launch, area))
            kernel->unreadable = 1;
        shape = kw_shape_of(kernel, launch, area);
    }
    CUresult result;
    if (shape && kw_capture_wants(shape))
        result = captured(shape, area, launch, call, real);
    else {
        if (shape && kw_settings.mode == KW_PROFILE)
            timing = kw_timing_begin(shape, launch->stream);
        kw_pause(); /* a launch may wait for room in the stream */
        result = call(launch, real);
        kw_continue();
        if (timing >= 0)
            kw_timing_end(timing, launch->stream, result);
    }
    if (shape && !result)
        kw_record_counter(shape->slot)->eager++;
    kw_leave();
    return result;
}
