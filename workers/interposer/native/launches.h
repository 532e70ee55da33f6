/* What happens at each launch, by mode. */
#ifndef KW_LAUNCHES_H
#define KW_LAUNCHES_H

#include "hooks.h"

/* Performs the launch by `call`, or what replaces it, and records it. */
CUresult kw_launched(const kw_launch *launch, kw_call call, void *real);

/* Makes or changes a kernel node of a graph. */
typedef CUresult (*kw_node_call)(const CUDA_KERNEL_NODE_PARAMS *params, void *context);

/* Makes a node of what replaces the kernel; 0 if the caller is to make it as it is. */
int kw_replaced_node(const CUDA_KERNEL_NODE_PARAMS *params, kw_node_call call, void *context,
                     CUresult *result);

#endif
