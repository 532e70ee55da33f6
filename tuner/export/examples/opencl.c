/* $experiment: a whole program that launches what $header picks for a shape.
 *
 * Build and run it in the folder of the export:
 *     cc -std=c99 example.c -lOpenCL -o example && ./example .
 * It needs OpenCL's headers and loader (Debian: opencl-c-headers, ocl-icd-opencl-dev). That loader
 * does not know the PoCL that pip installed: set the variable OCL_ICD_VENDORS to the path of its
 * library, libpocl-....so in site-packages/pyopencl/.libs.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdlib.h>
#include <string.h>

#include "$header"

typedef cl_mem buffer_t;

$common
static void check(cl_int status, const char *what)
{
    if (status != CL_SUCCESS) {
        fprintf(stderr, "%s failed with status %d\n", what, (int)status);
        exit(1);
    }
}

/* The device that the kernels were tuned for, or else the first one. */
static cl_device_id find_device(void)
{
    cl_platform_id platforms[16];
    cl_device_id devices[16], first = NULL;
    cl_uint platform_count = 0, device_count, p, d;
    char name[256];
    if (clGetPlatformIDs(16, platforms, &platform_count)) {
        fprintf(stderr, "the OpenCL loader finds no driver: install one, or name its library in the"
                        " variable OCL_ICD_VENDORS\n");
        exit(1);
    }
    for (p = 0; p < platform_count && p < 16; ++p) {
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 16, devices, &device_count))
            continue;
        for (d = 0; d < device_count && d < 16; ++d) {
            first = first ? first : devices[d];
            check(clGetDeviceInfo(devices[d], CL_DEVICE_NAME, sizeof name, name, NULL), "name");
            if (!strncmp(name, $device, strlen($device)))
                return devices[d];
        }
    }
    if (!first) {
        fprintf(stderr, "there is no OpenCL device\n");
        exit(1);
    }
    fprintf(stderr, "note: %s is not here; the kernels may be slow on this device\n", $device);
    return first;
}

static cl_program build(
    cl_context context, cl_device_id device, const char *folder, int variant, const ${prefix}_shape *s)
{
    char options[8192], log[8192];
    char *source = read_file(folder, ${prefix}_file(variant));
    const char *text = source;
    cl_int status;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &status);
    int used = ${prefix}_options(variant, s, options, sizeof options);
    check(status, "clCreateProgramWithSource");
    if (used < 0 || (size_t)used + strlen(folder) + 5 > sizeof options)
        exit(1);
    sprintf(options + used, " -I %s", folder);
    status = clBuildProgram(program, 1, &device, options, NULL, NULL);
    if (status != CL_SUCCESS) {
        log[0] = 0;
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        fprintf(stderr, "%s\n", log);
    }
    check(status, "clBuildProgram");
    free(source);
    return program;
}

static void launch(
    cl_command_queue queue, cl_program program, const ${prefix}_step *t, argument *all, int count)
{
    const char *at = t->arguments;
    size_t global[3], local[3];
    cl_uint place = 0;
    cl_int status;
    cl_kernel kernel;
    int axis;
    if (t->memset) {
        argument *a = named(all, count, at, strlen(at));
        cl_uchar byte = (cl_uchar)t->byte;
        check(clEnqueueFillBuffer(queue, a->buffer, &byte, 1, 0, a->size, 0, NULL, NULL), "fill");
        return;
    }
    kernel = clCreateKernel(program, t->entry, &status);
    check(status, t->entry);
    while (*at) {
        size_t length = strcspn(at, ",");
        argument *a = named(all, count, at, length);
        if (a->kind == 's')
            check(clSetKernelArg(kernel, place++, a->size, a->value), a->name);
        else
            check(clSetKernelArg(kernel, place++, sizeof a->buffer,
                                 a->kind == 'b' ? (void *)&a->buffer : NULL), a->name);
        at += length;
        at += strspn(at, ", ");
    }
    for (axis = 0; axis < 3; ++axis) {
        local[axis] = (size_t)t->block[axis];
        global[axis] = (size_t)t->grid[axis] * local[axis]; /* the grid counts work-groups */
    }
    check(clEnqueueNDRangeKernel(queue, kernel, 3, NULL, global, local, 0, NULL, NULL), t->entry);
    clReleaseKernel(kernel);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    const ${prefix}_shape shape = {$shape};
    int variant = ${prefix}_select(&shape), i, count;
    argument all[$most];
    ${prefix}_step step;
    cl_int status;
    cl_device_id device = find_device();
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    cl_command_queue queue;
    cl_program program;
    check(status, "clCreateContext");
    queue = clCreateCommandQueue(context, device, 0, &status);
    check(status, "clCreateCommandQueue");
    if (!launchable(variant, &shape)) {
        printf("nothing to launch\n");
        return 0;
    }
    count = with_scratch(variant, &shape, all, arguments_of(&shape, all));
    for (i = 0; i < count; ++i)
        if (all[i].kind == 'b') {
            unsigned char *bytes = filled(&all[i]);
            all[i].buffer = clCreateBuffer(
                context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, all[i].size, bytes, &status);
            check(status, all[i].name);
            free(bytes);
        }
    program = build(context, device, folder, variant, &shape); /* keep it: one build per options */
    for (i = 0; i < ${prefix}_steps(variant); ++i) {
        ${prefix}_step_of(variant, i, &shape, &step);
        launch(queue, program, &step, all, count);
    }
    printf("launched %s\n", ${prefix}_file(variant));
    for (i = 0; i < count; ++i)
        if (all[i].shown) {
            unsigned char *bytes = filled(&all[i]);
            check(clEnqueueReadBuffer(
                      queue, all[i].buffer, CL_TRUE, 0, all[i].size, bytes, 0, NULL, NULL), "read");
            print(&all[i], bytes);
            free(bytes);
        }
    for (i = 0; i < count; ++i)
        if (all[i].kind == 'b')
            clReleaseMemObject(all[i].buffer);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    return 0;
}
