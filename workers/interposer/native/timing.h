/* Times launches by events, without waiting for them. */
#ifndef KW_TIMING_H
#define KW_TIMING_H

#include "driver.h"
#include "kernels.h"

/* Begins to time a launch; returns a number for kw_timing_end, or -1 if it is not to be timed. */
int kw_timing_begin(kw_shape *shape, CUstream stream);

void kw_timing_end(int timing, CUstream stream, CUresult result);

/* Collects the times that are there; waits for the others up to `milliseconds`. */
void kw_timing_collect(unsigned milliseconds);

/* Forgets everything, in a process that was forked. */
void kw_timing_forget(void);

#endif
