/* The files of one process: PID.log and PID.counts in the folder that the environment names. */
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define VARIABLE "KERNELWRIGHT_INTERPOSER"
#define MOST_SAME_PIDS 100
#define MOST_NOTES 64

kw_settings_table kw_settings;

static struct {
    char prefix[32];
    int log;
    kw_counter *counters;
    unsigned used, notes;
} record = {.log = -1};

static kw_counter lost; /* counts into nowhere if the counters cannot be mapped */

static int path_of(const char *name, char *path)
{
    int length = snprintf(path, KW_PATH_LENGTH, "%s/%s", kw_settings.folder, name);
    return length > 0 && length < KW_PATH_LENGTH;
}

static void set(const char *key, const char *value)
{
    static const struct {
        const char *name;
        kw_mode mode;
    } modes[] = {{"profile", KW_PROFILE},
                 {"capture", KW_CAPTURE},
                 {"inject", KW_INJECT},
                 {"verify", KW_VERIFY}};
    if (!strcmp(key, "mode")) {
        for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
            if (!strcmp(value, modes[i].name))
                kw_settings.mode = modes[i].mode;
    } else if (!strcmp(key, "kernel"))
        snprintf(kw_settings.kernel, sizeof kw_settings.kernel, "%s", value);
    else if (!strcmp(key, "rules"))
        snprintf(kw_settings.rules, sizeof kw_settings.rules, "%s", value);
    else if (!strcmp(key, "bytes"))
        kw_settings.bytes = strtoull(value, NULL, 10);
    else if (!strcmp(key, "shapes"))
        kw_settings.shapes = (unsigned)strtoul(value, NULL, 10);
}

static int read_settings(void)
{
    const char *folder = getenv(VARIABLE);
    char path[KW_PATH_LENGTH], line[KW_PATH_LENGTH + 64];
    if (!folder || *folder != '/' || strlen(folder) >= sizeof kw_settings.folder)
        return 0;
    memset(&kw_settings, 0, sizeof kw_settings);
    strcpy(kw_settings.folder, folder);
    FILE *file = path_of("settings", path) ? fopen(path, "re") : NULL;
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *space = strchr(line, ' ');
        if (space) {
            *space = 0;
            set(line, space + 1);
        }
    }
    fclose(file);
    return kw_settings.mode != KW_OFF;
}

static void map_counters(void)
{
    char name[64];
    int file = kw_record_create("counts", name, sizeof name);
    size_t size = KW_SLOTS * sizeof(kw_counter);
    if (file >= 0 && posix_fallocate(file, 0, (off_t)size) == 0) {
        void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED)
            record.counters = mapped;
    }
    if (file >= 0)
        close(file);
}

int kw_record_open(void)
{
    if (!read_settings())
        return 0;
    /* A process that replaced itself by exec has the same id: number those. */
    for (int i = 0; i < MOST_SAME_PIDS; i++) {
        char name[64], path[KW_PATH_LENGTH];
        snprintf(record.prefix, sizeof record.prefix, i ? "%ld-%d" : "%ld", (long)getpid(), i);
        snprintf(name, sizeof name, "%s.log", record.prefix);
        if (!path_of(name, path))
            return 0;
        record.log = open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (record.log >= 0)
            break;
        if (errno != EEXIST)
            return 0;
    }
    if (record.log < 0)
        return 0;
    map_counters();
    return record.counters != NULL;
}

void kw_record_forget(void)
{
    if (record.log >= 0)
        close(record.log);
    if (record.counters)
        munmap(record.counters, KW_SLOTS * sizeof(kw_counter));
    memset(&record, 0, sizeof record);
    record.log = -1;
}

unsigned kw_record_slot(void)
{
    if (record.used + 1 < KW_SLOTS)
        return record.used++;
    if (record.used + 1 == KW_SLOTS) {
        record.used++;
        kw_record_note(NULL, "more than %d shapes; those beyond are not told apart", KW_SLOTS - 1);
    }
    return KW_SLOTS - 1;
}

kw_counter *kw_record_counter(unsigned slot)
{
    return record.counters && slot < KW_SLOTS ? &record.counters[slot] : &lost;
}

void *kw_record_read(const char *path, size_t most, size_t *size)
{
    struct stat status;
    void *bytes = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && !fstat(file, &status) && (size_t)status.st_size <= most)
        bytes = calloc(1, (*size = (size_t)status.st_size) + 1);
    if (bytes && read(file, bytes, *size) != status.st_size) {
        free(bytes);
        bytes = NULL;
    }
    if (file >= 0)
        close(file);
    return bytes;
}

int kw_record_write(int file, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count) {
        ssize_t written = write(file, at, count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return 0;
        at += written;
        count -= (size_t)written;
    }
    return 1;
}

void kw_record_line(kw_text *line)
{
    kw_text_add(line, "\n");
    if (kw_text_end(line) && record.log >= 0)
        kw_record_write(record.log, line->start, line->length);
    free(line->start);
}

void kw_record_note(const char *kernel, const char *format, ...)
{
    char note[512];
    kw_text line = {0};
    va_list values;
    if (record.notes++ >= MOST_NOTES)
        return;
    va_start(values, format);
    vsnprintf(note, sizeof note, format, values);
    va_end(values);
    kw_text_add(&line, "{\"note\":");
    kw_text_quoted(&line, note);
    kw_text_add(&line, ",\"about\":");
    kw_text_quoted(&line, kernel ? kernel : "");
    kw_text_add(&line, "}");
    kw_record_line(&line);
}

int kw_record_create(const char *suffix, char *name, size_t size)
{
    char path[KW_PATH_LENGTH];
    int length = snprintf(name, size, "%s.%s", record.prefix, suffix);
    if (length < 0 || (size_t)length >= size || !path_of(name, path))
        return -1;
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

void kw_record_remove(const char *name)
{
    char path[KW_PATH_LENGTH];
    if (path_of(name, path))
        unlink(path);
}
