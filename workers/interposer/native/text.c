/* Text that grows, bounded. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_BYTES (16u << 20)

static int reserve(kw_text *text, size_t more)
{
    size_t needed = text->length + more + 1;
    if (text->failed || needed > MOST_BYTES) {
        text->failed = 1;
        return 0;
    }
    if (needed > text->capacity) {
        size_t capacity = needed < 1024 ? 1024 : 2 * needed;
        char *grown = realloc(text->start, capacity);
        if (!grown) {
            text->failed = 1;
            return 0;
        }
        text->start = grown;
        text->capacity = capacity;
    }
    return 1;
}

void kw_text_add(kw_text *text, const char *format, ...)
{
    va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    int length = vsnprintf(NULL, 0, format, values);
    if (length < 0)
        text->failed = 1;
    else if (reserve(text, (size_t)length)) {
        vsnprintf(text->start + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
    va_end(values);
}

void kw_text_quoted(kw_text *text, const char *string)
{
    kw_text_add(text, "\"");
    for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
        if (*c == '"' || *c == '\\' || *c < ' ' || *c > '~')
            kw_text_add(text, "\\u%04x", *c);
        else
            kw_text_add(text, "%c", *c);
    }
    kw_text_add(text, "\"");
}

void kw_text_hex(kw_text *text, const unsigned char *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    kw_text_add(text, "\"");
    if (reserve(text, 2 * count))
        for (size_t i = 0; i < count; i++) {
            text->start[text->length++] = digits[bytes[i] >> 4];
            text->start[text->length++] = digits[bytes[i] & 15];
        }
    kw_text_add(text, "\"");
}

void kw_text_extent(kw_text *text, const unsigned *extent)
{
    kw_text_add(text, "[%u,%u,%u]", extent[0], extent[1], extent[2]);
}

void kw_text_free(kw_text *text)
{
    free(text->start);
    *text = (kw_text){0};
}
