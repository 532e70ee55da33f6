"""Arguments: the keys that each kind takes, and their values on every shape."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields

from tuner.errors import SpecError
from tuner.experiment.arguments import (
    IntegerRange,
    OffsetsTo,
    ResolvedArgument,
    holds,
    integer_limits,
    item_bytes,
    resolve_argument,
    rounds_to_zero,
)
from tuner.experiment.check.expressions import places
from tuner.experiment.check.finding import Finding, listed
from tuner.experiment.check.names import bindings, nearest_dtype, type_symbols
from tuner.experiment.contents import Keys, Offsets, Segments, Ulp, Unordered, follows
from tuner.experiment.model import DTYPES, Argument, Experiment, ShapeBinding
from tuner.experiment.yaml_document import Path
from tuner.expressions import Expression, ExpressionError, nearest

_FILLED = frozenset({"range", "specials", "fixed"})
_COMPARED = frozenset({"tolerance", "compare"})
_LAYOUT = frozenset({"dtype", "shape", "strides", "align"})
_KEYS: dict[str, frozenset[str]] = {
    "in": _LAYOUT | _FILLED | {"values"},
    "out": _LAYOUT | _COMPARED,
    "inout": _LAYOUT | _FILLED | _COMPARED | {"initial"},
    "scalar": frozenset({"dtype", "value", "range", "fixed"}),
    "struct": frozenset({"fields", "bytes", "fixed"}),
    "scratch": frozenset({"dtype", "shape", "align"}),
    "constant": frozenset({"dtype", "shape", "values", "symbol"}) | _FILLED,
    "null": frozenset(),
}
MAX_ALIGN = 4096
MAX_AXIS = 2**31 - 1


def check_arguments(experiment: Experiment) -> Iterator[Finding]:
    """Each argument has the keys of its kind, and at least one is compared."""
    types = type_symbols(experiment)
    for index, argument in enumerate(experiment.arguments):
        path: Path = ("arguments", index)
        yield from _keys(path, argument)
        if argument.kind == "struct":
            yield from _struct(path, argument, types)
        elif argument.kind != "null":
            yield from check_dtype((*path, "dtype"), argument.dtype, types)
        yield from _consistent(path, argument)
        yield from _groups((*path, "compare"), argument, experiment)
    if not any(argument.is_output for argument in experiment.arguments):
        message = "no argument is out or inout: nothing could be compared"
        yield Finding(("arguments",), message)


def check_dtype(path: Path, dtype: str, types: frozenset[str]) -> Iterator[Finding]:
    """The element type exists, or is a type symbol."""
    if not dtype:
        yield Finding(path, "missing key 'dtype'", "dtype")
    elif dtype not in DTYPES and dtype not in types:
        yield Finding(path, f"unknown element type '{dtype}'{nearest_dtype(dtype, types)}")


def _keys(path: Path, argument: Argument) -> Iterator[Finding]:
    allowed = _KEYS[argument.kind]
    for field in fields(Argument):
        key = field.name
        if key in ("name", "kind") or key in allowed:
            continue
        if getattr(argument, key) != field.default:
            yield Finding(
                (*path, key), f"'{key}' does not apply to an argument of kind {argument.kind}"
            )
    needed = {"shape"} if argument.is_buffer else set()
    needed |= {"scalar": {"value"}, "constant": {"symbol"}}.get(argument.kind, set())
    for key in sorted(needed):
        if getattr(argument, key) in (None, ()):
            yield Finding(path, f"missing key '{key}': a {argument.kind} argument needs it", key)


def _struct(path: Path, argument: Argument, types: frozenset[str]) -> Iterator[Finding]:
    if bool(argument.fields) == (argument.bytes is not None):
        yield Finding(path, "a struct needs 'fields' or 'bytes', one of them", "fields")
    seen: set[str] = set()
    for number, field in enumerate(argument.fields):
        at: Path = (*path, "fields", number)
        yield from check_dtype((*at, "dtype"), field.dtype, types)
        yield from _align((*at, "align"), field.align)
        if field.name in seen:
            yield Finding((*at, "name"), f"two fields are named '{field.name}'")
        seen.add(field.name)


def _groups(path: Path, argument: Argument, experiment: Experiment) -> Iterator[Finding]:
    """Within what an unordered output may be in any order."""
    if not isinstance(argument.compare, Unordered) or argument.compare.unordered == "whole":
        return
    how = argument.compare.unordered
    if how == "rows":
        if len(argument.shape) < 2:
            yield Finding(path, "'rows' needs two dimensions; say {unordered: whole} for one")
        return
    name = how.segments if isinstance(how, Segments) else how.key
    known = {a.name: a for a in experiment.arguments if a.is_buffer and a.kind != "scratch"}
    if name not in known or name == argument.name:
        others = known.keys() - {argument.name}
        there = nearest(name, others) or f"; there are: {listed(sorted(others))}"
        yield Finding((*path, "unordered"), f"no other array '{name}'{there}")
    elif isinstance(how, Segments):
        if len(argument.shape) != 1:
            said = "segments are of an output of one dimension; 'rows' and 'key' take more"
            yield Finding((*path, "unordered"), said)
        if known[name].dtype.startswith(("float", "bfloat", "bool")):
            said = f"segments begin at integers, but '{name}' is {known[name].dtype}"
            yield Finding((*path, "unordered"), said)


def _align(path: Path, align: int | None) -> Iterator[Finding]:
    if align is not None and (align & (align - 1) or align > MAX_ALIGN):
        yield Finding(path, f"align must be a power of two of at most {MAX_ALIGN} bytes")


def _consistent(path: Path, argument: Argument) -> Iterator[Finding]:
    floats = not argument.dtype.startswith(("int", "uint", "bool"))
    fill_key = "initial" if argument.kind == "inout" else "values"
    fill = getattr(argument, fill_key)
    yield from _align((*path, "align"), argument.align)
    if argument.align and argument.dtype in DTYPES and argument.align < item_bytes(argument.dtype):
        yield Finding((*path, "align"), f"align is smaller than one {argument.dtype}")
    if argument.range is not None:
        low, high = argument.range
        if not float("-inf") < low <= high < float("inf"):
            yield Finding((*path, "range"), "range must be [low, high], both finite")
        elif argument.kind == "scalar" and not _holds(argument):
            yield Finding((*path, "range"), f"range does not hold the value, {argument.value}")
    if argument.kind == "scalar" and follows(argument.value):
        for key, remedy in (
            ("range", "limit the sizes in `shapes.domain`"),
            ("fixed", "leave it out"),
        ):
            if getattr(argument, key):
                message = f"'{key}' does not apply: the value follows from the shape; {remedy}"
                yield Finding((*path, key), message)
    if argument.specials and not floats:
        yield Finding((*path, "specials"), f"{argument.dtype} has neither inf nor nan")
    whole = "permutation" if fill == "permutation" else "offsets" * isinstance(fill, Offsets)
    if whole and argument.dtype in DTYPES and floats:
        yield Finding(
            (*path, fill_key), f"'{whole}' fills with integers, but the type is {argument.dtype}"
        )
    if argument.tolerance and not (
        argument.compare == "close" or isinstance(argument.compare, Unordered)
    ):
        yield Finding((*path, "tolerance"), "tolerance does not apply with this 'compare'")
    if isinstance(argument.compare, Ulp) and not floats:
        yield Finding((*path, "compare"), f"ulp applies to floating point, not to {argument.dtype}")


def _holds(argument: Argument) -> bool:
    """Whether the range of a scalar holds its value, as far as that is a number."""
    low, high = argument.range or (0.0, 0.0)
    value = argument.value
    if follows(value):
        return True
    if isinstance(value, Expression):
        with suppress(ExpressionError, ValueError):
            return low <= int(value.evaluate({})) <= high
    return not isinstance(value, float) or low <= value <= high


def check_values(experiment: Experiment, found: list[Finding]) -> Iterator[Finding]:
    """Every shape is inside the domain, with valid sizes and a valid baseline launch.

    Paths that ``found`` already names are skipped.
    """
    wrong = {finding.path for finding in found}
    for path, binding in bindings(experiment):
        if any(above[: len(path)] == path for above in wrong):
            continue
        for finding in (
            *_domain(experiment, path, binding, wrong),
            *_sizes(experiment, binding, wrong),
            *_launch(experiment, binding, wrong),
        ):
            if finding.path not in wrong:
                wrong.add(finding.path)
                yield finding


def _domain(
    experiment: Experiment, path: Path, binding: ShapeBinding, wrong: set[Path]
) -> Iterator[Finding]:
    for index, condition in enumerate(experiment.shapes.domain):
        if ("shapes", "domain", index) in wrong:
            continue
        try:
            if not condition.evaluate(binding.symbols):
                yield Finding(path, f"outside the domain: '{condition}' does not hold")
        except ExpressionError as error:
            yield Finding(path, f"outside the domain: {error}")


def _sizes(experiment: Experiment, binding: ShapeBinding, wrong: set[Path]) -> Iterator[Finding]:
    for index, argument in enumerate(experiment.arguments):
        path: Path = ("arguments", index)
        if any(above[:2] == path for above in wrong):
            continue
        try:
            resolved = resolve_argument(argument, binding.symbols)
        except SpecError as error:
            yield Finding(path, str(error))
            continue
        if message := _range_problem(resolved):
            yield Finding((*path, "range"), message)
        elif message := _fill_problem(resolved) or _key_problem(argument, experiment, binding):
            yield Finding(path, f"argument '{argument.name}': {message}")
    for key in ("bytes", "flops"):
        cost = getattr(experiment.cost, key) if experiment.cost else None
        if (
            cost is not None
            and ("cost", key) not in wrong
            and (message := _below(cost, binding, 0))
        ):
            yield Finding(("cost", key), message)


def _range_problem(argument: ResolvedArgument) -> str | None:
    dtype = argument.dtype
    for end in argument.range or ():
        if not holds(dtype, end):
            return f"range ends at {end!r}, which {dtype} does not hold: narrow it"
        if rounds_to_zero(dtype, end):
            return f"range ends at {end!r}, which {dtype} rounds to 0: write 0, or narrow it"
    return None


def _fill_problem(argument: ResolvedArgument) -> str | None:
    if not argument.is_buffer or argument.dtype.startswith(("float", "bfloat")):
        return None
    low, high = integer_limits(argument.dtype)
    fill = argument.fill
    if isinstance(fill, IntegerRange) and not low <= fill.lo <= fill.hi <= high:
        return f"integers from {fill.lo} to {fill.hi} do not fit {argument.dtype}"
    if fill == "permutation" and argument.elements - 1 > high:
        return f"a permutation of {argument.elements} does not fit {argument.dtype}"
    if isinstance(fill, OffsetsTo) and fill.last > high:
        return f"offsets up to {fill.last} do not fit {argument.dtype}"
    return None


def _key_problem(argument: Argument, experiment: Experiment, binding: ShapeBinding) -> str | None:
    if not isinstance(argument.compare, Unordered):
        return None
    how = argument.compare.unordered
    if not isinstance(how, Keys):
        return None
    keys = next((a for a in experiment.arguments if a.name == how.key), None)
    with suppress(SpecError):
        shapes = [resolve_argument(a, binding.symbols).shape for a in (argument, keys) if a]
        if len(shapes) == 2 and shapes[0] != shapes[1]:
            return f"its shape is {list(shapes[0])}, but that of its keys {list(shapes[1])}"
    return None


def _launch(experiment: Experiment, binding: ShapeBinding, wrong: set[Path]) -> Iterator[Finding]:
    for place in places(experiment):
        expression = place.expression
        if place.scope == "kernel" and isinstance(expression, Expression):
            least = 0 if place.path[-1] in ("shared_bytes", "dependent") else 1
            if place.path not in wrong and (message := _below(expression, binding, least)):
                yield Finding(place.path, message)


def _below(expression: Expression, binding: ShapeBinding, least: int) -> str | None:
    """The problem of a count on one shape; what reads the device is not checked here."""
    if expression.device_names:
        return None
    try:
        value = expression.evaluate(binding.symbols)
    except ExpressionError as error:
        return str(error)
    assert isinstance(value, int)
    if value < least:
        return f"'{expression}' is {int(value)} at {binding}; at least {least} is needed"
    if least == 1 and value > MAX_AXIS:
        return f"'{expression}' is {value} at {binding}; at most 2**31 - 1 is allowed"
    return None
