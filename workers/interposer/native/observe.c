/* Chooses between capture and verify. */
#include "observe.h"

#include "capture.h"
#include "memory.h"
#include "record.h"
#include "verify.h"

int kw_observes(const kw_shape *shape)
{
    if (kw_settings.mode == KW_CAPTURE)
        return kw_capture_wants(shape);
    return kw_settings.mode == KW_VERIFY && kw_verify_wants(shape);
}

CUresult kw_observe(kw_shape *shape, const kw_launch *launch, unsigned char *area, int from_graph,
                    kw_original original, void *context)
{
    if (kw_settings.mode == KW_VERIFY)
        return kw_verify(shape, launch, area, original, context);
    kw_capture *capture = kw_capture_begin(shape, area, from_graph);
    CUresult result = original(context);
    if (capture)
        kw_capture_end(capture, area, result ? result : kw_settle(launch->stream));
    return result;
}

void kw_unobserve(kw_shape *shape, const char *why)
{
    shape->captured = 1;
    kw_record_note(shape->kernel->name, "not %s: %s",
                   kw_settings.mode == KW_CAPTURE ? "captured" : "compared", why);
}
