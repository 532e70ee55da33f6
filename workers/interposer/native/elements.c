/* Elements as numbers, and their comparison. */
#include "elements.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 1 << 16 };

typedef enum { SIGNED, UNSIGNED, FLOATING, BRAIN, E4M3, E5M2, RAW } kind;

typedef struct {
    kind kind;
    unsigned size;
} element;

static element element_of(const char *name)
{
    static const struct {
        const char *name;
        element element;
    } known[] = {
        {"bool", {UNSIGNED, 1}},     {"int8", {SIGNED, 1}},      {"int16", {SIGNED, 2}},
        {"int32", {SIGNED, 4}},      {"int64", {SIGNED, 8}},     {"uint8", {UNSIGNED, 1}},
        {"uint16", {UNSIGNED, 2}},   {"uint32", {UNSIGNED, 4}},  {"uint64", {UNSIGNED, 8}},
        {"float16", {FLOATING, 2}},  {"float32", {FLOATING, 4}}, {"float64", {FLOATING, 8}},
        {"bfloat16", {BRAIN, 2}},    {"float8_e4m3", {E4M3, 1}}, {"float8_e5m2", {E5M2, 1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name))
            return known[i].element;
    return (element){RAW, 1}; /* compared bit for bit */
}

static double half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 31  ? (fraction ? NAN : INFINITY)
                  : exponent == 0 ? ldexp(fraction, -24)
                                  : ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 ? -size : size;
}

static double brain(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* float16 with another bias, and a NaN where that has its greatest numbers. */
static double e4m3(uint8_t bits)
{
    double size = (bits & 127) == 127 ? NAN : 256 * half((uint16_t)((bits & 127) << 7));
    return bits >> 7 ? -size : size;
}

static double number(element type, const unsigned char *at)
{
    uint64_t bits = 0;
    float single;
    double wide;
    memcpy(&bits, at, type.size);
    switch (type.kind) {
    case SIGNED:
        return (double)((int64_t)(bits << (64 - 8 * type.size)) >> (64 - 8 * type.size));
    case BRAIN:
        return brain((uint16_t)bits);
    case E4M3:
        return e4m3((uint8_t)bits);
    case E5M2:
        return half((uint16_t)(bits << 8)); /* the upper half of a float16 */
    case FLOATING:
        if (type.size == 2)
            return half((uint16_t)bits);
        if (type.size == 4)
            return memcpy(&single, at, sizeof single), single;
        return memcpy(&wide, at, sizeof wide), wide;
    default:
        return (double)bits;
    }
}

/* The place of a floating-point value among all of its type, in their order. */
static int64_t place(element type, const unsigned char *at)
{
    uint64_t bits = 0, sign = (uint64_t)1 << (8 * type.size - 1);
    memcpy(&bits, at, type.size);
    if (type.kind == SIGNED)
        return (int64_t)(bits << (64 - 8 * type.size)) >> (64 - 8 * type.size);
    if (type.kind == UNSIGNED || type.kind == RAW)
        return (int64_t)bits;
    return bits & sign ? -(int64_t)(bits & ~sign) : (int64_t)bits;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    if (isnan(x) || isnan(y))
        return isnan(x) - isnan(y);
    return x < y ? -1 : x > y;
}

/* The median magnitude of at most SAMPLES elements; 0 if memory ran out. */
static double median(element type, const unsigned char *values, size_t count)
{
    size_t step = count / SAMPLES + 1, taken = 0;
    double *sizes = malloc((count / step + 1) * sizeof *sizes);
    if (!sizes)
        return 0;
    for (size_t i = 0; i < count; i += step)
        sizes[taken++] = fabs(number(type, values + i * type.size));
    qsort(sizes, taken, sizeof *sizes, by_size);
    double found = taken ? sizes[taken / 2] : 0;
    free(sizes);
    return isfinite(found) ? found : 0;
}

/* Whether two numbers differ by more than the tolerance. */
static int fails(double got, double want, double rtol, double atol)
{
    if (!isfinite(got) || !isfinite(want))
        return isnan(got) != isnan(want) || (!isnan(got) && got != want);
    return !(fabs(got - want) <= atol + rtol * fabs(want));
}

static void note(kw_difference *difference, double got, double want, int failed)
{
    double distance = fabs(got - want);
    difference->unequal++;
    difference->failures += failed != 0;
    if (isnan(distance) || distance > difference->worst)
        difference->worst = isnan(distance) ? INFINITY : distance;
}

static double *numbers(element type, const unsigned char *values, size_t count)
{
    double *list = malloc((count + 1) * sizeof *list);
    for (size_t i = 0; list && i < count; i++)
        list[i] = number(type, values + i * type.size);
    return list;
}

static int compare_sorted(element type, const unsigned char *got, const unsigned char *want,
                          size_t count, double rtol, double atol, kw_difference *difference)
{
    double *a = numbers(type, got, count), *b = numbers(type, want, count);
    if (a && b) {
        qsort(a, count, sizeof *a, by_size);
        qsort(b, count, sizeof *b, by_size);
        for (size_t i = 0; i < count; i++)
            if (a[i] != b[i] && !(isnan(a[i]) && isnan(b[i])))
                note(difference, a[i], b[i], fails(a[i], b[i], rtol, atol));
    }
    int good = a && b;
    free(a);
    free(b);
    return good;
}

int kw_compare_elements(const kw_buffer_rule *rule, const unsigned char *got,
                        const unsigned char *want, size_t bytes, kw_difference *difference)
{
    element type = element_of(rule->element);
    size_t count = bytes / type.size;
    double atol = rule->atol, scale;
    if (!memcmp(got, want, bytes))
        return 1;
    if (rule->is_scaled && (scale = median(type, want, count)) > 1)
        atol *= scale;
    if (rule->comparison == KW_UNORDERED)
        return compare_sorted(type, got, want, count, rule->rtol, atol, difference);
    for (size_t i = 0; i < count; i++) {
        const unsigned char *g = got + i * type.size, *w = want + i * type.size;
        if (!memcmp(g, w, type.size))
            continue;
        double a = number(type, g), b = number(type, w);
        int failed;
        if (isnan(a) && isnan(b))
            failed = 0;
        else if (type.kind == RAW)
            failed = 1;
        else if (rule->comparison == KW_ULP)
            failed = isnan(a) || isnan(b) ||
                     fabs((double)place(type, g) - (double)place(type, w)) > rule->ulp;
        else if (rule->comparison == KW_EXACT)
            failed = a != b || (type.kind <= UNSIGNED); /* unequal bits of integers */
        else
            failed = fails(a, b, rule->rtol, atol);
        note(difference, a, b, failed);
    }
    return 1;
}
