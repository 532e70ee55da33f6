"""The value of an expression at one point: exact integers, or an error."""

from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne

from tuner.device import Device
from tuner.expressions.tree import (
    INT_MAX,
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
from tuner.trial import Value

COMPARE: dict[str, Callable[[Value, Value], bool]] = {
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


def evaluate(node: Node, env: Mapping[str, Value], device: Device | None) -> Value:
    """The tree's value; the kinds have been checked and every name is bound."""
    match node:
        case Const(value):
            return value
        case Name(name):
            return _bounded(env[name])
        case DeviceAttribute(name):
            value = getattr(device, name)
            assert isinstance(value, int | str)
            return value
        case Apply("in", operands):
            first, *items = (evaluate(operand, env, device) for operand in operands)
            return first in items
        case Apply(operator, operands):
            return _bounded(
                apply(operator, [int(evaluate(operand, env, device)) for operand in operands])
            )
        case Chain(operators, (first, *others)):
            left = evaluate(first, env, device)
            for operator, other in zip(operators, others, strict=True):
                right = evaluate(other, env, device)
                if not COMPARE[operator](left, right):
                    return False
                left = right
            return True
        case Logic(operator, operands):
            stop = operator == "or"
            return stop is any(bool(evaluate(operand, env, device)) is stop for operand in operands)
        case Choice(condition, then, otherwise):
            chosen = then if evaluate(condition, env, device) else otherwise
            return evaluate(chosen, env, device)
        case _:
            raise AssertionError(node)


def apply(operator: str, numbers: list[int]) -> int:
    """One operator on unbounded integers; raises :class:`ExpressionError` where undefined."""
    match operator, numbers:
        case "+", [a, b]:
            return a + b
        case "-", [a, b]:
            return a - b
        case "*", [a, b]:
            return a * b
        case "//" | "%", [_, 0]:
            raise ExpressionError("division by zero")
        case "//", [a, b]:
            return a // b
        case "%", [a, b]:
            return a % b
        case "**", [a, b]:
            return _power(a, b)
        case "neg", [a]:
            return -a
        case "pos", [a]:
            return a
        case "not", [a]:
            return not a
        case "abs", [a]:
            return abs(a)
        case "min", _:
            return min(numbers)
        case "max", _:
            return max(numbers)
        case "ceil_div" | "round_up", [a, b]:
            if b <= 0:
                raise ExpressionError(f"{operator}() needs a positive divisor")
            return -(-a // b) * (b if operator == "round_up" else 1)
        case "log2", [a]:
            if a <= 0:
                raise ExpressionError("log2() of a number below 1")
            return a.bit_length() - 1
    raise AssertionError(operator)


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        raise ExpressionError("'**' with a negative exponent")
    if abs(base) > 1 and exponent > 63:
        raise ExpressionError("overflow: beyond 64 bits")
    return int(base**exponent)


def _bounded(value: Value) -> Value:
    if not isinstance(value, str) and not INT_MIN <= value <= INT_MAX:
        raise ExpressionError("overflow: beyond 64 bits")
    return value
