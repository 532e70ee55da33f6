/* Finds the driver's own functions in the libcuda that the application loaded. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>

#include "lookup.h"

kw_driver_table kw_driver;

void *kw_driver_symbol(const char *name)
{
    /* Never loads libcuda: this library is in processes that do not use CUDA, too. */
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *found = handle ? kw_next_dlsym(handle, name) : NULL;
    if (handle)
        dlclose(handle); /* drops the reference that dlopen took; the application keeps its own */
    return found;
}

int kw_driver_open(void)
{
    if (!kw_driver_symbol("cuInit"))
        return 0;
#define KW_FIND(name, arguments) *(void **)&kw_driver.name = kw_driver_symbol(#name);
    KW_DRIVER_FUNCTIONS(KW_FIND)
#undef KW_FIND
    return 1;
}
