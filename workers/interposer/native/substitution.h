/* Decides for each shape whether its launches are replaced, and launches what replaces them. */
#ifndef KW_SUBSTITUTION_H
#define KW_SUBSTITUTION_H

#include "kernels.h"
#include "rules.h"

typedef struct kw_substitution {
    const kw_variant *variant; /* NULL: the original runs */
    unsigned slot;             /* of its counter */
    CUcontext context;         /* that `function` is loaded in */
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    uint64_t bytes[KW_MOST_BUFFERS]; /* of each buffer of the rule */
    unsigned verified;
} kw_substitution;

/* Fills `to` with the launch that replaces `launch`; 0 if the original is to run.
 *
 * Its parameters point into `area`, from `parameters` (KW_MOST_ARGUMENTS pointers). */
int kw_substitute(kw_shape *shape, const kw_launch *launch, unsigned char *area, kw_launch *to,
                  void **parameters);

#endif
