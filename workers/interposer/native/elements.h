/* Compares device results element by element, by the rules of workers/comparison.py. */
#ifndef KW_ELEMENTS_H
#define KW_ELEMENTS_H

#include <stddef.h>

#include "rules.h"

typedef struct {
    size_t failures; /* elements beyond the tolerance */
    size_t unequal;  /* elements that are not equal bit for bit */
    double worst;    /* largest distance of a failing or unequal element */
} kw_difference;

/* Compares `bytes` bytes of elements; 0 if memory ran out. */
int kw_compare_elements(const kw_buffer_rule *rule, const unsigned char *got,
                        const unsigned char *want, size_t bytes, kw_difference *difference);

#endif
