"""Contents of inputs, from the argument, the shape, the secret seed and the distribution.

Every argument has its own random stream, so that adding one changes no other. ``{python: …}`` fills
come from the reference process.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import SpecError
from tuner.experiment.arguments import IntegerRange, OffsetsTo, ResolvedArgument, integer_limits
from tuner.experiment.contents import FromFile, FromPython
from workers.distributions import (
    APART,
    REACHES,
    ROWS,
    SPECIAL_PARTS,
    Distribution,
    at_end,
    end,
    ending_in_extremes,
    few,
    offsets,
    on_side,
    one_sided,
    reaching,
    ties,
    wide,
    with_specials,
)
from workers.elements import is_float, numpy_dtype

LARGE = 32.0
"""The exponential of some element overflows, a product of two does not."""
SMALL = 2.0**-12
"""A constant added for stability, such as the epsilon of a norm, matters."""
TINY = 2.0**-44
"""A least value of 1e-12 matters, and squares are no denormals in single precision."""
OUTLIER = 64.0
"""The exponential of an outlier's distance from others overflows, a product of two does not."""
_SCALES: dict[Distribution, float] = {"large": LARGE, "small": SMALL, "tiny": TINY}
_OUTLIER_SHARE = 1 / 64
_BLOCK = 2_097_143
"""Elements drawn individually; a prime, so that rows do not repeat from block to block."""
_BY_ROWS = ("assorted", "outliers", "specials")
"""Distributions in which the elements of a row have something in common, or its end is special."""
_WITH_TINY = ("bfloat16", "float32", "float64")
_PART, _PARTS = 256, 16
"""Elements of which a part of an array is of one kind, as many as blocks of threads have; fewer
where there were less than so many parts."""
_FLIPS = 2
"""Few enough elements change that a hash of a part of the inputs misses some."""
PythonFill = Callable[[FromPython, str, int], NDArray[Any]]
"""Calls a ``{python: …}`` fill: (function, argument, seed) → array."""


def stream(secret: int, *labels: object) -> np.random.Generator:
    """The random stream of these labels, by their text."""
    text = "|".join(str(label) for label in (secret, *labels))
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def fill(
    argument: ResolvedArgument,
    rng: np.random.Generator,
    distribution: Distribution,
    python: PythonFill,
) -> NDArray[Any]:
    """Contents of an ``in``, ``constant`` or ``inout`` argument: dense, of its shape and type.

    Raises:
        SpecError: a file or function gives another shape or a type that does not convert.
    """
    if is_foreign(argument):
        values = _foreign(argument, rng, python)
        return _unlike(values, argument, rng) if argument.unlike else values
    if argument.elements > _BLOCK and independent(argument):
        block = fill(_row(argument, _BLOCK), rng, distribution, python)
        found = _spread(block, argument, rng)
        if distribution in _BY_ROWS and applies(argument, distribution):
            part = _some_rows(argument)
            _replace_rows(found, fill(part, rng, distribution, python), rng)
        return found
    values = _values(argument, rng, distribution)
    dtype = numpy_dtype(argument.dtype)
    if not is_float(argument.dtype):
        return values.astype(dtype)
    with np.errstate(over="ignore"):
        converted: NDArray[Any] = values.astype(dtype)
    if distribution in ("specials", "rare specials") and argument.specials:
        return with_specials(converted, argument, rng, in_a_row=distribution == "specials")
    return converted


def flipped(
    contents: NDArray[Any], argument: ResolvedArgument, rng: np.random.Generator
) -> NDArray[Any]:
    """The same contents with a few elements drawn anew (swapped, in a permutation)."""
    if argument.fill == "zeros" or isinstance(argument.fill, OffsetsTo) or is_foreign(argument):
        return contents
    changed = contents.copy().reshape(-1)
    if argument.fill == "permutation":
        i, j = (int(k) for k in rng.integers(changed.size, size=2))
        changed[[i, j]] = changed[[j, i]]
    else:
        count = max(1, min(_FLIPS, changed.size // 8))
        places = rng.choice(changed.size, count, replace=False)
        fresh = _values(_row(argument, count), rng, "default")
        with np.errstate(over="ignore"):
            changed[places] = fresh.astype(changed.dtype)
    return changed.reshape(contents.shape)


def drawn_with(argument: ResolvedArgument, arguments: Sequence[ResolvedArgument]) -> str:
    """The argument that names the random stream of this one: itself, or the first of one seed."""
    if isinstance(argument.fill, FromPython) and argument.fill.same_seed:
        return next(one.name for one in arguments if one.fill == argument.fill)
    return argument.name


def is_foreign(argument: ResolvedArgument) -> bool:
    """Whether the contents come from the user's file or function, so are not drawn."""
    return isinstance(argument.fill, FromFile | FromPython)


def applies(argument: ResolvedArgument, distribution: Distribution) -> bool:
    """Whether a distribution differs from the default one for this argument."""
    if isinstance(argument.fill, IntegerRange):
        return distribution in ("few", "ends", "low", "high", "same")
    if isinstance(argument.fill, OffsetsTo):
        return distribution in ("few", "ends", "same", *APART)
    if argument.fill not in ("normal", "uniform"):
        return False
    match distribution:
        case "assorted":
            return math.prod(argument.shape[:-1]) > 1
        case "parts":
            return argument.elements > 1
        case "default":
            return True
        case "large" | "outliers":
            return is_float(argument.dtype) and argument.range is None
        case "small":
            return is_float(argument.dtype) and _may_be_zero(argument)
        case "tiny":
            return argument.dtype in _WITH_TINY and _may_be_zero(argument)
        case "zeros":
            return _may_be_zero(argument)
        case "same":
            return not is_float(argument.dtype)
        case "farthest apart" | "far apart" | "sides apart":
            return bool(_apart(argument, distribution))
        case "few":
            return True
        case "ends":
            return argument.range is not None
        case "low":
            whole = not is_float(argument.dtype)
            return argument.fill == "normal" or argument.range is not None or whole
        case "high":
            return True
        case "specials" | "rare specials":
            return bool(argument.specials)
        case "lowest" | "lower" | "highest" | "higher":
            return at_end(argument, distribution) is not None
        case "whole" | "most" | "half":
            if is_float(argument.dtype):
                return _may_be_zero(argument)
            return argument.fill == "normal" and argument.range is None and argument.dtype != "bool"


def _apart(argument: ResolvedArgument, distribution: Distribution) -> list[Distribution]:
    """The distributions of which the argument has one, if it is one of :data:`APART`."""
    pairs = ([one for one in pair if applies(argument, one)] for pair in APART[distribution])
    return next(filter(None, pairs), [])


def _may_be_zero(argument: ResolvedArgument) -> bool:
    return argument.range is None or argument.range[0] <= 0 <= argument.range[1]


def independent(argument: ResolvedArgument) -> bool:
    """Whether elements are drawn independently from one distribution."""
    return argument.fill in ("normal", "uniform") or isinstance(argument.fill, IntegerRange)


def _row(argument: ResolvedArgument, elements: int) -> ResolvedArgument:
    """The argument as a vector of so many elements."""
    return replace(argument, shape=(elements,), strides=(1,))


def _spread(
    block: NDArray[Any], argument: ResolvedArgument, rng: np.random.Generator
) -> NDArray[Any]:
    """An array of one drawn block repeated, each time from another start.

    Drawing hundreds of millions of numbers takes many seconds. No two blocks are equal.
    """
    found = np.empty(argument.elements, block.dtype)
    count = -(-found.size // block.size)
    starts = rng.choice(block.size, count, replace=False).tolist()
    for number, start in enumerate(starts):
        part = found[number * block.size : (number + 1) * block.size]
        split = min(block.size - start, part.size)
        part[:split] = block[start : start + split]
        part[split:] = block[: part.size - split]
    return found.reshape(argument.shape)


def _some_rows(argument: ResolvedArgument) -> ResolvedArgument:
    """Rows of a huge array, one block of them. Of long rows they are the ends, of odd length."""
    rows, length = math.prod(argument.shape[:-1]), argument.shape[-1]
    count = min(rows, max(SPECIAL_PARTS, _BLOCK // length))
    part = length if count * length <= _BLOCK else (_BLOCK // count - 1) | 1
    return replace(argument, shape=(count, part))


def _replace_rows(values: NDArray[Any], rows: NDArray[Any], rng: np.random.Generator) -> None:
    """Replace some rows of an array, at random places, by these, repeated to their length."""
    length = values.shape[-1]
    table = values.reshape(-1, length)
    here = rng.choice(len(table), len(rows), replace=False)
    table[here] = np.tile(rows, -(-length // rows.shape[1]))[:, -length:]


def _values(
    argument: ResolvedArgument, rng: np.random.Generator, distribution: Distribution
) -> NDArray[Any]:
    shape = argument.shape
    plain = argument.fill == "normal" and argument.range is None and is_float(argument.dtype)
    if plain and distribution in ("same", "ends"):
        # A segment may hold all of them: their sum must not cancel.
        return on_side(argument, _numbers(argument, rng, 1.0), 1)
    if not applies(argument, distribution):
        distribution = "default"
    if distribution in APART:
        either = _apart(argument, distribution)
        distribution = either[int(rng.integers(len(either)))]
    if isinstance(argument.fill, IntegerRange):
        lo, hi = argument.fill.lo, argument.fill.hi
        if distribution == "few":
            return rng.choice(few(argument), shape)
        if distribution == "ends":
            return np.where(rng.random(shape) < 0.5, lo, hi)
        if distribution in ("low", "high"):
            lo, hi = end(lo, hi, distribution)
        if distribution == "same":
            return np.full(shape, rng.integers(lo, hi, endpoint=True))
        return rng.integers(lo, hi, size=shape, endpoint=True, dtype=wide(argument))
    if argument.fill == "permutation":
        return rng.permutation(argument.elements).reshape(shape)
    if isinstance(argument.fill, OffsetsTo):
        return offsets(argument, argument.fill.last, rng, distribution)
    if argument.fill == "zeros" or distribution == "zeros":
        return np.zeros(shape)
    if distribution == "assorted":
        return _assorted(argument, rng)
    if distribution == "parts":
        return _in_parts(argument, rng)
    if distribution == "ends" and argument.range is not None:
        return np.where(rng.random(shape) < 0.5, *argument.range)
    if distribution in ("low", "high"):
        side = one_sided(argument, distribution)
        return _numbers(replace(argument, fill="uniform", range=side), rng, 1.0)
    if (part := at_end(argument, distribution)) is not None:
        return _numbers(replace(argument, fill="uniform", range=part), rng, 1.0)
    if distribution in REACHES:
        return reaching(argument, rng, *REACHES[distribution])
    if distribution == "same":
        return np.full(shape, _numbers(replace(argument, shape=()), rng, 1.0))
    if distribution == "few":
        return _few(argument, rng)
    if distribution == "outliers":
        chosen = np.asarray(rng.random(shape) < _OUTLIER_SHARE)
        if shape:
            chosen[..., -1] |= rng.random(shape[:-1]) < 0.5
        return _numbers(argument, rng, 1.0) * np.where(chosen, OUTLIER, 1.0)
    return _numbers(argument, rng, _SCALES.get(distribution, 1.0))


def _few(argument: ResolvedArgument, rng: np.random.Generator) -> NDArray[Any]:
    """The same few values again and again; of floats every second one may be a tie."""
    found = np.asarray(rng.choice(few(argument), argument.shape))
    if is_float(argument.dtype) and (between := ties(argument)).size:
        chosen = rng.random(argument.shape) < 0.5
        found = np.where(chosen, rng.choice(between, argument.shape), found)
    return found


def _numbers(argument: ResolvedArgument, rng: np.random.Generator, scale: float) -> NDArray[Any]:
    shape, limits = argument.shape, argument.range
    if not is_float(argument.dtype):
        lowest, highest = integer_limits(argument.dtype)
        low, high = (int(limits[0]), int(limits[1])) if limits else (lowest, highest)
        if argument.fill == "uniform" or argument.dtype == "bool":
            return rng.integers(low, high, size=shape, endpoint=True, dtype=wide(argument))
        near = np.rint(10 * rng.standard_normal(shape))
        return np.clip(np.maximum(near, lowest).astype(wide(argument)), low, high)
    precision = np.float64 if argument.dtype == "float64" else np.float32
    if argument.fill == "uniform":
        first, last = limits or (0.0, 1.0)
        # In halves, since the difference of the ends may be larger than any number of the type.
        halves = first / 2 + (last / 2 - first / 2) * rng.random(shape, precision)
        return np.clip(halves, first / 2, last / 2) * 2 * scale
    drawn = rng.standard_normal(shape, precision) * precision(scale)
    return np.clip(drawn, *limits) if limits else drawn


def _assorted(argument: ResolvedArgument, rng: np.random.Generator) -> NDArray[Any]:
    """Rows, each of another kind; every second one ends with its extremes."""
    kinds = [
        (distribution, side)
        for distribution, side in ROWS
        if applies(argument, distribution) and (not side or argument.fill == "normal")
    ]
    rows = math.prod(argument.shape[:-1])
    chosen = rng.permutation(np.arange(rows) % len(kinds))
    dtype = np.float64 if is_float(argument.dtype) else wide(argument)
    found = np.empty((rows, argument.shape[-1]), dtype)
    for number, (distribution, side) in enumerate(kinds):
        here = chosen == number
        part = replace(argument, shape=(int(np.count_nonzero(here)), argument.shape[-1]))
        values = _values(part, rng, distribution)
        found[here] = on_side(argument, values, side) if side else values
    found[1::2] = ending_in_extremes(found[1::2])
    return found.reshape(argument.shape)


def _in_parts(argument: ResolvedArgument, rng: np.random.Generator) -> NDArray[Any]:
    """Consecutive elements of one kind: a kernel may leave out tiles that are zero in one array."""
    length = min(_PART, -(-argument.elements // _PARTS))
    rows = replace(argument, shape=(-(-argument.elements // length), length))
    return _assorted(rows, rng).reshape(-1)[: argument.elements].reshape(argument.shape)


def _unlike(
    values: NDArray[Any], argument: ResolvedArgument, rng: np.random.Generator
) -> NDArray[Any]:
    """Other contents in place of one number throughout: around it, or normal around 0."""
    number = values.reshape(-1)[0]
    if not np.isfinite(number) or not np.array_equal(values, np.full_like(values, number)):
        return values
    drawn = _numbers(replace(argument, fill="normal", range=None), rng, 1.0)
    found = drawn if number == 0 else float(number) * (1 + drawn / 4)
    return np.clip(found, *(argument.range or (None, None))).astype(values.dtype)


def _foreign(
    argument: ResolvedArgument, rng: np.random.Generator, python: PythonFill
) -> NDArray[Any]:
    if isinstance(argument.fill, FromPython):
        source = f"{argument.fill.python.file}:{argument.fill.python.function}"
        values = python(argument.fill, argument.name, int(rng.integers(2**31)))
    else:
        assert isinstance(argument.fill, FromFile)
        source = argument.fill.file
        repeated = argument.repeats and not Path(source).exists()
        if repeated:
            source = argument.fill.sample
        try:
            values = np.load(Path(source), allow_pickle=False)
        except (OSError, ValueError) as error:
            raise SpecError(f"argument '{argument.name}': cannot read {source}: {error}") from None
        if repeated:
            start = int(rng.integers(values.size))
            values = np.resize(np.roll(values.reshape(-1), start), argument.shape)
    if values.shape != argument.shape:
        raise SpecError(
            f"argument '{argument.name}': {source} holds shape {values.shape}, not {argument.shape}"
        )
    dtype = numpy_dtype(argument.dtype)
    if not is_float(argument.dtype) and values.dtype.kind not in "iub":
        raise SpecError(f"argument '{argument.name}': {source} holds {values.dtype}, not {dtype}")
    return values.astype(dtype)
