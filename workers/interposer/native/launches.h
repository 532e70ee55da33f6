/* What happens at each launch, by mode. */
#ifndef KW_LAUNCHES_H
#define KW_LAUNCHES_H

#include "hooks.h"

/* Performs the launch by `call`, and records it. */
CUresult kw_launched(const kw_launch *launch, kw_call call, void *real);

#endif
