/* What the files of the stand-in driver share. */
#include "driver.h"

#define API __attribute__((visibility("default"))) CUresult

/* A grid of this width is refused at launch. */
#define REFUSED_GRID 77777

struct CUfunc_st {
    char name[512];
    void (*run)(const unsigned *grid, const unsigned *block, void **params);
    const int *sizes;
    void *owner;
    int is_kernel, max_dynamic;
};

API cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset, size_t *size);
API cuEventRecord(CUevent event, CUstream stream);

/* Runs a kernel at once. */
CUresult stand_in_run(const CUDA_KERNEL_NODE_PARAMS *launch);

/* Whether launches into a stream are recorded, and recording one. */
int stand_in_records(CUstream stream);
CUresult stand_in_record(const CUDA_KERNEL_NODE_PARAMS *launch);
