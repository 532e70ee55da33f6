/* The modules that the application loaded: cubin, fatbin or PTX. Kept when capturing only. */
#ifndef KW_IMAGES_H
#define KW_IMAGES_H

#include "driver.h"

/* Keeps the image that `owner` (a CUmodule or CUlibrary) was loaded from. */
void kw_image_keep(void *owner, const void *image);

/* Keeps the content of the file that `owner` was loaded from. */
void kw_image_keep_file(void *owner, const char *path);

/* Forgets that `owner` exists; what is written already stays. */
void kw_image_unloaded(void *owner);

/* 1 + the number of the image that has this kernel, or 0 if it is not known. */
unsigned kw_image_of(CUfunction handle, int library);

/* Writes the image to a file and logs it, once; 0 if that fails. */
int kw_image_write(unsigned image);

/* Forgets everything, in a process that was forked. */
void kw_images_forget(void);

#endif
