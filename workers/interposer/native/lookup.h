/* How applications find driver functions: dlsym and cuGetProcAddress. */
#ifndef KW_LOOKUP_H
#define KW_LOOKUP_H

/* The dlsym that would answer without this library. */
void *kw_next_dlsym(void *handle, const char *name);

/* Our function in place of driver function `name`, or NULL if it is not intercepted. */
void *kw_replacement(const char *name);

#endif
