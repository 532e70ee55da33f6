/* The kernels and shapes that this process launched. Callers hold the lock of hooks.c. */
#ifndef KW_KERNELS_H
#define KW_KERNELS_H

#include "driver.h"
#include "text.h"

enum { KW_MOST_PARAMETERS = 1024, KW_MOST_PARAMETER_BYTES = 32768 };

/* A launch as the application asked for it, or as we change it. */
typedef struct {
    CUfunction function; /* or a CUkernel */
    unsigned grid[3], block[3], shared_bytes;
    CUstream stream;
    void **parameters, **extra;
    CUlaunchAttribute *attributes;
    unsigned attribute_count;
    unsigned cluster[3]; /* 0: not in clusters */
    int cooperative;
} kw_launch;

struct kw_kernel;
struct kw_rule;
struct kw_substitution;

/* Launches with the same grid, block, shared bytes and scalar arguments. */
typedef struct kw_shape {
    struct kw_kernel *kernel;
    struct kw_shape *next;
    uint64_t hash;
    unsigned grid[3], block[3], shared_bytes, cluster[3];
    int cooperative;
    unsigned slot;      /* of its counter */
    unsigned pending;   /* launches whose time is not known yet */
    int captured;       /* its memory was recorded, or that was tried in vain */
    struct kw_substitution *substitution; /* what replaces it; NULL: not decided */
} kw_shape;

typedef struct kw_kernel {
    char *name;
    unsigned id;
    unsigned parameter_count; /* 0 if `unreadable` */
    size_t *offsets, *sizes;
    size_t area_size;
    unsigned char *is_pointer; /* for each 8-byte word of the parameter area */
    int unreadable;            /* the driver cannot tell the parameters */
    int wanted;                /* to be captured */
    struct kw_rule *rule;      /* by which it is replaced, or NULL */
    kw_shape *shapes, *last;
    unsigned shape_count;
    unsigned image; /* 1 + its number; 0: unknown */
    struct kw_kernel *next;
} kw_kernel;

/* The launch of a kernel node, without attributes. */
kw_launch kw_launch_of_node(const CUDA_KERNEL_NODE_PARAMS *params);

/* The kernel of a handle, which may be a CUfunction or a CUkernel; NULL if memory ran out. */
kw_kernel *kw_kernel_of(CUfunction handle);

/* Notes that a handle is a CUkernel. */
void kw_kernel_is_library_kernel(CUkernel handle);

/* Forgets all handles: the driver may give them to others after a module is unloaded. */
void kw_kernels_forget_handles(void);

/* Forgets everything, in a process that was forked. */
void kw_kernels_forget(void);

/* Copies a launch's arguments to `area` (kernel->area_size bytes); 0 if they cannot be read. */
int kw_arguments(const kw_kernel *kernel, const kw_launch *launch, unsigned char *area);

/* The shape of a launch with these arguments; NULL if memory ran out. */
kw_shape *kw_shape_of(kw_kernel *kernel, const kw_launch *launch, const unsigned char *area);

/* Adds `"arguments":[…]` with the bytes of each parameter. */
void kw_arguments_add(kw_text *line, const kw_kernel *kernel, const unsigned char *area);

#endif
