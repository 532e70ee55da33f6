/* Compares results in the memory that the spec says a launch writes, and looks beyond its end.
 *
 * Only what the spec says is written is put back, so that other streams may use neighbouring
 * memory; what the tuned kernel wrote elsewhere is put back too, where it is seen.
 */
#include "verify.h"

#include <stdlib.h>
#include <string.h>

#include "elements.h"
#include "memory.h"
#include "record.h"
#include "substitution.h"

enum { ALWAYS = 8 };
static const size_t BEYOND = 64 << 10; /* bytes after each buffer that must not change */

typedef struct {
    const kw_buffer_rule *rule;
    CUdeviceptr start;
    size_t bytes, window; /* of the buffer, and with what is beyond it */
    unsigned char *before, *original, *tuned;
} region;

int kw_verify_wants(const kw_shape *shape)
{
    const kw_counter *counter = kw_record_counter(shape->slot);
    const kw_substitution *chosen = shape->substitution;
    uint64_t launches = counter->eager + counter->in_graph;
    if (!shape->kernel->rule || shape->captured || (chosen && !chosen->variant))
        return 0;
    return !chosen || chosen->verified < ALWAYS || !(launches & (launches - 1));
}

static int is_written(const region *regions, unsigned count, CUdeviceptr address)
{
    for (unsigned i = 0; i < count; i++)
        if (regions[i].rule->is_written && address >= regions[i].start &&
            address < regions[i].start + regions[i].bytes)
            return 1;
    return 0;
}

static void free_regions(region *regions, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        free(regions[i].before);
        free(regions[i].original);
        free(regions[i].tuned);
    }
}

/* Finds the buffers, and reads what they hold; 0 if they cannot be read. */
static int begin(kw_shape *shape, const unsigned char *area, region *regions)
{
    const kw_rule *rule = shape->kernel->rule;
    for (unsigned i = 0; i < rule->buffer_count; i++) {
        region *one = &regions[i];
        CUdeviceptr allocation;
        size_t size;
        one->rule = &rule->buffers[i];
        one->bytes = shape->substitution->bytes[i];
        memcpy(&one->start, area + shape->kernel->offsets[one->rule->parameter], 8);
        if (!kw_allocation(one->start, &allocation, &size))
            return 0;
        size_t rest = (size_t)(allocation + size - one->start);
        if (rest < one->bytes)
            rest = one->bytes; /* mapped in pieces: reading tells whether it is there */
        one->window = rest - one->bytes < BEYOND ? rest : one->bytes + BEYOND;
        one->before = malloc(one->window + 1);
        one->original = malloc(one->window + 1);
        one->tuned = malloc(one->window + 1);
        if (!one->before || !one->original || !one->tuned ||
            !kw_read_device(one->before, one->start, one->window))
            return 0;
    }
    return 1;
}

static int read_all(region *regions, unsigned count, int tuned)
{
    int good = 1;
    for (unsigned i = 0; i < count; i++)
        good = kw_read_device(tuned ? regions[i].tuned : regions[i].original, regions[i].start,
                              regions[i].window) &&
               good;
    return good;
}

static int write_all(const region *regions, unsigned count, int original)
{
    int good = 1;
    for (unsigned i = 0; i < count; i++)
        if (regions[i].rule->is_written)
            good = kw_write_device(regions[i].start,
                                   original ? regions[i].original : regions[i].before,
                                   regions[i].bytes) &&
                   good;
    return good;
}

/* Puts back bytes that the tuned kernel changed where nothing is written; returns how many. */
static size_t repair(const region *regions, unsigned count, const region *one)
{
    size_t changed = 0;
    if (!memcmp(one->original, one->tuned, one->window))
        return 0;
    for (size_t i = 0; i < one->window; i++) {
        size_t start = i;
        while (i < one->window && one->original[i] != one->tuned[i] &&
               !is_written(regions, count, one->start + i))
            i++;
        if (i > start) {
            kw_write_device(one->start + start, one->original + start, i - start);
            changed += i - start;
        }
    }
    return changed;
}

static void log_difference(const kw_shape *shape, unsigned parameter, const kw_difference *found,
                           size_t outside)
{
    kw_text line = {0};
    kw_text_add(&line,
                "{\"difference\":%u,\"parameter\":%u,\"failures\":%zu,\"unequal\":%zu,"
                "\"worst\":%.9g,\"outside\":%zu}",
                shape->slot, parameter, found->failures, found->unequal,
                found->worst < 1e300 ? found->worst : 1e300, outside);
    kw_record_line(&line);
}

/* Compares all results; 1 if they are equal within the tolerance. */
static int compare(kw_shape *shape, const region *regions, unsigned count)
{
    int equal = 1;
    for (unsigned i = 0; i < count; i++) {
        const region *one = &regions[i];
        kw_difference found = {0};
        size_t outside = repair(regions, count, one);
        int compared = 1;
        if (one->rule->is_compared)
            compared =
                kw_compare_elements(one->rule, one->tuned, one->original, one->bytes, &found);
        if (found.unequal || outside)
            log_difference(shape, one->rule->parameter, &found, outside);
        equal = equal && compared && !found.failures && !outside;
    }
    return equal;
}

CUresult kw_verify(kw_shape *shape, const kw_launch *launch, unsigned char *area,
                   kw_original original, void *context)
{
    void *parameters[KW_MOST_ARGUMENTS];
    region regions[KW_MOST_BUFFERS] = {0};
    kw_launch tuned;
    if (!kw_substitute(shape, launch, area, &tuned, parameters)) {
        CUresult result = original(context);
        if (!result && shape->substitution)
            kw_record_counter(shape->substitution->slot)->uncompared++;
        return result;
    }
    unsigned count = shape->kernel->rule->buffer_count;
    kw_counter *counter = kw_record_counter(shape->substitution->slot);
    int readable = begin(shape, area, regions);
    CUresult result = original(context);
    if (result || !readable || kw_settle(launch->stream) || !read_all(regions, count, 0)) {
        if (!result)
            kw_unobserve(shape, "its buffers cannot be read; are they smaller than the spec says?");
        free_regions(regions, count);
        return result;
    }
    CUlaunchConfig config = {.shared_bytes = tuned.shared_bytes, .stream = tuned.stream};
    memcpy(config.grid, tuned.grid, sizeof config.grid);
    memcpy(config.block, tuned.block, sizeof config.block);
    write_all(regions, count, 0);
    CUresult failed = KW_CU(cuLaunchKernelEx, &config, tuned.function, tuned.parameters, NULL);
    if (!failed)
        failed = kw_settle(launch->stream);
    int equal = read_all(regions, count, 1) && !failed && compare(shape, regions, count);
    write_all(regions, count, 1);
    if (failed)
        kw_record_note(shape->kernel->name, "a tuned kernel failed with driver error %d", failed);
    shape->substitution->verified++;
    counter->equal += equal;
    counter->different += !equal;
    free_regions(regions, count);
    return result;
}
