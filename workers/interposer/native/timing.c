/* Times the first launches of each shape, then one in EVERY; times are collected later. */
#include "timing.h"

#include <string.h>
#include <time.h>

#include "record.h"

enum { FIRST = 32, EVERY = 64, MOST_PENDING = 128 };

typedef struct {
    enum { FREE, OPEN, WAITING } state;
    CUevent begin, end;
    CUcontext context; /* that the events belong to */
    kw_shape *shape;
} kw_timing;

static kw_timing timings[MOST_PENDING];

static void finish(kw_timing *timing, CUresult result)
{
    float ms = 0;
    kw_counter *counter = kw_record_counter(timing->shape->slot);
    if (!result && !KW_CU(cuEventElapsedTime, &ms, timing->begin, timing->end) && ms >= 0) {
        counter->timed++;
        counter->ns += (uint64_t)(ms * 1e6);
    }
    timing->shape->pending--;
    timing->state = FREE;
}

/* Collects what is there; returns how many are still waited for. */
static unsigned collect(void)
{
    enum { NOT_READY = 600 };
    unsigned waiting = 0;
    for (kw_timing *timing = timings; timing < timings + MOST_PENDING; timing++) {
        if (timing->state != WAITING)
            continue;
        CUresult result = KW_CU(cuEventQuery, timing->end);
        if (result == NOT_READY)
            waiting++;
        else
            finish(timing, result);
    }
    return waiting;
}

static kw_timing *free_timing(CUcontext context)
{
    kw_timing *other = NULL;
    for (kw_timing *timing = timings; timing < timings + MOST_PENDING; timing++)
        if (timing->state == FREE) {
            if (timing->context == context)
                return timing;
            if (!other || !timing->context)
                other = timing;
        }
    if (!other)
        return NULL;
    if (other->context) {
        KW_CU(cuEventDestroy_v2, other->begin);
        KW_CU(cuEventDestroy_v2, other->end);
        other->context = NULL;
    }
    if (KW_CU(cuEventCreate, &other->begin, CU_EVENT_DEFAULT))
        return NULL;
    if (KW_CU(cuEventCreate, &other->end, CU_EVENT_DEFAULT)) {
        KW_CU(cuEventDestroy_v2, other->begin);
        return NULL;
    }
    other->context = context;
    return other;
}

int kw_timing_begin(kw_shape *shape, CUstream stream)
{
    kw_counter *counter = kw_record_counter(shape->slot);
    CUcontext context = NULL;
    if (counter->timed + shape->pending >= FIRST && counter->eager % EVERY)
        return -1;
    if (KW_CU(cuCtxGetCurrent, &context) || !context)
        return -1;
    collect(); /* so that little is lost if the process ends without notice */
    kw_timing *timing = free_timing(context);
    if (!timing || KW_CU(cuEventRecord, timing->begin, stream))
        return -1;
    timing->state = OPEN;
    timing->shape = shape;
    shape->pending++;
    return (int)(timing - timings);
}

void kw_timing_end(int number, CUstream stream, CUresult result)
{
    kw_timing *timing = &timings[number];
    if (!result)
        result = KW_CU(cuEventRecord, timing->end, stream);
    if (result)
        finish(timing, result);
    else
        timing->state = WAITING;
}

void kw_timing_collect(unsigned milliseconds)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    while (collect() && milliseconds--)
        nanosleep(&pause, NULL);
}

void kw_timing_forget(void)
{
    memset(timings, 0, sizeof timings);
}
