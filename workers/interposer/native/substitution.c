/* Everything that could make a replaced launch fail is checked before it is launched or recorded
 * into a graph: a recorded launch cannot fall back.
 */
#include "substitution.h"

#include <stdlib.h>
#include <string.h>

#include "record.h"

static const int64_t MOST_BLOCKS[] = {INT32_MAX, 65535, 65535}, MOST_THREADS[] = {1024, 1024, 64};
static const size_t MOST_IMAGE_BYTES = (size_t)1 << 30;
enum { FREELY_SHARED = 48 << 10 }; /* dynamic shared bytes that need no attribute */

static int64_t value_of(const kw_kernel *kernel, const kw_launch *launch, const unsigned char *area,
                        kw_source source)
{
    uint64_t word = 0;
    unsigned size = source.size;
    switch (source.from) {
    case KW_GRID:
        return launch->grid[source.index];
    case KW_BLOCK:
        return launch->block[source.index];
    case KW_SHARED:
        return launch->shared_bytes;
    default:
        memcpy(&word, area + kernel->offsets[source.index] + source.at, size);
        if (!source.is_unsigned && size < 8 && word >> (8 * size - 1))
            word |= ~(uint64_t)0 << 8 * size;
        return (int64_t)word;
    }
}

static int is_true(const kw_program *program, const int64_t *symbols)
{
    int64_t value;
    return kw_program_value(program, symbols, &value) && value;
}

static int has_layout(const kw_rule *rule, const kw_kernel *kernel)
{
    if (kernel->unreadable || kernel->parameter_count != rule->parameter_count)
        return 0;
    for (unsigned i = 0; i < rule->parameter_count; i++)
        if (kernel->sizes[i] != rule->sizes[i])
            return 0;
    return 1;
}

/* Why a launch is not one that the rule is about, or NULL; fills in the symbols. */
static const char *differs(const kw_rule *rule, const kw_kernel *kernel, const kw_launch *launch,
                           const unsigned char *area, int64_t *symbols)
{
    int64_t value;
    if (!has_layout(rule, kernel))
        return "the kernel's parameters are not those of the spec";
    if (launch->cooperative || launch->cluster[0])
        return "it is launched cooperatively or in clusters";
    for (unsigned i = 0; i < rule->symbol_count; i++) {
        const kw_symbol *symbol = &rule->symbols[i];
        value = value_of(kernel, launch, area, symbol->source);
        if (value % symbol->divisor)
            return "a size is not the multiple that the spec says";
        symbols[i] = value / symbol->divisor;
    }
    for (unsigned i = 0; i < rule->check_count; i++)
        if (!kw_program_value(&rule->checks[i].program, symbols, &value) ||
            value != value_of(kernel, launch, area, rule->checks[i].source))
            return "its grid, block, shared memory or arguments are not those of the spec";
    for (unsigned i = 0; i < rule->domain_count; i++)
        if (!is_true(&rule->domain[i], symbols))
            return "the shape is outside the domain";
    return NULL;
}

/* Whether programs yield a launch that a device can have. */
static int plan(const kw_variant *variant, const int64_t *symbols, kw_substitution *to)
{
    int64_t value;
    for (unsigned i = 0; i < variant->condition_count; i++)
        if (!is_true(&variant->conditions[i], symbols))
            return 0;
    for (int axis = 0; axis < 3; axis++) {
        if (!kw_program_value(&variant->grid[axis], symbols, &value) || value < 1 ||
            value > MOST_BLOCKS[axis])
            return 0;
        to->grid[axis] = (unsigned)value;
        if (!kw_program_value(&variant->block[axis], symbols, &value) || value < 1 ||
            value > MOST_THREADS[axis])
            return 0;
        to->block[axis] = (unsigned)value;
    }
    if (!kw_program_value(&variant->shared, symbols, &value) || value < 0 || value > INT32_MAX)
        return 0;
    to->shared_bytes = (unsigned)value;
    return 1;
}

static const char *choose(kw_rule *rule, const int64_t *symbols, kw_substitution *to)
{
    int64_t value;
    int infeasible = 0;
    for (unsigned i = 0; i < rule->buffer_count; i++) {
        if (!kw_program_value(&rule->buffers[i].bytes, symbols, &value) || value < 0)
            return "the size of a buffer is undefined";
        to->bytes[i] = (uint64_t)value;
    }
    for (unsigned i = 0; i < rule->use_count; i++) {
        if (!is_true(&rule->uses[i].when, symbols))
            continue;
        if (rule->uses[i].variant < 0)
            break;
        if (plan(&rule->variants[rule->uses[i].variant], symbols, to)) {
            to->variant = &rule->variants[rule->uses[i].variant];
            return NULL;
        }
        infeasible = 1;
    }
    return infeasible ? "no tuned kernel is feasible" : "the original is the fastest";
}

/* Why a loaded function cannot take the arguments, or NULL. */
static const char *mismatch(const kw_rule *rule, const kw_variant *variant, CUfunction function)
{
    size_t offset, size;
    for (unsigned i = 0; i < variant->argument_count; i++)
        if (KW_CU(cuFuncGetParamInfo, function, i, &offset, &size) ||
            size != rule->sizes[variant->arguments[i]])
            return "its parameters are not those of the spec";
    if (!KW_CU(cuFuncGetParamInfo, function, variant->argument_count, &offset, &size))
        return "it has more parameters than the spec";
    return NULL;
}

static CUfunction load(const kw_rule *rule, const kw_variant *variant)
{
    CUmodule module;
    CUfunction function = NULL;
    int mode = CU_CAPTURE_MODE_RELAXED; /* a stream may be recording a graph */
    const char *why = "its image cannot be read";
    size_t size;
    void *image = kw_record_read(variant->image, MOST_IMAGE_BYTES, &size);
    if (image) {
        KW_CU(cuThreadExchangeStreamCaptureMode, &mode);
        why = "its image cannot be loaded on this device";
        if (!KW_CU(cuModuleLoadData, &module, image)) {
            why = "its image does not hold the kernel";
            if (!KW_CU(cuModuleGetFunction, &function, module, variant->entry))
                why = mismatch(rule, variant, function);
        }
        KW_CU(cuThreadExchangeStreamCaptureMode, &mode);
        free(image);
    }
    if (why)
        kw_record_note(rule->kernel, "a tuned kernel is not used: %s", why);
    return why ? NULL : function;
}

static CUfunction loaded(const kw_rule *rule, kw_variant *variant, CUcontext context)
{
    for (unsigned i = 0; i < variant->loaded_count; i++)
        if (variant->loaded[i].context == context)
            return variant->loaded[i].function;
    if (variant->loaded_count == KW_MOST_CONTEXTS)
        return NULL;
    CUfunction function = load(rule, variant);
    variant->loaded[variant->loaded_count].context = context;
    variant->loaded[variant->loaded_count++].function = function;
    return function;
}

/* Whether the device lets this function be launched so; sets what it needs for that. */
static int fits(CUfunction function, const kw_substitution *to)
{
    int threads = 0, fixed = 0, most = 0;
    uint64_t wanted = (uint64_t)to->block[0] * to->block[1] * to->block[2];
    CUdevice device;
    if (KW_CU(cuFuncGetAttribute, &threads, CU_FUNC_MAX_THREADS, function) ||
        KW_CU(cuFuncGetAttribute, &fixed, CU_FUNC_SHARED_BYTES, function) ||
        KW_CU(cuCtxGetDevice, &device) ||
        KW_CU(cuDeviceGetAttribute, &most, CU_DEVICE_MAX_SHARED_BYTES_OPTIN, device) ||
        wanted > (uint64_t)threads || to->shared_bytes + (uint64_t)fixed > (uint64_t)most)
        return 0;
    return to->shared_bytes + (uint64_t)fixed <= FREELY_SHARED ||
           !KW_CU(cuFuncSetAttribute, function, CU_FUNC_MAX_DYNAMIC_SHARED_BYTES,
                  (int)to->shared_bytes);
}

static void log_decision(const kw_shape *shape, const kw_substitution *to, const char *why)
{
    kw_text line = {0};
    kw_text_add(&line, "{\"decision\":%u,\"shape\":%u,\"substituted\":%s,\"reason\":", to->slot,
                shape->slot, to->variant ? "true" : "false");
    kw_text_quoted(&line, why ? why : "");
    kw_text_add(&line, ",\"image\":");
    kw_text_quoted(&line, to->variant ? to->variant->image : "");
    kw_text_add(&line, "}");
    kw_record_line(&line);
}

static kw_substitution *decide(kw_shape *shape, const kw_launch *launch, const unsigned char *area)
{
    int64_t symbols[KW_MOST_SYMBOLS];
    kw_rule *rule = shape->kernel->rule;
    kw_substitution *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->slot = kw_record_slot();
    const char *why = differs(rule, shape->kernel, launch, area, symbols);
    if (!why)
        why = choose(rule, symbols, made);
    log_decision(shape, made, why);
    return shape->substitution = made;
}

/* Whether the pointers of this launch are as the tuned kernel may assume. */
static int has_apart_buffers(const kw_shape *shape, const unsigned char *area)
{
    const kw_rule *rule = shape->kernel->rule;
    CUdeviceptr starts[KW_MOST_BUFFERS];
    for (unsigned i = 0; i < rule->null_count; i++) {
        CUdeviceptr value;
        memcpy(&value, area + shape->kernel->offsets[rule->nulls[i]], 8);
        if (value)
            return 0;
    }
    for (unsigned i = 0; i < rule->buffer_count; i++) {
        const kw_buffer_rule *buffer = &rule->buffers[i];
        memcpy(&starts[i], area + shape->kernel->offsets[buffer->parameter], 8);
        if (!starts[i] || starts[i] % buffer->align)
            return 0;
        for (unsigned j = 0; j < i; j++)
            if ((buffer->is_written || rule->buffers[j].is_written) &&
                starts[i] < starts[j] + shape->substitution->bytes[j] &&
                starts[j] < starts[i] + shape->substitution->bytes[i])
                return 0;
    }
    return 1;
}

/* Attributes that a launch may lose: hints, and permission to start early. */
static int has_plain_attributes(const kw_launch *launch)
{
    static const int harmless[] = {0, 1, 2, 3, 4, 6, 8, 14};
    for (unsigned i = 0; i < launch->attribute_count; i++) {
        int found = 0;
        for (size_t j = 0; j < sizeof harmless / sizeof *harmless; j++)
            found = found || launch->attributes[i].id == harmless[j];
        if (!found)
            return 0;
    }
    return 1;
}

int kw_substitute(kw_shape *shape, const kw_launch *launch, unsigned char *area, kw_launch *to,
                  void **parameters)
{
    kw_kernel *kernel = shape->kernel;
    kw_substitution *chosen = shape->substitution;
    CUcontext context = NULL;
    if (!chosen && !(chosen = decide(shape, launch, area)))
        return 0;
    if (!chosen->variant || !has_apart_buffers(shape, area) || !has_plain_attributes(launch) ||
        KW_CU(cuCtxGetCurrent, &context) || !context)
        return 0;
    if (chosen->context != context) {
        chosen->context = context;
        chosen->function = loaded(kernel->rule, (kw_variant *)chosen->variant, context);
        if (chosen->function && !fits(chosen->function, chosen)) {
            kw_record_note(kernel->name, "a tuned kernel is not used: its block or its shared "
                                         "memory is too large for this device");
            chosen->function = NULL;
        }
    }
    if (!chosen->function)
        return 0;
    for (unsigned i = 0; i < chosen->variant->argument_count; i++)
        parameters[i] = area + kernel->offsets[chosen->variant->arguments[i]];
    *to = (kw_launch){.function = chosen->function,
                      .shared_bytes = chosen->shared_bytes,
                      .stream = launch->stream,
                      .parameters = parameters};
    memcpy(to->grid, chosen->grid, sizeof to->grid);
    memcpy(to->block, chosen->block, sizeof to->block);
    return 1;
}
