/* Runs the original and the tuned kernel on the same data, and compares what they wrote. */
#ifndef KW_VERIFY_H
#define KW_VERIFY_H

#include "observe.h"

/* Whether a launch of this shape is to be compared. */
int kw_verify_wants(const kw_shape *shape);

/* Runs the original, and the tuned kernel from the same state; leaves the original's results. */
CUresult kw_verify(kw_shape *shape, const kw_launch *launch, unsigned char *area,
                   kw_original original, void *context);

#endif
