/* The functions that applications find in place of the driver's, and the lock around all state. */
#ifndef KW_HOOKS_H
#define KW_HOOKS_H

#include "driver.h"
#include "kernels.h"
#include "lookup.h"

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

typedef struct {
    const char *name;
    void *function;
} kw_hook;

#define KW_HOOK(name) {#name, (void *)name}

/* The functions on graphs, ending with a NULL name. */
extern const kw_hook kw_graph_hooks[];

/* The driver's own function, looked up at the first call. */
#define KW_REAL(name) \
    static typeof(&name) real; \
    if (!real) \
        *(void **)&real = kw_driver_symbol(#name); \
    if (!real) \
        return CUDA_ERROR_NOT_FOUND

/* A function whose effect is noted after the driver's own has succeeded. */
#define KW_AFTER(name, arguments, values, effect) \
    KW_EXPORT CUresult name arguments \
    { \
        KW_REAL(name); \
        CUresult result = real values; \
        if (result == CUDA_SUCCESS && kw_enter()) { \
            effect; \
            kw_leave(); \
        } \
        return result; \
    }
/* A function whose effect is noted before. */
#define KW_BEFORE(name, arguments, values, effect) \
    KW_EXPORT CUresult name arguments \
    { \
        KW_REAL(name); \
        if (kw_enter()) { \
            effect; \
            kw_leave(); \
        } \
        return real values; \
    }

#endif
