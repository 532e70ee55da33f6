/* What is done around a single launch, in a stream or as part of a graph: capture or verify. */
#ifndef KW_OBSERVE_H
#define KW_OBSERVE_H

#include "kernels.h"

/* Runs the launch that is observed. */
typedef CUresult (*kw_original)(void *context);

/* Whether a launch of this shape is to be observed. */
int kw_observes(const kw_shape *shape);

/* Runs the launch by `original`, when its stream has settled, and observes it. */
CUresult kw_observe(kw_shape *shape, const kw_launch *launch, unsigned char *area, int from_graph,
                    kw_original original, void *context);

/* Gives up observing a shape, and notes why. */
void kw_unobserve(kw_shape *shape, const char *why);

#endif
