/* Records one launch: arguments, and device memory before and after it. */
#ifndef KW_CAPTURE_H
#define KW_CAPTURE_H

#include "kernels.h"

typedef struct kw_capture kw_capture;

/* Whether a launch of this shape is to be captured. */
int kw_capture_wants(const kw_shape *shape);

/* Records the memory before a launch, when its stream has settled; NULL if it cannot be captured,
 * which is then noted. */
kw_capture *kw_capture_begin(kw_shape *shape, const unsigned char *area, int from_graph);

/* Records the memory after the launch, when it has finished; drops the capture if it failed. */
void kw_capture_end(kw_capture *capture, const unsigned char *area, CUresult result);

/* Notes objects whose handle or content, as an argument, stands for memory that is not seen. */
void kw_capture_saw_texture(uint64_t handle);
void kw_capture_saw_tensor_map(const void *map);

/* Forgets everything, in a process that was forked. */
void kw_capture_forget(void);

#endif
