/* Text that grows, for one line of JSON at a time. */
#ifndef KW_TEXT_H
#define KW_TEXT_H

#include <stddef.h>

typedef struct {
    char *start;
    size_t length, capacity;
    int failed; /* memory ran out, or the text became too long: what is there is not to be used */
} kw_text;

void kw_text_add(kw_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds a JSON string, with everything but printable ASCII escaped. */
void kw_text_quoted(kw_text *text, const char *string);

/* Adds a JSON string of hexadecimal digits. */
void kw_text_hex(kw_text *text, const unsigned char *bytes, size_t count);

/* Adds a JSON list of three numbers. */
void kw_text_extent(kw_text *text, const unsigned *extent);

void kw_text_free(kw_text *text);

#endif
