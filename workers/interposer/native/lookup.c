/* Intercepts dlsym and cuGetProcAddress, and answers with our functions where we have one.
 *
 * Only lookups of "cu…" in an explicit handle are answered here. All else jumps to the next dlsym
 * with the caller's return address in place, since RTLD_NEXT depends on the caller.
 */
#define _GNU_SOURCE
#include "lookup.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "hooks.h"

#ifndef __x86_64__
#error "the interposer supports x86-64 only"
#endif

#define NAME_LENGTH 128

typedef void *(*dlsym_function)(void *, const char *);

/* Read by the assembly below; set before the first jump. */
__attribute__((visibility("hidden"))) dlsym_function kw_dlsym_next;

static void find_next(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5"};
    for (size_t i = 0; i < sizeof versions / sizeof *versions && !kw_dlsym_next; i++)
        *(void **)&kw_dlsym_next = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
}

void *kw_next_dlsym(void *handle, const char *name)
{
    if (!kw_dlsym_next)
        find_next();
    return kw_dlsym_next ? kw_dlsym_next(handle, name) : NULL;
}

/* Our answer to dlsym(handle, name), or NULL if the next dlsym is to answer. */
__attribute__((visibility("hidden"), used)) void *kw_dlsym_answer(void *handle, const char *name)
{
    if (!kw_dlsym_next)
        find_next();
    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || !name || name[0] != 'c' || name[1] != 'u')
        return NULL;
    void *ours = kw_replacement(name);
    void *found = ours && kw_dlsym_next ? kw_dlsym_next(handle, name) : NULL;
    void *driver = found ? kw_driver_symbol(name) : NULL;
    return found && (!driver || found == driver) ? ours : NULL; /* not another library's function */
}

/* dlsym(handle in rdi, name in rsi). */
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        "    endbr64\n"
        "    push %rdi\n"
        "    push %rsi\n"
        "    sub $8, %rsp\n"
        "    call kw_dlsym_answer\n"
        "    add $8, %rsp\n"
        "    pop %rsi\n"
        "    pop %rdi\n"
        "    test %rax, %rax\n"
        "    jz 1f\n"
        "    ret\n"
        "1:  jmp *kw_dlsym_next(%rip)\n"
        ".size dlsym, . - dlsym\n");

/* The exported name of what cuGetProcAddress(name, version, flags) returns, if we replace it. */
static void exported_name(const char *name, int version, uint64_t flags, char *full)
{
    static const struct {
        const char *name, *exported;
        int version;
    } versioned[] = {
        {"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
        {"cuGraphAddKernelNode", "cuGraphAddKernelNode_v2", 12000},
        {"cuGraphKernelNodeSetParams", "cuGraphKernelNodeSetParams_v2", 12000},
        {"cuGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams_v2", 12000},
        {"cuGraphExecUpdate", "cuGraphExecUpdate_v2", 12000},
        {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000},
    };
    const char *suffix = "";
    for (size_t i = 0; i < sizeof versioned / sizeof *versioned; i++)
        if (!strcmp(name, versioned[i].name)) {
            /* Older versions of these have other arguments; they are left alone. */
            int same = !strcmp(name, "cuGetProcAddress");
            name = version >= versioned[i].version ? versioned[i].exported : same ? name : "";
            break;
        }
    if ((flags & CU_GET_PROC_PER_THREAD_STREAM) &&
        (!strncmp(name, "cuLaunch", 8) || !strcmp(name, "cuGraphLaunch") ||
         !strcmp(name, "cuGraphInstantiateWithParams")))
        suffix = "_ptsz";
    snprintf(full, NAME_LENGTH, "%s%s", name, suffix);
}

static void replace(const char *name, void **found, int version, uint64_t flags)
{
    char full[NAME_LENGTH];
    if (!name || !found || !*found || strlen(name) >= NAME_LENGTH - 8)
        return;
    exported_name(name, version, flags, full);
    void *ours = kw_replacement(full);
    if (ours)
        *found = ours;
}

KW_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags,
                                       int *status)
{
    CUresult (*real)(const char *, void **, int, uint64_t, int *);
    *(void **)&real = kw_driver_symbol("cuGetProcAddress_v2");
    CUresult result = real ? real(name, found, version, flags, status) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS)
        replace(name, found, version, flags);
    return result;
}

KW_EXPORT CUresult cuGetProcAddress(const char *name, void **found, int version, uint64_t flags)
{
    CUresult (*real)(const char *, void **, int, uint64_t);
    *(void **)&real = kw_driver_symbol("cuGetProcAddress");
    CUresult result = real ? real(name, found, version, flags) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS)
        replace(name, found, version, flags);
    return result;
}
