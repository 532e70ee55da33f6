/* Finds allocations behind pointers, and copies device memory. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

static const CUdeviceptr LOWEST_ADDRESS = 4096;

int kw_allocation(CUdeviceptr address, CUdeviceptr *start, size_t *size)
{
    unsigned type = 0;
    if (address < LOWEST_ADDRESS ||
        KW_CU(cuPointerGetAttribute, &type, CU_POINTER_MEMORY_TYPE, address))
        return 0;
    if (!KW_CU(cuMemGetAddressRange_v2, start, size, address) && *size)
        return 1;
    return !KW_CU(cuPointerGetAttribute, start, CU_POINTER_RANGE_START, address) &&
           !KW_CU(cuPointerGetAttribute, size, CU_POINTER_RANGE_SIZE, address) && *size;
}

static int is_mapped_piece(CUdeviceptr address)
{
    uint64_t handle;
    if (KW_CU(cuMemRetainAllocationHandle, &handle, (void *)(uintptr_t)address))
        return 0;
    KW_CU(cuMemRelease, handle);
    return 1;
}

/* Memory that is mapped in pieces is one allocation to its user: adds the pieces that follow. */
static size_t with_neighbours(CUdeviceptr start, size_t size, size_t wanted)
{
    CUdeviceptr next;
    size_t more;
    if (size >= wanted || !is_mapped_piece(start))
        return size;
    while (size < wanted && is_mapped_piece(start + size) &&
           kw_allocation(start + size, &next, &more) && next == start + size)
        size += more;
    return size;
}

static int by_value(const void *a, const void *b)
{
    const kw_pointer *one = a, *other = b;
    return one->value < other->value ? -1 : one->value > other->value;
}

static int by_place(const void *a, const void *b)
{
    const kw_pointer *one = a, *other = b;
    if (one->parameter != other->parameter)
        return one->parameter < other->parameter ? -1 : 1;
    return one->at < other->at ? -1 : one->at > other->at;
}

static void find_pointers(const kw_kernel *kernel, const unsigned char *area, kw_memory *memory)
{
    for (unsigned i = 0; i < kernel->parameter_count; i++)
        for (size_t at = 0; at + 8 <= kernel->sizes[i]; at += 8) {
            size_t place = kernel->offsets[i] + at;
            CUdeviceptr value;
            if (place % 8 || !kernel->is_pointer[place / 8])
                continue;
            memcpy(&value, area + place, 8);
            if (memory->pointer_count == KW_MOST_POINTERS) {
                memory->too_many = 1;
                return;
            }
            memory->pointers[memory->pointer_count++] = (kw_pointer){i, at, value, 0};
        }
}

void kw_memory_find(const kw_kernel *kernel, const unsigned char *area, size_t limit,
                    kw_memory *memory)
{
    unsigned kept = 0;
    kw_window *last = NULL;
    memory->window_count = memory->pointer_count = 0;
    memory->too_many = 0;
    find_pointers(kernel, area, memory);
    qsort(memory->pointers, memory->pointer_count, sizeof *memory->pointers, by_value);
    for (unsigned i = 0; i < memory->pointer_count; i++) {
        kw_pointer pointer = memory->pointers[i];
        kw_window window = {.start = pointer.value};
        if (!kw_allocation(pointer.value, &window.allocation, &window.allocation_size))
            continue; /* null, or no longer valid */
        size_t before = (size_t)(pointer.value - window.allocation);
        window.allocation_size =
            with_neighbours(window.allocation, window.allocation_size, before + limit);
        size_t rest = window.allocation_size - before;
        window.size = rest < limit ? rest : limit;
        window.truncated = rest > limit;
        if (last && last->allocation <= window.allocation &&
            window.start <= last->start + last->size &&
            window.start < last->allocation + last->allocation_size) {
            /* Touches the one before: one window. */
            size_t size = (size_t)(window.start - last->start) + window.size;
            last->size = size > last->size ? size : last->size;
            size_t end = (size_t)(window.allocation - last->allocation) + window.allocation_size;
            if (end > last->allocation_size)
                last->allocation_size = end;
            last->truncated = window.truncated;
        } else {
            last = &memory->windows[memory->window_count++];
            *last = window;
        }
        pointer.window = memory->window_count - 1;
        memory->pointers[kept++] = pointer;
    }
    memory->pointer_count = kept;
    qsort(memory->pointers, kept, sizeof *memory->pointers, by_place);
}

CUresult kw_settle(CUstream stream)
{
    return KW_CU(cuStreamSynchronize, stream);
}

static CUresult copy(CUdeviceptr device, void *host, size_t count, int to_host)
{
    CUstream stream;
    CUresult result = KW_CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    if (result)
        return result;
    result = to_host ? KW_CU(cuMemcpyDtoHAsync_v2, host, device, count, stream)
                     : KW_CU(cuMemcpyHtoDAsync_v2, device, host, count, stream);
    CUresult finished = KW_CU(cuStreamSynchronize, stream);
    KW_CU(cuStreamDestroy_v2, stream);
    return result ? result : finished;
}

int kw_read_device(void *to, CUdeviceptr from, size_t count)
{
    return copy(from, to, count, 1) == CUDA_SUCCESS;
}

int kw_write_device(CUdeviceptr to, const void *from, size_t count)
{
    return copy(to, (void *)from, count, 0) == CUDA_SUCCESS;
}
