/* Rules that say which launches are replaced, and by what; read from the file of rules.
 *
 * A rule is about one kernel. From a launch's arguments and grid it computes the values of symbols.
 * Programs over these say whether the launch is one that the rule is about, which variant serves
 * it, and how that is launched.
 */
#ifndef KW_RULES_H
#define KW_RULES_H

#include <stddef.h>

#include "driver.h"
#include "program.h"

enum {
    KW_MOST_SYMBOLS = 32,
    KW_MOST_CHECKS = 64,
    KW_MOST_BUFFERS = 64,
    KW_MOST_VARIANTS = 64,
    KW_MOST_USES = 128,
    KW_MOST_ARGUMENTS = 128,
    KW_MOST_CONTEXTS = 16,
};

/* A number of a launch: an integer in a parameter, an axis of grid or block, or the shared bytes. */
typedef struct {
    enum { KW_PARAMETER, KW_GRID, KW_BLOCK, KW_SHARED } from;
    unsigned index, at, size; /* of a parameter: the integer's place in it and its bytes */
    int is_unsigned;
} kw_source;

typedef struct {
    kw_source source;
    int64_t divisor;
} kw_symbol;

/* The program has the value of the source. */
typedef struct {
    kw_source source;
    kw_program program;
} kw_check;

typedef enum { KW_CLOSE, KW_EXACT, KW_UNORDERED, KW_ULP } kw_comparison;

/* Device memory behind a pointer parameter. */
typedef struct {
    unsigned parameter, align;
    int is_written, is_compared;
    char element[16];
    kw_comparison comparison;
    double rtol, atol, ulp;
    int is_scaled; /* atol is times the median magnitude, where that is above 1 */
    kw_program bytes;
} kw_buffer_rule;

typedef struct {
    char image[4096], entry[4096];
    unsigned arguments[KW_MOST_ARGUMENTS], argument_count; /* indices of the kernel's parameters */
    kw_program conditions[KW_MOST_CHECKS];
    unsigned condition_count;
    kw_program grid[3], block[3], shared;
    /* Loaded once in each context; a NULL function: it cannot be used there. */
    struct {
        CUcontext context;
        CUfunction function;
    } loaded[KW_MOST_CONTEXTS];
    unsigned loaded_count;
} kw_variant;

typedef struct kw_rule {
    char kernel[4096];
    size_t sizes[KW_MOST_ARGUMENTS];
    unsigned parameter_count, symbol_count, check_count, null_count, buffer_count;
    unsigned variant_count, use_count, domain_count;
    kw_symbol symbols[KW_MOST_SYMBOLS];
    kw_check checks[KW_MOST_CHECKS];
    unsigned nulls[KW_MOST_ARGUMENTS];
    kw_buffer_rule buffers[KW_MOST_BUFFERS];
    kw_program domain[KW_MOST_CHECKS];
    kw_variant *variants;
    struct {
        int variant; /* -1: the original */
        kw_program when;
    } uses[KW_MOST_USES];
    struct kw_rule *next;
} kw_rule;

/* Reads the file that the settings name; 0, and a note, if it is malformed. */
int kw_rules_read(void);

/* The rule for a kernel, or NULL. */
kw_rule *kw_rule_for(const char *name);

/* Forgets what was loaded, in a process that was forked. */
void kw_rules_forget(void);

#endif
