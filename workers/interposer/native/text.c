/* Text in memory. */
#include "text.h"

#include <stdarg.h>
#include <stdlib.h>

void kw_text_add(kw_text *text, const char *format, ...)
{
    va_list values;
    if (!text->file && !text->failed)
        text->failed = !(text->file = open_memstream(&text->start, &text->length));
    if (text->failed)
        return;
    va_start(values, format);
    text->failed = vfprintf(text->file, format, values) < 0;
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
    kw_text_add(text, "\"");
    for (size_t i = 0; i < count; i++)
        kw_text_add(text, "%02x", bytes[i]);
    kw_text_add(text, "\"");
}

void kw_text_extent(kw_text *text, const unsigned *extent)
{
    kw_text_add(text, "[%u,%u,%u]", extent[0], extent[1], extent[2]);
}

int kw_text_end(kw_text *text)
{
    if (text->file && fclose(text->file))
        text->failed = 1;
    return text->file && !text->failed;
}
