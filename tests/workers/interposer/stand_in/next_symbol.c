/* Prints whether lookups that depend on the caller, or have no handle, are as without a library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
    void *self = dlopen(NULL, RTLD_LAZY);
    void *next = dlsym(RTLD_NEXT, "puts"), *first = dlsym(RTLD_DEFAULT, "puts");
    int same = next && next == first && first == dlsym(self, "puts");
    printf("%d %d %d\n", same, !dlsym(self, "cuNothing"), !dlsym(self, "no_such_function"));
    return 0;
}
