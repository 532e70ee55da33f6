/* The functions that applications find in place of the driver's, and the lock around all state. */
#ifndef KW_HOOKS_H
#define KW_HOOKS_H

#include "driver.h"
#include "kernels.h"

#define KW_EXPORT __attribute__((visibility("default")))

/* Performs a launch, as it is, by the function that the application called. */
typedef CUresult (*kw_call)(const kw_launch *launch, void *real);

/* Takes the lock; 0 (and no lock) if this process is not to be recorded, or inside our own call. */
int kw_enter(void);
void kw_leave(void);

/* Lets other threads in during a call that may wait, within kw_enter and kw_leave. */
void kw_pause(void);
void kw_continue(void);

/* Whether work in the stream is being recorded into a graph instead of run. */
int kw_is_recording(CUstream stream);

#endif
