"""An expression as a postfix program, for an interpreter without Python.

A program is a sequence of words, evaluated on a stack of values of which each may be *undefined*:

- an integer pushes it; ``$NAME`` pushes the value of a name, as the caller writes it;
- ``+ - * // % ** min max ceil_div round_up == != < <= > >=`` take two, ``neg abs not log2`` one;
- ``and``, ``or`` take two: where the first decides, an undefined second does not matter;
- ``choose`` takes condition, then, otherwise: only the chosen one matters.

Everything else of an undefined value is undefined, as is overflow beyond 64 bits, division by zero
and so on, wherever :meth:`Expression.evaluate` raises. So a program has the value of its expression
wherever that has one, although all parts are evaluated.
"""

from collections.abc import Callable

from tuner.expressions.tree import (
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


def render(node: Node, variable: Callable[[str], str]) -> list[str]:
    """The words of the program; raises :class:`ExpressionError` for names and device limits."""
    match node:
        case Const(value=str() as text):
            raise ExpressionError(f"the name '{text}' has no value in a program; bind its symbol")
        case Const(value):
            return [str(int(value))]
        case Name(name):
            return [variable(name)]
        case DeviceAttribute(name):
            raise ExpressionError(f"device.{name} has no value in a program; bind the device first")
        case Apply("in", (first, *items)):
            tests = [[*render(first, variable), *render(item, variable), "=="] for item in items]
            return _joined(tests, "or")
        case Apply("pos", (operand,)):
            return render(operand, variable)
        case Apply(operator, operands):
            parts = [render(operand, variable) for operand in operands]
            return [*parts[0], operator] if _is_unary(operator) else _joined(parts, operator)
        case Chain(operators, operands):
            parts = [render(operand, variable) for operand in operands]
            links = zip(parts, parts[1:], operators, strict=False)
            return _joined([[*left, *right, operator] for left, right, operator in links], "and")
        case Logic(operator, operands):
            return _joined([render(operand, variable) for operand in operands], operator)
        case Choice(condition, then, otherwise):
            parts = [render(part, variable) for part in (condition, then, otherwise)]
            return [*parts[0], *parts[1], *parts[2], "choose"]
        case _:
            raise AssertionError(node)


def _is_unary(operator: str) -> bool:
    return operator in ("neg", "not", "abs", "log2")


def _joined(parts: list[list[str]], operator: str) -> list[str]:
    """The operator between all parts, from the left."""
    words = list(parts[0])
    for part in parts[1:]:
        words += [*part, operator]
    return words
