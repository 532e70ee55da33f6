/* $experiment: a whole program that launches what $header picks for a shape.
 *
 * Build and run it in the folder of the export:
 *     nvcc example.c -lnvrtc -lcuda -o example && ./example .
 * It compiles the source at run time with NVRTC, which takes device code alone; CUDA_HOME names the
 * toolkit, whose headers the source may include. An application that is built with nvcc may compile
 * the source with the same options instead.
 */
#include <cuda.h>
#include <nvrtc.h>
#include <stdlib.h>
#include <string.h>

#include "$header"

typedef CUdeviceptr buffer_t;

$common
static void check(int status, const char *what)
{
    if (status) {
        fprintf(stderr, "%s failed with status %d\n", what, status);
        exit(1);
    }
}

/* Splits the options at spaces; returns how many there are. */
static int split(char *options, const char **words, int count)
{
    char *word = strtok(options, " ");
    for (; word && count < 64; word = strtok(NULL, " "))
        words[count++] = word;
    return count;
}

/* Compiles a variant for a shape; `lowered` gets the name in the module of each step's kernel. */
static CUmodule build(
    const char *folder, int variant, const ${prefix}_shape *s, char lowered[][1024])
{
    char options[8192], include[4096], toolkit[4096];
    char *source = read_file(folder, ${prefix}_file(variant)), *log, *code;
    const char *words[64] = {"--gpu-architecture=$arch", "--std=c++17"}, *name;
    ${prefix}_step t;
    nvrtcProgram program;
    CUmodule module;
    nvrtcResult status;
    size_t size;
    int i, count = 2;
    const char *home = getenv("CUDA_HOME");
    snprintf(include, sizeof include, "-I%s", folder);
    words[count++] = include;
    snprintf(toolkit, sizeof toolkit, "-I%s/include", home ? home : "/usr/local/cuda");
    words[count++] = toolkit;
    if ((size_t)${prefix}_options(variant, s, options, sizeof options) >= sizeof options)
        exit(1);
    count = split(options, words, count);
    check(nvrtcCreateProgram(&program, source, ${prefix}_file(variant), 0, NULL, NULL), "create");
    for (i = 0; i < ${prefix}_steps(variant); ++i)
        if (${prefix}_step_of(variant, i, s, &t) && !t.memset)
            check(nvrtcAddNameExpression(program, t.entry), t.entry);
    status = nvrtcCompileProgram(program, count, words);
    if (status != NVRTC_SUCCESS) {
        check(nvrtcGetProgramLogSize(program, &size), "log");
        log = calloc(1, size + 1);
        if (log && !nvrtcGetProgramLog(program, log))
            fprintf(stderr, "%s\n", log);
    }
    check(status, "nvrtcCompileProgram");
    for (i = 0; i < ${prefix}_steps(variant); ++i)
        if (${prefix}_step_of(variant, i, s, &t) && !t.memset) {
            check(nvrtcGetLoweredName(program, t.entry, &name), t.entry);
            snprintf(lowered[i], 1024, "%s", name);
        }
    check(nvrtcGetCUBINSize(program, &size), "size");
    code = malloc(size);
    if (!code)
        exit(1);
    check(nvrtcGetCUBIN(program, code), "cubin");
    check(cuModuleLoadData(&module, code), "cuModuleLoadData");
    nvrtcDestroyProgram(&program);
    free(code);
    free(source);
    return module;
}

static void launch(
    CUstream stream, CUfunction function, const ${prefix}_step *t, argument *all, int count)
{
    const char *at = t->arguments;
    void *values[$most], *null = NULL;
    CUlaunchAttribute attributes[3];
    CUlaunchConfig config;
    int place = 0;
    memset(&config, 0, sizeof config);
    memset(attributes, 0, sizeof attributes);
    while (*at) {
        size_t length = strcspn(at, ",");
        argument *a = named(all, count, at, length);
        values[place++] = a->kind == 's' ? (void *)a->value
                        : a->kind == 'b' ? (void *)&a->buffer : (void *)&null;
        at += length;
        at += strspn(at, ", ");
    }
    config.gridDimX = (unsigned)t->grid[0];
    config.gridDimY = (unsigned)t->grid[1];
    config.gridDimZ = (unsigned)t->grid[2];
    config.blockDimX = (unsigned)t->block[0];
    config.blockDimY = (unsigned)t->block[1];
    config.blockDimZ = (unsigned)t->block[2];
    config.sharedMemBytes = (unsigned)t->shared_bytes;
    config.hStream = stream;
    config.attrs = attributes;
    if (t->cooperative) {
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attributes[config.numAttrs++].value.cooperative = 1;
    }
    if (t->dependent) {
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[config.numAttrs++].value.programmaticStreamSerializationAllowed = 1;
    }
    if (t->cluster[0] * t->cluster[1] * t->cluster[2] > 1) {
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[config.numAttrs].value.clusterDim.x = (unsigned)t->cluster[0];
        attributes[config.numAttrs].value.clusterDim.y = (unsigned)t->cluster[1];
        attributes[config.numAttrs++].value.clusterDim.z = (unsigned)t->cluster[2];
    }
    if (t->shared_bytes)
        check(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                 (int)t->shared_bytes), "shared memory");
    check(cuLaunchKernelEx(&config, function, values, NULL), t->entry);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    const ${prefix}_shape shape = {$shape};
    int variant = ${prefix}_select(&shape), i, count;
    static char lowered[$most_steps][1024];
    argument all[$most];
    ${prefix}_step step;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUstream stream;
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    if (!launchable(variant, &shape)) {
        printf("nothing to launch\n");
        return 0;
    }
    count = with_scratch(variant, &shape, all, arguments_of(&shape, all));
    for (i = 0; i < count; ++i)
        if (all[i].kind == 'b') {
            unsigned char *bytes = filled(&all[i]);
            check(cuMemAlloc(&all[i].buffer, all[i].size), all[i].name);
            check(cuMemcpyHtoD(all[i].buffer, bytes, all[i].size), all[i].name);
            free(bytes);
        }
    module = build(folder, variant, &shape, lowered); /* keep it: one build per options */
    for (i = 0; i < ${prefix}_steps(variant); ++i) {
        ${prefix}_step_of(variant, i, &shape, &step);
        if (step.memset) {
            argument *a = named(all, count, step.arguments, strlen(step.arguments));
            check(cuMemsetD8Async(a->buffer, (unsigned char)step.byte, a->size, stream), "memset");
        } else {
            check(cuModuleGetFunction(&function, module, lowered[i]), lowered[i]);
            launch(stream, function, &step, all, count);
        }
    }
    check(cuStreamSynchronize(stream), "the kernel");
    printf("launched %s\n", ${prefix}_file(variant));
    for (i = 0; i < count; ++i)
        if (all[i].shown) {
            unsigned char *bytes = filled(&all[i]);
            check(cuMemcpyDtoH(bytes, all[i].buffer, all[i].size), all[i].name);
            print(&all[i], bytes);
            free(bytes);
        }
    for (i = 0; i < count; ++i)
        if (all[i].kind == 'b')
            cuMemFree(all[i].buffer);
    cuModuleUnload(module);
    cuStreamDestroy(stream);
    cuDevicePrimaryCtxRelease(device);
    return 0;
}
