"""The values of an expression at many points at once, equal to the scalar value at each.

A point is invalid if its evaluation reaches an error (division by zero, overflow …). Every
intermediate result is ``(values, valid)``, two arrays that broadcast.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tuner.device import Device
from tuner.expressions.scalar import COMPARE
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

Values = npt.NDArray[np.generic]
Column = Values | Value
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Masked = tuple[Values, Bools]

_TRUE: Bools = np.asarray(True)


def evaluate(node: Node, columns: Mapping[str, Column], device: Device | None) -> Masked:
    """The tree's values; the kinds have been checked and every name is bound."""
    with np.errstate(all="ignore"):
        return _evaluate(node, columns, device)


def _evaluate(node: Node, columns: Mapping[str, Column], device: Device | None) -> Masked:
    match node:
        case Const(value):
            return np.asarray(value), _TRUE
        case Name(name):
            return _column(name, columns[name])
        case DeviceAttribute(name):
            return np.asarray(getattr(device, name)), _TRUE
        case Apply("in", operands):
            (first, valid), *items = (_evaluate(operand, columns, device) for operand in operands)
            found: Bools = np.asarray(False)
            for item, item_valid in items:
                found = found | (first == item)
                valid = valid & item_valid
            return found, valid
        case Apply(operator, operands):
            evaluated = [_evaluate(operand, columns, device) for operand in operands]
            numbers = [np.asarray(values).astype(np.int64) for values, _ in evaluated]
            result, defined = _apply(operator, numbers)
            for _, valid in evaluated:
                defined = defined & valid
            return result, defined
        case Chain(operators, (first, *others)):
            left, valid = _evaluate(first, columns, device)
            holds = _TRUE
            for operator, other in zip(operators, others, strict=True):
                right, right_valid = _evaluate(other, columns, device)
                valid = valid & (~holds | right_valid)
                holds = holds & np.asarray(COMPARE[operator](left, right))  # type: ignore[arg-type]
                left = right
            return holds, valid
        case Logic(operator, operands):
            undecided, valid = _TRUE, _TRUE
            for operand in operands:
                values, operand_valid = _evaluate(operand, columns, device)
                valid = valid & (~undecided | operand_valid)
                undecided = undecided & (values.astype(bool) == (operator == "and"))
            return (undecided if operator == "and" else ~undecided), valid
        case Choice(condition, then, otherwise):
            chosen, valid = _evaluate(condition, columns, device)
            chosen = chosen.astype(bool)
            (a, a_valid), (b, b_valid) = (
                _evaluate(side, columns, device) for side in (then, otherwise)
            )
            return np.where(chosen, a, b), valid & np.where(chosen, a_valid, b_valid)
        case _:
            raise AssertionError(node)


def _column(name: str, column: Column) -> Masked:
    values = np.asarray(column)
    if values.dtype.kind in "bU" or values.dtype == np.int64:
        return values, _TRUE
    if values.dtype.kind == "i":
        return values.astype(np.int64), _TRUE
    if values.dtype.kind == "u":
        return values.astype(np.int64), np.asarray(values <= INT_MAX)
    if isinstance(column, int):
        return np.asarray(0), np.asarray(False)
    raise ExpressionError(f"column '{name}' holds {values.dtype}, not integers, bools or names")


def _apply(operator: str, numbers: list[Ints]) -> tuple[Ints, Bools]:
    match operator, numbers:
        case "+", [a, b]:
            return _add(a, b)
        case "-", [a, b]:
            return _subtract(a, b)
        case "*", [a, b]:
            return _multiply(a, b)
        case "//", [a, b]:
            defined = (b != 0) & ~((a == INT_MIN) & (b == -1))
            return a // np.where(defined, b, 1), defined
        case "%", [a, b]:
            defined = b != 0
            safe = np.where(defined & (b != -1), b, 1)
            return a % safe, defined
        case "**", [a, b]:
            return _power(a, b)
        case "neg", [a]:
            return -a, np.asarray(a != INT_MIN)
        case "pos", [a]:
            return a, _TRUE
        case "not", [a]:
            return np.asarray(a == 0).astype(np.int64), _TRUE
        case "abs", [a]:
            return abs(a), np.asarray(a != INT_MIN)
        case "min" | "max", [first, *others]:
            for other in others:
                first = (np.minimum if operator == "min" else np.maximum)(first, other)
            return first, _TRUE
        case "ceil_div" | "round_up", [a, b]:
            defined = np.asarray(b > 0)
            safe = np.where(defined, b, 1)
            quotient = a // safe + (a % safe != 0)
            if operator == "ceil_div":
                return quotient, defined
            result, fits = _multiply(quotient, safe)
            return result, defined & fits
        case "log2", [a]:
            return _log2(a)
    raise AssertionError(operator)


def _bounds(values: Ints) -> tuple[int, int]:
    return (int(values.min()), int(values.max())) if values.size else (0, 0)


def _add(a: Ints, b: Ints) -> tuple[Ints, Bools]:
    result = a + b
    (a_low, a_high), (b_low, b_high) = _bounds(a), _bounds(b)
    if a_low + b_low >= INT_MIN and a_high + b_high <= INT_MAX:
        return result, _TRUE
    return result, np.asarray(((a < 0) != (b < 0)) | ((result < 0) == (a < 0)))


def _subtract(a: Ints, b: Ints) -> tuple[Ints, Bools]:
    result = a - b
    (a_low, a_high), (b_low, b_high) = _bounds(a), _bounds(b)
    if a_low - b_high >= INT_MIN and a_high - b_low <= INT_MAX:
        return result, _TRUE
    return result, np.asarray(((a < 0) == (b < 0)) | ((result < 0) == (a < 0)))


def _multiply(a: Ints, b: Ints) -> tuple[Ints, Bools]:
    result = a * b
    products = [x * y for x in _bounds(a) for y in _bounds(b)]
    if min(products) >= INT_MIN and max(products) <= INT_MAX:
        return result, _TRUE
    # Dividing back tells whether the product wrapped, save for the one quotient that itself wraps.
    odd = ((a == -1) & (b == INT_MIN)) | ((a == INT_MIN) & (b == -1))
    divisor = np.where((a == 0) | odd, 1, a)
    exact = (a == 0) | (result // divisor == b) & (result % divisor == 0)
    return result, np.asarray(exact & ~odd)


def _power(base: Ints, exponent: Ints) -> tuple[Ints, Bools]:
    small = abs(base) <= 1
    small &= base != INT_MIN
    defined = (exponent >= 0) & (small | (exponent <= 63))
    # A base of -1, 0 or 1 only cares whether the exponent is 0, odd or even.
    exponent = np.where(small & (exponent > 2), 2 - exponent % 2, exponent)
    exponent = np.where(defined, exponent, 0)
    result: Ints = np.broadcast_to(np.int64(1), np.broadcast_shapes(base.shape, exponent.shape))
    for done in range(_bounds(exponent)[1]):
        going = done < exponent
        product, fits = _multiply(result, base)
        result = np.where(going, product, result)
        defined = defined & (~going | fits)
    return result, np.asarray(defined)


def _log2(a: Ints) -> tuple[Ints, Bools]:
    defined = np.asarray(a >= 1)
    rest = np.where(defined, a, 1)
    result = np.zeros_like(rest)
    for bits in (32, 16, 8, 4, 2, 1):
        large = rest >> bits > 0
        result = result + np.where(large, bits, 0)
        rest = np.where(large, rest >> bits, rest)
    return result, defined
