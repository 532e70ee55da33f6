"""Expressions over symbols that give the numbers of several shapes: sizes, grids, blocks.

Simple forms come first: constants and products of symbols, their quotients, ``ceil_div``, the same
below a limit, and a small sum. Several may fit; the more shapes differ, the fewer do.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tuner.drafts.guesses import Confidence, Guess

Values = Mapping[str, Sequence[int]]
"""The value of each symbol on every shape."""

_SYMBOLS = 3
_FACTOR = 4096
_ADDED = 64
_PECULIAR = 256
"""Numbers above are hardly equal to a product of symbols by chance."""


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of symbols and its value on every shape."""

    text: str
    values: tuple[int, ...]


def fit_size(values: Sequence[int], symbols: Values) -> Guess | None:
    """An expression for a number of elements or bytes on each shape."""
    found = [*_constant(values, symbols), *_equal(values, symbols), *_scaled(values, symbols)]
    found += _sums(values, symbols)
    return _chosen(values, found or _last(values))


def fit_launch(values: Sequence[int], symbols: Values, unit: int) -> Guess | None:
    """An expression for an extent of a grid or block, or for shared bytes.

    ``unit`` is the block's number of threads: grids usually count blocks of a multiple of it.
    """
    found = [*_constant(values, symbols), *_equal(values, symbols)]
    found += [*_divided(values, symbols, unit), *_scaled(values, symbols)]
    return _chosen(values, found or _last(values))


def _chosen(values: Sequence[int], found: Sequence[str]) -> Guess | None:
    if not found:
        return None
    text, *others = dict.fromkeys(found)
    distinct = len(set(values))
    reason = f"fits {len(values)} shapes" if len(values) > 1 else "fits the one shape"
    if others:
        reason += f"; so would {', '.join(others[:2])}"
    confidence: Confidence = "low"
    if distinct > 2 or (distinct == 2 and not others):
        confidence = "high"
    elif distinct == 2 or (not others and (len(values) > 1 or max(values) >= _PECULIAR)):
        confidence = "medium"
    return Guess(text, reason, confidence)


def _constant(values: Sequence[int], symbols: Values) -> Iterator[str]:
    """A constant, if symbols vary and it does not."""
    if len(set(values)) == 1 and any(len(set(known)) > 1 for known in symbols.values()):
        yield str(values[0])


def _last(values: Sequence[int]) -> list[str]:
    """A constant for want of anything else."""
    return [str(values[0])] if len(set(values)) == 1 else []


def _products(symbols: Values) -> Iterator[_Product]:
    for count in range(1, _SYMBOLS + 1):
        for names in combinations(symbols, count):
            rows = zip(*(symbols[name] for name in names), strict=True)
            yield _Product(" * ".join(names), tuple(map(math.prod, rows)))


def _equal(values: Sequence[int], symbols: Values) -> Iterator[str]:
    """Products of symbols."""
    yield from (one.text for one in _products(symbols) if one.values == tuple(values))


def _scaled(values: Sequence[int], symbols: Values) -> Iterator[str]:
    """Products of symbols times, or divided by, a small number."""
    for product in _products(symbols):
        if factor := _ratio(values, product.values):
            yield f"{factor} * {product.text}"
    for product in _products(symbols):
        if len(set(values)) > 1 and (divisor := _ratio(product.values, values)):
            whole = product.text if " " not in product.text else f"({product.text})"
            yield f"{whole} // {divisor}"


def _ratio(larger: Sequence[int], smaller: Sequence[int]) -> int | None:
    """The small number above 1 by which all pairs differ."""
    pairs = list(zip(larger, smaller, strict=True))
    if any(one < 1 or many % one for many, one in pairs):
        return None
    ratios = {many // one for many, one in pairs}
    return ratios.pop() if len(ratios) == 1 and 1 < min(ratios) <= _FACTOR else None


def _sums(values: Sequence[int], symbols: Values) -> Iterator[str]:
    """A product of symbols and a small constant, where several shapes agree."""
    if len(set(values)) < 2:
        return
    for product in _products(symbols):
        added = {value - one for value, one in zip(values, product.values, strict=True)}
        if len(added) == 1:
            (more,) = added
            if 0 < abs(more) <= _ADDED:
                yield f"{product.text} {'+' if more > 0 else '-'} {abs(more)}"


def _divided(values: Sequence[int], symbols: Values, unit: int) -> Iterator[str]:
    """``ceil_div`` of a product, then the same with a limit that some shapes reach."""
    products = list(_products(symbols))
    found = False
    for product in products:
        if divisor := _divisor(list(zip(values, product.values, strict=True)), unit):
            yield f"ceil_div({product.text}, {divisor})"
            found = True
    limit = max(values)
    below = [index for index, value in enumerate(values) if value < limit]
    if found or not below or len(below) == len(values):
        return
    for product in products:
        pairs = [(values[index], product.values[index]) for index in below]
        divisor = _divisor(pairs, unit)
        every = zip(values, product.values, strict=True)
        if (
            divisor
            and divisor % unit == 0
            and all(-(-one // divisor) >= value for value, one in every)
        ):
            yield f"min(ceil_div({product.text}, {divisor}), {limit})"


def _divisor(pairs: Sequence[tuple[int, int]], unit: int) -> int | None:
    """A number that divides the second of each pair into the first, rounded up.

    Multiples of ``unit`` by a power of two are preferred, then powers of two.
    """
    low, high = 2, 2 * max(one for _, one in pairs)
    for value, one in pairs:
        if value < 1:
            return None
        low = max(low, -(-one // value))
        high = min(high, -(-one // (value - 1)) - 1 if value > 1 else high)
    if low > high:
        return None
    for start in (max(unit, 1), 1):
        size = start
        while size < low:
            size *= 2
        if size <= high:
            return size
    return low
