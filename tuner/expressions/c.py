"""An expression as C, for the dispatch header of an export.

The code computes in ``long long`` and keeps the order and the short circuits of the original.
Floor division and modulo go through :data:`C_HELPERS`, so that they round like the original for
negative operands too. Where the original is undefined, it is meaningless: :func:`render_defined`
tells where.
"""

from collections.abc import Callable, Iterator

from tuner.expressions.tree import (
    INT_MIN,
    Apply,
    Chain,
    Choice,
    Const,
    DeviceAttribute,
    ExpressionError,
    Logic,
    Name,
    Node,
)

C_HELPERS = """\
static inline long long kw_floor_div(long long a, long long b)
{
    long long q = b == 0 ? 0 : a / b;
    return q - (b != 0 && a % b != 0 && (a < 0) != (b < 0));
}
static inline long long kw_mod(long long a, long long b)
{
    return b == 0 ? 0 : a - kw_floor_div(a, b) * b;
}
static inline long long kw_ceil_div(long long a, long long b)
{
    return -kw_floor_div(-a, b);
}
static inline long long kw_round_up(long long a, long long b)
{
    return kw_ceil_div(a, b) * b;
}
static inline long long kw_min(long long a, long long b)
{
    return a < b ? a : b;
}
static inline long long kw_max(long long a, long long b)
{
    return a > b ? a : b;
}
static inline long long kw_abs(long long a)
{
    return a < 0 ? -a : a;
}
static inline long long kw_pow(long long base, long long exponent)
{
    long long result = 1;
    while (exponent-- > 0)
        result *= base;
    return result;
}
static inline long long kw_log2(long long a)
{
    long long result = 0;
    while (a >>= 1)
        ++result;
    return result;
}
static inline int kw_sum_fits(long long a, long long b)
{
    return b > 0 ? a <= 9223372036854775807LL - b : a >= -9223372036854775807LL - 1 - b;
}
static inline int kw_difference_fits(long long a, long long b)
{
    return b < 0 ? a <= 9223372036854775807LL + b : a >= -9223372036854775807LL - 1 + b;
}
static inline int kw_product_fits(long long a, long long b)
{
    const long long most = 9223372036854775807LL, least = -most - 1;
    if (b == 0 || b == -1)
        return b == 0 || a != least;
    return b > 0 ? a <= most / b && a >= least / b : a >= most / b && a <= least / b;
}
static inline int kw_power_fits(long long base, long long exponent)
{
    long long result = 1;
    if (exponent < 0 || base == 0 || base == 1 || base == -1)
        return exponent >= 0;
    while (exponent-- > 0) {
        if (!kw_product_fits(result, base))
            return 0;
        result *= base;
    }
    return 1;
}
"""
"""The functions that rendered expressions call."""

_CALLS = {
    "//": "kw_floor_div",
    "%": "kw_mod",
    "**": "kw_pow",
    "min": "kw_min",
    "max": "kw_max",
    "abs": "kw_abs",
    "ceil_div": "kw_ceil_div",
    "round_up": "kw_round_up",
    "log2": "kw_log2",
}


_FITS = {
    "+": "kw_sum_fits",
    "-": "kw_difference_fits",
    "*": "kw_product_fits",
    "**": "kw_power_fits",
}

_MAX_LENGTH = 100_000


def render(node: Node, rename: Callable[[str], str]) -> str:
    """The tree as one C expression; raises :class:`ExpressionError` for names and device limits."""
    return _not_too_long(_render(node, rename))


def render_defined(node: Node, rename: Callable[[str], str]) -> str:
    """A C condition: whether evaluation reaches nothing undefined; empty if it never does.

    Division by zero and results beyond 64 bits are, but for the negated and the absolute least
    number and its quotient by -1. Raises as :func:`render`.
    """
    return _not_too_long(" && ".join(_defined(node, rename)))


def _not_too_long(text: str) -> str:
    if len(text) > _MAX_LENGTH:
        raise ExpressionError("the expression is too long in C")
    return text


def _defined(node: Node, rename: Callable[[str], str]) -> Iterator[str]:
    """C conditions, each of which may be evaluated if those before it hold."""
    match node:
        case Apply(operator, operands):
            for operand in operands:
                yield from _defined(operand, rename)
            yield from _defined_operation(operator, operands, rename)
        case Chain(operators, operands):
            yield from _defined(operands[0], rename)
            yield from _defined(operands[1], rename)
            for end in range(2, len(operands)):
                if later := list(_defined(operands[end], rename)):
                    before = render(Chain(operators[: end - 1], operands[:end]), rename)
                    yield f"(!{before} || {_joined(' && ', later)})"
        case Logic(operator, (first, *others)):
            yield from _defined(first, rename)
            if others:
                rest = others[0] if len(others) == 1 else Logic(operator, tuple(others))
                if later := list(_defined(rest, rename)):
                    ends = "!" if operator == "and" else ""
                    yield f"({ends}{render(first, rename)} || {_joined(' && ', later)})"
        case Choice(condition, then, otherwise):
            yield from _defined(condition, rename)
            parts = [list(_defined(part, rename)) or ["1"] for part in (then, otherwise)]
            if parts != [["1"], ["1"]]:
                chosen = (_joined(" && ", part) for part in parts)
                yield "({} ? {} : {})".format(render(condition, rename), *chosen)


def _defined_operation(
    operator: str, operands: tuple[Node, ...], rename: Callable[[str], str]
) -> Iterator[str]:
    match operator, operands:
        case "//" | "%", (_, b):
            if not isinstance(b, Const) or not b.value:
                yield f"{render(b, rename)} != 0"
        case "ceil_div" | "round_up", (a, b):
            if not isinstance(b, Const) or int(b.value) <= 0:
                yield f"{render(b, rename)} > 0"
            if operator == "round_up":
                up = render(Apply("ceil_div", operands), rename)
                yield f"kw_product_fits({up}, {render(b, rename)})"
        case "log2", (a,):
            yield f"{render(a, rename)} > 0"
        case "+" | "-" | "*" | "**", (a, b):
            yield f"{_FITS[operator]}({render(a, rename)}, {render(b, rename)})"


def _render(node: Node, rename: Callable[[str], str]) -> str:
    match node:
        case Const(value=str() as text):
            raise ExpressionError(f"the name '{text}' has no value in C; bind its symbol first")
        case Const(value):
            number = int(value)
            return f"({number + 1}LL - 1)" if number == INT_MIN else _literal(number)
        case Name(name):
            return rename(name)
        case DeviceAttribute(name):
            raise ExpressionError(f"device.{name} has no value in C; bind the device first")
        case Apply("in", operands):
            # Repeating the operand is safe: expressions have no side effects.
            first, *items = (render(operand, rename) for operand in operands)
            return _joined(" || ", [f"({first} == {item})" for item in items])
        case Apply("neg" | "pos" | "not" as operator, (operand,)):
            return f"({ {'neg': '-', 'pos': '+', 'not': '!'}[operator] }{render(operand, rename)})"
        case Apply(("+" | "-" | "*") as operator, (a, b)):
            return f"({render(a, rename)} {operator} {render(b, rename)})"
        case Apply(operator, operands):
            first, *others = (render(operand, rename) for operand in operands)
            if not others:
                return first if operator in ("min", "max") else f"{_CALLS[operator]}({first})"
            for other in others:
                first = f"{_CALLS[operator]}({first}, {other})"
            return first
        case Chain(operators, operands):
            parts = [render(operand, rename) for operand in operands]
            links = zip(parts, operators, parts[1:], strict=False)
            return _joined(" && ", [f"({a} {operator} {b})" for a, operator, b in links])
        case Logic(operator, operands):
            sign = " && " if operator == "and" else " || "
            return _joined(sign, [render(operand, rename) for operand in operands])
        case Choice(condition, then, otherwise):
            chosen = (render(part, rename) for part in (condition, then, otherwise))
            return "({} ? {} : {})".format(*chosen)
        case _:
            raise AssertionError(node)


def _literal(number: int) -> str:
    return f"{number}LL" if number >= 0 else f"({number}LL)"


def _joined(sign: str, parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({sign.join(parts)})"
