/* Keeps module images, measured by their own headers, and writes those of captured kernels. */
#include "images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record.h"

enum { MOST_IMAGES = 8192 };
static const size_t MOST_BYTES = (size_t)1 << 32;
static const size_t MOST_COPIED = (size_t)256 << 20;
static const uint32_t WRAPPER_MAGIC = 0x466243b1, FATBIN_MAGIC = 0xba55ed50;

typedef struct {
    void *owner;
    const unsigned char *bytes;
    size_t size;
    const char *kind;
    int copied, written;
} kw_image;

static kw_image images[MOST_IMAGES];
static unsigned image_count;

static uint16_t u16(const unsigned char *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t u32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t u64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* The size of a 64-bit ELF file in memory: the end of its last section or header table. */
static size_t elf_size(const unsigned char *bytes)
{
    enum { NOBITS = 8 };
    uint64_t programs = u64(bytes + 32), sections = u64(bytes + 40);
    unsigned program_size = u16(bytes + 54), program_count = u16(bytes + 56);
    unsigned section_size = u16(bytes + 58), section_count = u16(bytes + 60);
    uint64_t end = sections + (uint64_t)section_size * section_count;
    if (programs + (uint64_t)program_size * program_count > end)
        end = programs + (uint64_t)program_size * program_count;
    if (sections > MOST_BYTES || end > MOST_BYTES || section_size < 64)
        return 0;
    for (unsigned i = 0; i < section_count; i++) {
        const unsigned char *section = bytes + sections + (uint64_t)section_size * i;
        uint64_t last = u64(section + 24) + u64(section + 32);
        if (u32(section + 4) != NOBITS && last > end)
            end = last;
    }
    return end > MOST_BYTES ? 0 : (size_t)end;
}

static void measure(kw_image *image, const void *given)
{
    const unsigned char *bytes = given;
    uint32_t magic = u32(bytes);
    image->copied = magic != WRAPPER_MAGIC; /* what is compiled in stays where it is */
    if (magic == WRAPPER_MAGIC) {
        bytes = (const unsigned char *)(uintptr_t)u64(bytes + 8);
        magic = u32(bytes);
    }
    image->bytes = bytes;
    if (magic == FATBIN_MAGIC) {
        image->kind = "fatbin";
        image->size = u16(bytes + 6) + u64(bytes + 8);
    } else if (!memcmp(bytes, "\177ELF", 4)) {
        image->kind = "cubin";
        image->size = elf_size(bytes);
    } else {
        image->kind = "ptx";
        image->size = strlen((const char *)bytes);
    }
}

static void keep(void *owner, const void *given)
{
    kw_image image = {.owner = owner};
    if (!given || image_count >= MOST_IMAGES)
        return;
    measure(&image, given);
    if (!image.size || image.size > (image.copied ? MOST_COPIED : MOST_BYTES))
        return;
    if (image.copied) {
        unsigned char *copy = malloc(image.size);
        if (!copy)
            return;
        image.bytes = memcpy(copy, image.bytes, image.size);
    }
    images[image_count++] = image;
}

void kw_image_keep(void *owner, const void *image)
{
    if (kw_settings.mode == KW_CAPTURE)
        keep(owner, image);
}

void kw_image_keep_file(void *owner, const char *path)
{
    size_t size = 0;
    void *content =
        kw_settings.mode == KW_CAPTURE ? kw_record_read(path, MOST_COPIED, &size) : NULL;
    if (size > 64)
        keep(owner, content);
    free(content);
}

void kw_image_unloaded(void *owner)
{
    for (unsigned i = 0; i < image_count; i++)
        if (images[i].owner == owner) {
            images[i].owner = NULL;
            if (images[i].copied) {
                free((void *)images[i].bytes);
                images[i].bytes = NULL;
            }
        }
}

static unsigned of_owner(const void *owner)
{
    for (unsigned i = image_count; owner && i--;)
        if (images[i].owner == owner)
            return i + 1;
    return 0;
}

unsigned kw_image_of(CUfunction handle, int library)
{
    CUmodule module = NULL, other;
    CUlibrary owner = NULL;
    if (library) {
        if (KW_CU(cuKernelGetLibrary, &owner, (CUkernel)handle))
            return 0;
        return of_owner(owner);
    }
    if (KW_CU(cuFuncGetModule, &module, handle))
        return 0;
    unsigned found = of_owner(module);
    /* The module may be a library's, as it is loaded in this context. */
    for (unsigned i = image_count; !found && i--;)
        if (images[i].owner && !KW_CU(cuLibraryGetModule, &other, images[i].owner) &&
            other == module)
            found = i + 1;
    return found;
}

int kw_image_write(unsigned number)
{
    char suffix[32], name[64];
    kw_text line = {0};
    kw_image *image = &images[number - 1];
    if (!number || number > image_count || !image->bytes)
        return 0;
    if (image->written)
        return 1;
    snprintf(suffix, sizeof suffix, "image.%u", number);
    int file = kw_record_create(suffix, name, sizeof name);
    if (file < 0)
        return 0;
    int written = kw_record_write(file, image->bytes, image->size);
    close(file);
    if (!written) {
        kw_record_remove(name);
        return 0;
    }
    image->written = 1;
    kw_text_add(&line, "{\"image\":%u,\"kind\":\"%s\",\"file\":\"%s\"}", number, image->kind, name);
    kw_record_line(&line);
    return 1;
}

void kw_images_forget(void)
{
    image_count = 0;
}
