/* Reads the file of rules: a key and its values on each line. The file is ours, but is checked. */
#include "rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"

enum { LONGEST_LINE = 1 << 17 };

static kw_rule *rules;

/* Takes the next word of a line; an empty one at its end. */
static char *word(char **line)
{
    char *start = *line + strspn(*line, " ");
    size_t length = strcspn(start, " ");
    *line = start + length;
    if (**line)
        *(*line)++ = 0;
    return start;
}

static int number(char **line, unsigned limit, unsigned *value)
{
    char *text = word(line), *end;
    unsigned long found = strtoul(text, &end, 10);
    if (!*text || *end || found >= limit)
        return 0;
    *value = (unsigned)found;
    return 1;
}

static int copy(char *to, size_t size, const char *from)
{
    size_t length = strlen(from);
    if (!length || length >= size)
        return 0;
    memcpy(to, from, length + 1);
    return 1;
}

static int read_source(const kw_rule *rule, char **line, kw_source *source)
{
    static const char *const kinds[] = {"parameter", "grid", "block", "shared"};
    char *kind = word(line);
    for (unsigned i = 0; i < 4; i++)
        if (!strcmp(kind, kinds[i])) {
            source->from = i;
            if (!number(line, i == KW_PARAMETER ? rule->parameter_count : 3, &source->index) ||
                !number(line, 1 << 16, &source->at) || !number(line, 9, &source->size))
                return 0;
            source->is_unsigned = !strcmp(word(line), "unsigned");
            return i != KW_PARAMETER ||
                   (source->size && source->at + source->size <= rule->sizes[source->index]);
        }
    return 0;
}

static int read_program(const kw_rule *rule, const char *line, kw_program *program)
{
    return kw_program_read(line, rule->symbol_count, program);
}

static int read_symbol(kw_rule *rule, char *line)
{
    kw_symbol *symbol = &rule->symbols[rule->symbol_count];
    if (rule->symbol_count == KW_MOST_SYMBOLS || !read_source(rule, &line, &symbol->source))
        return 0;
    symbol->divisor = strtoll(word(&line), NULL, 10);
    rule->symbol_count++;
    return symbol->divisor > 0;
}

static int read_check(kw_rule *rule, char *line)
{
    kw_check *check = &rule->checks[rule->check_count];
    return rule->check_count < KW_MOST_CHECKS && read_source(rule, &line, &check->source) &&
           read_program(rule, line, &check->program) && ++rule->check_count;
}

static int read_buffer(kw_rule *rule, char *line)
{
    static const char *const modes[] = {"close", "exact", "unordered", "ulp"};
    kw_buffer_rule *buffer = &rule->buffers[rule->buffer_count];
    if (rule->buffer_count == KW_MOST_BUFFERS ||
        !number(&line, rule->parameter_count, &buffer->parameter) ||
        !number(&line, 1 << 20, &buffer->align) || !buffer->align)
        return 0;
    const char *kind = word(&line);
    buffer->is_written = strcmp(kind, "in") != 0;
    buffer->is_compared = buffer->is_written && strcmp(kind, "scratch") != 0;
    if (!copy(buffer->element, sizeof buffer->element, word(&line)))
        return 0;
    const char *mode = word(&line);
    unsigned found = 0;
    while (found < 4 && strcmp(mode, modes[found]))
        found++;
    buffer->comparison = found;
    buffer->rtol = strtod(word(&line), NULL);
    buffer->atol = strtod(word(&line), NULL);
    buffer->ulp = strtod(word(&line), NULL);
    buffer->is_scaled = !strcmp(word(&line), "scaled");
    return found < 4 && read_program(rule, line, &buffer->bytes) && ++rule->buffer_count;
}

static int read_variant_line(kw_rule *rule, const char *key, char *line)
{
    kw_variant *variant = &rule->variants[rule->variant_count - 1];
    unsigned axis;
    if (!strcmp(key, "image"))
        return copy(variant->image, sizeof variant->image, line);
    if (!strcmp(key, "entry"))
        return copy(variant->entry, sizeof variant->entry, line);
    if (!strcmp(key, "shared"))
        return read_program(rule, line, &variant->shared);
    if (!strcmp(key, "grid") || !strcmp(key, "block"))
        return number(&line, 3, &axis) &&
               read_program(rule, line, *key == 'g' ? &variant->grid[axis] : &variant->block[axis]);
    if (!strcmp(key, "when"))
        return variant->condition_count < KW_MOST_CHECKS &&
               read_program(rule, line, &variant->conditions[variant->condition_count]) &&
               ++variant->condition_count;
    if (!strcmp(key, "arguments")) {
        while (*(line += strspn(line, " ")))
            if (variant->argument_count == KW_MOST_ARGUMENTS ||
                !number(&line, rule->parameter_count,
                        &variant->arguments[variant->argument_count++]))
                return 0;
        return 1;
    }
    return 0;
}

static int read_use(kw_rule *rule, char *line)
{
    unsigned place; /* 0: the original; else 1 + the variant's index */
    if (rule->use_count == KW_MOST_USES || !number(&line, rule->variant_count + 1, &place))
        return 0;
    rule->uses[rule->use_count].variant = (int)place - 1;
    return read_program(rule, line, &rule->uses[rule->use_count].when) && ++rule->use_count;
}

static int read_rule_line(kw_rule *rule, const char *key, char *line)
{
    if (!strcmp(key, "parameters")) {
        while (*(line += strspn(line, " "))) {
            unsigned size;
            if (rule->parameter_count == KW_MOST_ARGUMENTS || !number(&line, 1 << 16, &size))
                return 0;
            rule->sizes[rule->parameter_count++] = size;
        }
        return 1;
    }
    if (!strcmp(key, "symbol"))
        return read_symbol(rule, line);
    if (!strcmp(key, "same"))
        return read_check(rule, line);
    if (!strcmp(key, "null"))
        return rule->null_count < KW_MOST_ARGUMENTS &&
               number(&line, rule->parameter_count, &rule->nulls[rule->null_count]) &&
               ++rule->null_count;
    if (!strcmp(key, "domain"))
        return rule->domain_count < KW_MOST_CHECKS &&
               read_program(rule, line, &rule->domain[rule->domain_count]) && ++rule->domain_count;
    if (!strcmp(key, "buffer"))
        return read_buffer(rule, line);
    if (!strcmp(key, "variant"))
        return rule->variant_count < KW_MOST_VARIANTS && ++rule->variant_count;
    if (!strcmp(key, "use"))
        return read_use(rule, line);
    return rule->variant_count && read_variant_line(rule, key, line);
}

static int is_complete(const kw_rule *rule)
{
    for (unsigned i = 0; i < rule->variant_count; i++) {
        const kw_variant *variant = &rule->variants[i];
        int complete = *variant->image && *variant->entry && variant->shared.count;
        for (int axis = 0; axis < 3; axis++)
            complete = complete && variant->grid[axis].count && variant->block[axis].count;
        if (!complete)
            return 0;
    }
    return rule->use_count > 0;
}

static kw_rule *new_rule(const char *kernel)
{
    kw_rule *rule = calloc(1, sizeof *rule);
    if (!rule)
        return NULL;
    rule->variants = calloc(KW_MOST_VARIANTS, sizeof *rule->variants);
    if (!rule->variants || !copy(rule->kernel, sizeof rule->kernel, kernel))
        return NULL;
    rule->next = rules;
    return rules = rule;
}

int kw_rules_read(void)
{
    unsigned count = 0;
    int good = 1;
    FILE *file = fopen(kw_settings.rules, "re");
    char *text = malloc(LONGEST_LINE);
    while (file && text && good && fgets(text, LONGEST_LINE, file)) {
        char *line = text;
        count++;
        good = strchr(text, '\n') != NULL;
        text[strcspn(text, "\n")] = 0;
        const char *key = word(&line);
        if (!strcmp(key, "kernel"))
            good = good && (!rules || is_complete(rules)) && new_rule(line);
        else
            good = good && rules && read_rule_line(rules, key, line);
    }
    good = good && file && text && rules && is_complete(rules);
    if (!good) {
        rules = NULL;
        kw_record_note(NULL, "the file of rules cannot be used (line %u); originals run", count);
    }
    if (file)
        fclose(file);
    free(text);
    return good;
}

kw_rule *kw_rule_for(const char *name)
{
    for (kw_rule *rule = rules; rule; rule = rule->next)
        if (!strcmp(rule->kernel, name))
            return rule;
    return NULL;
}

void kw_rules_forget(void)
{
    rules = NULL;
}
