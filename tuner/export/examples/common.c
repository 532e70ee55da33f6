typedef struct {
    const char *name;
    char kind;                /* 'b' a buffer, 's' a scalar, 'n' a null pointer */
    char shown;               /* an output as 'f' float, 'd' double, 'i' int, 'u' unsigned, 'x' bytes; else 0 */
    size_t size;              /* bytes */
    size_t item;              /* bytes of one element */
    unsigned char value[16];  /* the scalar, or the element that fills a buffer */
    buffer_t buffer;
} argument;

static char *read_file(const char *folder, const char *name)
{
    char path[4096];
    char *text;
    long size;
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET)) {
        fprintf(stderr, "cannot read %s: name the folder of the export as the first argument\n", path);
        exit(1);
    }
    text = calloc(1, (size_t)size + 1);
    if (!text || fread(text, 1, (size_t)size, file) != (size_t)size)
        exit(1);
    fclose(file);
    return text;
}

static argument *named(argument *all, int count, const char *name, size_t length)
{
    int i;
    for (i = 0; i < count; ++i)
        if (strlen(all[i].name) == length && !strncmp(all[i].name, name, length))
            return &all[i];
    fprintf(stderr, "no argument is named %.*s\n", (int)length, name);
    exit(1);
}

static unsigned char *filled(const argument *a)
{
    unsigned char *bytes = malloc(a->size ? a->size : 1);
    size_t i;
    if (!bytes)
        exit(1);
    for (i = 0; i < a->size; ++i)
        bytes[i] = a->value[i % a->item];
    return bytes;
}

static void print(const argument *a, const unsigned char *bytes)
{
    float single;
    double wide;
    uint64_t whole = 0;
    size_t i;
    printf("%s[0] = ", a->name);
    if (a->shown == 'f') {
        memcpy(&single, bytes, sizeof single);
        printf("%g\n", (double)single);
    } else if (a->shown == 'd') {
        memcpy(&wide, bytes, sizeof wide);
        printf("%g\n", wide);
    } else if (a->shown == 'i' || a->shown == 'u') {
        for (i = a->item; i-- > 0;)
            whole = whole << 8 | bytes[i];
        if (a->shown == 'i' && whole >> (8 * a->item - 1))
            printf("-%llu\n", (unsigned long long)((UINT64_MAX >> (64 - 8 * a->item)) - whole) + 1);
        else
            printf("%llu\n", (unsigned long long)whole);
    } else {
        printf("0x");
        for (i = a->item; i-- > 0;)
            printf("%02x", bytes[i]);
        printf("\n");
    }
}

/* Work buffers of variants, in the order of ${prefix}_scratch_bytes(). */
static const struct { int variant; const char *name; } scratch_names[] = {
    $scratch_names
};

/* The arguments on a shape. Floating-point inputs are 1, integers 0: put your own data here. */
static int arguments_of(const ${prefix}_shape *s, argument *all)
{
    const argument own[] = {
        $arguments
    };
    (void)s;
    memcpy(all, own, sizeof own);
    return (int)(sizeof own / sizeof *own);
}

/* Adds the work buffers of a variant; returns how many arguments there are now. */
static int with_scratch(int variant, const ${prefix}_shape *s, argument *all, int count)
{
    size_t i;
    int index = 0;
    for (i = 0; i < sizeof scratch_names / sizeof *scratch_names; ++i)
        if (scratch_names[i].variant == variant) {
            memset(&all[count], 0, sizeof all[count]);
            all[count].name = scratch_names[i].name;
            all[count].kind = 'b';
            all[count].item = 1;
            all[count++].size = (size_t)${prefix}_scratch_bytes(variant, index++, s);
        }
    return count;
}

/* Whether every step of a variant can be launched: not on an empty shape. */
static int launchable(int variant, const ${prefix}_shape *s)
{
    ${prefix}_step t;
    int i;
    for (i = 0; i < ${prefix}_steps(variant); ++i)
        if (!${prefix}_step_of(variant, i, s, &t))
            return 0;
    return 1;
}
