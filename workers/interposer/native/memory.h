/* Device memory that a launch can reach through pointers in its parameters. */
#ifndef KW_MEMORY_H
#define KW_MEMORY_H

#include "driver.h"
#include "kernels.h"

enum { KW_MOST_POINTERS = 512 };

/* A piece of one allocation. */
typedef struct {
    CUdeviceptr start, allocation;
    size_t size, allocation_size;
    int truncated; /* the allocation reaches further */
} kw_window;

typedef struct {
    unsigned parameter;
    size_t at; /* in the parameter */
    CUdeviceptr value;
    unsigned window;
} kw_pointer;

typedef struct {
    kw_window windows[KW_MOST_POINTERS];
    kw_pointer pointers[KW_MOST_POINTERS];
    unsigned window_count, pointer_count;
    int too_many; /* pointers beyond the limit are left out */
} kw_memory;

/* The allocation that contains `address`; 0 if it is in none. */
int kw_allocation(CUdeviceptr address, CUdeviceptr *start, size_t *size);

/* Finds the memory of a launch with these arguments, at most `limit` bytes from each pointer. */
void kw_memory_find(const kw_kernel *kernel, const unsigned char *area, size_t limit,
                    kw_memory *memory);

/* Waits until everything in the stream is done. */
CUresult kw_settle(CUstream stream);

/* Copies between host and device on a stream of its own, and waits; 0 if that fails. */
int kw_read_device(void *to, CUdeviceptr from, size_t count);
int kw_write_device(CUdeviceptr to, const void *from, size_t count);

#endif
