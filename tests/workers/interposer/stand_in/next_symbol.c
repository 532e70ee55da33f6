/* Looks symbols up in ways that a library in between may break; prints 1 for each that is right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* As weak forwarders in libraries do: the next function of this name, not this one. */
__attribute__((visibility("default"))) void *forwarded(void)
{
    return dlsym(RTLD_NEXT, "forwarded");
}

/* A function of the driver's name in another library stays that library's. */
__attribute__((visibility("default"))) int cuLaunchKernel(void) { return 7; }

#ifndef FORWARDER
static int is_in(void *symbol, const char *file)
{
    Dl_info info;
    return symbol && dladdr(symbol, &info) && strstr(info.dli_fname, file);
}

int main(int argc, char **argv)
{
    void *self = dlopen(NULL, RTLD_LAZY), *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    void *other = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void *next = dlsym(RTLD_NEXT, "puts"), *first = dlsym(RTLD_DEFAULT, "puts");
    void *(*forwarder)(void);
    *(void **)&forwarder = other ? dlsym(other, "forwarded") : NULL;
    printf("%d", next && next == first && first == dlsym(self, "puts"));
    printf("%d", next == dlsym(RTLD_NEXT, "puts")); /* also when it is looked up again */
    printf("%d", !dlsym(driver, "cuNothing") && !dlsym(self, "no_such_function"));
    printf("%d", forwarder && !forwarder());
    printf("%d", is_in(dlsym(driver, "cuInit"), "libcuda.so.1"));
    printf("%d\n", other && is_in(dlsym(other, "cuLaunchKernel"), argv[1]));
    return 0;
}
#endif
