/* Text that grows, for one line of JSON at a time. */
#ifndef KW_TEXT_H
#define KW_TEXT_H

#include <stdio.h>

typedef struct {
    FILE *file;
    char *start;
    size_t length;
    int failed; /* memory ran out */
} kw_text;

void kw_text_add(kw_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds a JSON string, with everything but printable ASCII escaped. */
void kw_text_quoted(kw_text *text, const char *string);

/* Adds a JSON string of hexadecimal digits. */
void kw_text_hex(kw_text *text, const unsigned char *bytes, size_t count);

/* Adds a JSON list of three numbers. */
void kw_text_extent(kw_text *text, const unsigned *extent);

/* Completes the text, for the caller to free its start; 0 if memory ran out. */
int kw_text_end(kw_text *text);

#endif
