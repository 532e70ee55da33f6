/* An interpreter of postfix programs on a bounded stack; no program can fail but be undefined. */
#include "program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 4096, DEEPEST = 256, LONGEST_WORD = 32 };

enum {
    CONSTANT, VARIABLE, /* take none */
    NEGATE, ABSOLUTE, NOT, LOG2, /* take one */
    ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO, POWER, MINIMUM, MAXIMUM, CEIL_DIV, ROUND_UP,
    EQUAL, UNEQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, AND, OR, /* take two */
    CHOOSE, /* takes three */
    OPERATIONS
};

static const char *const names[OPERATIONS] = {
    [NEGATE] = "neg", [ABSOLUTE] = "abs", [NOT] = "not", [LOG2] = "log2",
    [ADD] = "+", [SUBTRACT] = "-", [MULTIPLY] = "*", [DIVIDE] = "//", [MODULO] = "%",
    [POWER] = "**", [MINIMUM] = "min", [MAXIMUM] = "max", [CEIL_DIV] = "ceil_div",
    [ROUND_UP] = "round_up", [EQUAL] = "==", [UNEQUAL] = "!=", [LESS] = "<", [LESS_EQUAL] = "<=",
    [GREATER] = ">", [GREATER_EQUAL] = ">=", [AND] = "and", [OR] = "or", [CHOOSE] = "choose",
};

typedef struct {
    int64_t value;
    int defined;
} cell;

static const cell UNDEFINED;

static unsigned operands_of(int operation)
{
    return operation <= VARIABLE ? 0 : operation <= LOG2 ? 1 : operation <= OR ? 2 : 3;
}

static int read_word(const char *text, unsigned variables, kw_word *word)
{
    char *end;
    const char *digits = *text == '$' ? text + 1 : text;
    for (int i = NEGATE; i < OPERATIONS; i++)
        if (!strcmp(text, names[i])) {
            word->operation = (uint8_t)i;
            return 1;
        }
    errno = 0;
    word->value = strtoll(digits, &end, 10);
    word->operation = *text == '$' ? VARIABLE : CONSTANT;
    return !errno && end != digits && !*end &&
           (*text != '$' || (word->value >= 0 && word->value < variables));
}

int kw_program_read(const char *text, unsigned variables, kw_program *program)
{
    kw_word *words = calloc(MOST_WORDS, sizeof *words);
    unsigned count = 0, depth = 0;
    int good = words != NULL;
    while (good && *(text += strspn(text, " "))) {
        char word[LONGEST_WORD];
        size_t length = strcspn(text, " ");
        good = length < sizeof word && count < MOST_WORDS;
        if (!good)
            break;
        memcpy(word, text, length);
        word[length] = 0;
        text += length;
        good = read_word(word, variables, &words[count]);
        if (!good)
            break;
        unsigned taken = operands_of(words[count++].operation);
        good = taken <= depth && depth - taken + 1 <= DEEPEST;
        depth = depth - taken + 1;
    }
    if (!good || depth != 1) {
        free(words);
        return 0;
    }
    kw_word *fitted = realloc(words, count * sizeof *words);
    program->words = fitted ? fitted : words;
    program->count = count;
    return 1;
}

static cell defined(int64_t value) { return (cell){value, 1}; }

/* Rounded down, for a divisor that is not 0. */
static cell floor_div(int64_t a, int64_t b)
{
    if (b == 0 || (a == INT64_MIN && b == -1))
        return UNDEFINED;
    int64_t quotient = a / b;
    return defined(quotient - (a % b != 0 && (a < 0) != (b < 0)));
}

static cell modulo(int64_t a, int64_t b)
{
    if (b == 0)
        return UNDEFINED;
    if (b == -1)
        return defined(0);
    int64_t rest = a % b;
    return defined(rest && (rest < 0) != (b < 0) ? rest + b : rest);
}

static cell power(int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (exponent < 0)
        return UNDEFINED;
    if (base == 0 || base == 1)
        return defined(exponent ? base : 1);
    if (base == -1)
        return defined(exponent % 2 ? -1 : 1);
    while (exponent-- > 0)
        if (__builtin_mul_overflow(result, base, &result))
            return UNDEFINED;
    return defined(result);
}

static cell ceil_div(int64_t a, int64_t b)
{
    if (b <= 0)
        return UNDEFINED;
    return defined(a / b + (a % b > 0));
}

static cell one(int operation, cell a)
{
    if (!a.defined)
        return UNDEFINED;
    switch (operation) {
    case NEGATE:
        return a.value == INT64_MIN ? UNDEFINED : defined(-a.value);
    case ABSOLUTE:
        return a.value == INT64_MIN ? UNDEFINED : defined(a.value < 0 ? -a.value : a.value);
    case NOT:
        return defined(!a.value);
    default:
        return a.value <= 0 ? UNDEFINED : defined(63 - __builtin_clzll((uint64_t)a.value));
    }
}

static cell two(int operation, cell x, cell y)
{
    int64_t a = x.value, b = y.value, result;
    if (operation == AND && x.defined && !a)
        return defined(0);
    if (operation == OR && x.defined && a)
        return defined(1);
    if (!x.defined || !y.defined)
        return UNDEFINED;
    switch (operation) {
    case ADD:
        return __builtin_add_overflow(a, b, &result) ? UNDEFINED : defined(result);
    case SUBTRACT:
        return __builtin_sub_overflow(a, b, &result) ? UNDEFINED : defined(result);
    case MULTIPLY:
        return __builtin_mul_overflow(a, b, &result) ? UNDEFINED : defined(result);
    case DIVIDE:
        return floor_div(a, b);
    case MODULO:
        return modulo(a, b);
    case POWER:
        return power(a, b);
    case MINIMUM:
        return defined(a < b ? a : b);
    case MAXIMUM:
        return defined(a > b ? a : b);
    case CEIL_DIV:
        return ceil_div(a, b);
    case ROUND_UP: {
        cell quotient = ceil_div(a, b);
        return quotient.defined && !__builtin_mul_overflow(quotient.value, b, &result)
                   ? defined(result)
                   : UNDEFINED;
    }
    case EQUAL:
        return defined(a == b);
    case UNEQUAL:
        return defined(a != b);
    case LESS:
        return defined(a < b);
    case LESS_EQUAL:
        return defined(a <= b);
    case GREATER:
        return defined(a > b);
    case GREATER_EQUAL:
        return defined(a >= b);
    default: /* and, or: the second decides */
        return defined(b != 0);
    }
}

int kw_program_value(const kw_program *program, const int64_t *variables, int64_t *value)
{
    cell stack[DEEPEST + 1];
    unsigned depth = 0;
    for (unsigned i = 0; i < program->count; i++) {
        const kw_word *word = &program->words[i];
        depth -= operands_of(word->operation);
        cell *top = &stack[depth++]; /* the first operand, and the place of the result */
        switch (operands_of(word->operation)) {
        case 0:
            *top = defined(word->operation == VARIABLE ? variables[word->value] : word->value);
            break;
        case 1:
            *top = one(word->operation, top[0]);
            break;
        case 2:
            *top = two(word->operation, top[0], top[1]);
            break;
        default:
            *top = !top[0].defined ? UNDEFINED : top[0].value ? top[1] : top[2];
        }
    }
    *value = stack[0].value;
    return stack[0].defined;
}
