/* What this process records: settings, a log of JSON lines, and counters that survive a crash. */
#ifndef KW_RECORD_H
#define KW_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "text.h"

enum { KW_PATH_LENGTH = 4096, KW_PATTERN_LENGTH = 1024 };

typedef enum { KW_OFF, KW_PROFILE, KW_CAPTURE, KW_INJECT, KW_VERIFY } kw_mode;

typedef struct {
    kw_mode mode;
    char folder[KW_PATH_LENGTH];      /* where this process writes; from the environment */
    char kernel[KW_PATTERN_LENGTH];   /* capture: part of a kernel's name, or a glob pattern */
    char rules[KW_PATH_LENGTH];       /* inject: the file of rules */
    size_t bytes;                     /* capture: most bytes of device memory for one pointer */
    unsigned shapes;                  /* capture: most launches */
} kw_settings_table;

extern kw_settings_table kw_settings;

/* Counters of one slot, in a file that is mapped into memory: of a shape, or of a decision. */
typedef union {
    struct {
        uint64_t eager;    /* launches into a stream */
        uint64_t in_graph; /* kernel nodes of launched graphs */
        uint64_t timed;    /* launches that were timed */
        uint64_t ns;       /* their time */
    };
    struct {
        uint64_t substituted; /* launches of the tuned kernel, also into graphs */
        uint64_t recorded;    /* those of them that were recorded into graphs */
        uint64_t fell_back;   /* launches that failed, after which the original ran */
        uint64_t original;    /* launches of the original */
    };
    struct {
        uint64_t equal;     /* launches whose results were equal within the tolerance */
        uint64_t different; /* and those whose results were not */
        uint64_t unused, uncompared; /* launches of the original alone are uncompared */
    };
} kw_counter;

enum { KW_SLOTS = 16384 };

/* Reads the settings and creates this process's files; 0 if nothing is to be recorded. */
int kw_record_open(void);

/* Forgets the files of the parent, in a process that was forked. */
void kw_record_forget(void);

/* A new counter; when all are in use, the last, which then counts what is not told apart. */
unsigned kw_record_slot(void);

kw_counter *kw_record_counter(unsigned slot);

/* Writes one line to the log, in one piece. Frees `line`. */
void kw_record_line(kw_text *line);

/* Writes a note for the user, with the kernel that it is about, or NULL. */
void kw_record_note(const char *kernel, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Creates a file for this process; returns its descriptor or -1. `name` gets its name. */
int kw_record_create(const char *suffix, char *name, size_t size);

/* The bytes of a file and a zero, such as PTX ends with; NULL if there are more than `most`, or if
 * it cannot be read. */
void *kw_record_read(const char *path, size_t most, size_t *size);

/* Writes all bytes; 0 if that fails. */
int kw_record_write(int file, const void *bytes, size_t count);

/* Removes a file that kw_record_create made. */
void kw_record_remove(const char *name);

#endif
