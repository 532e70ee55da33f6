/* Evaluates postfix programs, as tuner/expressions/postfix.py writes them. */
#ifndef KW_PROGRAM_H
#define KW_PROGRAM_H

#include <stdint.h>

typedef struct {
    uint8_t operation;
    int64_t value; /* of a constant, or the index of a variable */
} kw_word;

typedef struct {
    kw_word *words;
    unsigned count;
} kw_program;

/* Reads a program of words separated by spaces, with variables `$0` to `$(variables - 1)`;
 * 0 if it is malformed, too long or too deep. */
int kw_program_read(const char *text, unsigned variables, kw_program *program);

/* The value with these variables; 0 if it is undefined. */
int kw_program_value(const kw_program *program, const int64_t *variables, int64_t *value);

#endif
