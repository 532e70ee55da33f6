/* Writes device memory to files in pieces, and logs a capture when all of it is written. */
#include "capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "images.h"
#include "memory.h"
#include "record.h"

enum { MOST_OBJECTS = 1024, TENSOR_MAP_BYTES = 128, MOST_LOOKUPS = 4096, NAME_BYTES = 64 };
static const size_t PIECE = 8u << 20;

struct kw_capture {
    kw_shape *shape;
    kw_memory memory;
    unsigned number, inner_pointers;
    int from_graph;
    char (*names)[2][NAME_BYTES]; /* of each window's files: before, after */
};

static uint64_t textures[MOST_OBJECTS];
static unsigned char tensor_maps[MOST_OBJECTS][TENSOR_MAP_BYTES];
static unsigned texture_count, tensor_map_count, capture_count;

void kw_capture_saw_texture(uint64_t handle)
{
    textures[texture_count++ % MOST_OBJECTS] = handle;
}

void kw_capture_saw_tensor_map(const void *map)
{
    memcpy(tensor_maps[tensor_map_count++ % MOST_OBJECTS], map, TENSOR_MAP_BYTES);
}

void kw_capture_forget(void)
{
    texture_count = tensor_map_count = capture_count = 0;
}

int kw_capture_wants(const kw_shape *shape)
{
    return shape->kernel->wanted && !shape->captured && capture_count < kw_settings.shapes;
}

static int is_texture(uint64_t value)
{
    for (unsigned i = 0; i < texture_count && i < MOST_OBJECTS; i++)
        if (textures[i] == value)
            return 1;
    return 0;
}

static int is_tensor_map(const unsigned char *value)
{
    for (unsigned i = 0; i < tensor_map_count && i < MOST_OBJECTS; i++)
        if (!memcmp(tensor_maps[i], value, TENSOR_MAP_BYTES))
            return 1;
    return 0;
}

/* Whether an argument stands for memory that cannot be recorded; notes it. */
static int is_refused(const kw_kernel *kernel, const unsigned char *area)
{
    if (kernel->unreadable) {
        kw_record_note(kernel->name, "not captured: the driver does not tell its parameters; "
                                     "CUDA 12.4 or newer is needed");
        return 1;
    }
    for (unsigned i = 0; i < kernel->parameter_count; i++) {
        const unsigned char *value = area + kernel->offsets[i];
        uint64_t word = 0;
        if (kernel->sizes[i] == 8)
            memcpy(&word, value, 8);
        if (word && !kernel->is_pointer[kernel->offsets[i] / 8] && is_texture(word)) {
            kw_record_note(kernel->name, "not captured: parameter %u is a texture or surface", i);
            return 1;
        }
        if (kernel->sizes[i] == TENSOR_MAP_BYTES && is_tensor_map(value)) {
            kw_record_note(kernel->name, "not captured: parameter %u is a tensor map", i);
            return 1;
        }
    }
    return 0;
}

/* Counts words that are addresses of allocations; looks up at most MOST_LOOKUPS of them. */
static void count_pointers(kw_capture *capture, const unsigned char *bytes, size_t count,
                           unsigned *lookups)
{
    for (size_t at = 0; at + 8 <= count && *lookups < MOST_LOOKUPS; at += 8) {
        uint64_t value;
        CUdeviceptr start;
        size_t size;
        memcpy(&value, bytes + at, 8);
        /* Allocations are below 2^48, and above what indices and counts reach. */
        if (value < (uint64_t)1 << 32 || value >> 48)
            continue;
        ++*lookups;
        if (kw_allocation(value, &start, &size))
            capture->inner_pointers++;
    }
}

static int dump(kw_capture *capture, unsigned window, int after)
{
    const kw_window *from = &capture->memory.windows[window];
    char suffix[48], *name = capture->names[window][after];
    unsigned lookups = 0;
    snprintf(suffix, sizeof suffix, "capture.%u.%u.%s", capture->number, window,
             after ? "after" : "before");
    unsigned char *piece = malloc(from->size < PIECE ? from->size : PIECE);
    int file = piece ? kw_record_create(suffix, name, NAME_BYTES) : -1;
    int good = file >= 0;
    for (size_t done = 0; good && done < from->size;) {
        size_t count = from->size - done < PIECE ? from->size - done : PIECE;
        good = kw_read_device(piece, from->start + done, count) &&
               kw_record_write(file, piece, count);
        if (good && !after)
            count_pointers(capture, piece, count, &lookups);
        done += count;
    }
    if (file >= 0)
        close(file);
    free(piece);
    return good;
}

static void drop(kw_capture *capture)
{
    for (unsigned i = 0; capture->names && i < capture->memory.window_count; i++)
        for (int after = 0; after < 2; after++)
            if (*capture->names[i][after])
                kw_record_remove(capture->names[i][after]);
    free(capture->names);
    free(capture);
}

kw_capture *kw_capture_begin(kw_shape *shape, const unsigned char *area, int from_graph)
{
    const kw_kernel *kernel = shape->kernel;
    shape->captured = 1;
    if (is_refused(kernel, area))
        return NULL;
    kw_capture *capture = calloc(1, sizeof *capture);
    if (!capture)
        return NULL;
    capture->shape = shape;
    capture->from_graph = from_graph;
    capture->number = capture_count++;
    kw_memory_find(kernel, area, kw_settings.bytes, &capture->memory);
    capture->names = calloc(capture->memory.window_count + 1, sizeof *capture->names);
    int good = capture->names != NULL;
    for (unsigned i = 0; good && i < capture->memory.window_count; i++)
        good = dump(capture, i, 0);
    if (!good) {
        kw_record_note(kernel->name, "not captured: memory before the launch cannot be recorded; "
                                     "is the disk full?");
        drop(capture);
        return NULL;
    }
    return capture;
}

static void log_capture(const kw_capture *capture, const unsigned char *area)
{
    const kw_memory *memory = &capture->memory;
    kw_text line = {0};
    kw_text_add(&line, "{\"capture\":%u,\"from_graph\":%s,\"image\":%u,", capture->shape->slot,
                capture->from_graph ? "true" : "false", capture->shape->kernel->image);
    kw_arguments_add(&line, capture->shape->kernel, area);
    kw_text_add(&line, ",\"pointers\":[");
    for (unsigned i = 0; i < memory->pointer_count; i++) {
        const kw_pointer *pointer = &memory->pointers[i];
        const kw_window *window = &memory->windows[pointer->window];
        kw_text_add(&line, "%s[%u,%zu,%u,%llu]", i ? "," : "", pointer->parameter, pointer->at,
                    pointer->window, (unsigned long long)(pointer->value - window->start));
    }
    kw_text_add(&line, "],\"buffers\":[");
    for (unsigned i = 0; i < memory->window_count; i++) {
        const kw_window *window = &memory->windows[i];
        kw_text_add(&line,
                    "%s{\"address\":%llu,\"size\":%zu,\"allocation_address\":%llu,"
                    "\"allocation_size\":%zu,\"truncated\":%s,\"before\":\"%s\",\"after\":\"%s\"}",
                    i ? "," : "", (unsigned long long)window->start, window->size,
                    (unsigned long long)window->allocation, window->allocation_size,
                    window->truncated ? "true" : "false", capture->names[i][0],
                    capture->names[i][1]);
    }
    kw_text_add(&line, "],\"inner_pointers\":%u,\"too_many_pointers\":%s}",
                capture->inner_pointers, memory->too_many ? "true" : "false");
    kw_record_line(&line);
}

void kw_capture_end(kw_capture *capture, const unsigned char *area, CUresult result)
{
    const char *name = capture->shape->kernel->name;
    int good = !result;
    if (result)
        kw_record_note(name, "not captured: the launch failed with driver error %d", result);
    for (unsigned i = 0; good && i < capture->memory.window_count; i++)
        good = dump(capture, i, 1);
    if (good) {
        if (capture->shape->kernel->image)
            kw_image_write(capture->shape->kernel->image);
        log_capture(capture, area);
        for (unsigned i = 0; i < capture->memory.window_count; i++)
            *capture->names[i][0] = *capture->names[i][1] = 0; /* kept */
    } else if (!result)
        kw_record_note(name, "not captured: memory after the launch cannot be recorded; "
                             "is the disk full?");
    drop(capture);
}
