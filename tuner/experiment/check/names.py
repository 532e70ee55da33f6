"""Shapes and names: all shapes bind the same symbols, and no name has two meanings."""

import re
from collections.abc import Iterator

from tuner.experiment.check.finding import Finding, listed
from tuner.experiment.model import DTYPES, Experiment, ShapeBinding
from tuner.experiment.yaml_document import Path
from tuner.expressions import RESERVED, nearest
from tuner.trial import Value

MAX_SIZE = 1 << 40
_KEYWORDS = frozenset(
    "auto bool break case char const continue default do double else enum extern float for goto"
    " half if inline int long register restrict return short signed sizeof static struct switch"
    " typedef union unsigned void volatile while kernel global local constant private"
    " asm class delete explicit export false friend mutable namespace new operator protected public"
    " template this throw true try typename using virtual defined main"
    " threadIdx blockIdx blockDim gridDim warpSize".split()
)

_OTHER_NAMES = dict(
    pair.split(":")
    for pair in (
        "half:float16 fp16:float16 f16:float16 bf16:bfloat16 float:float32 fp32:float32 f32:float32"
        " double:float64 fp64:float64 f64:float64 int:int32 uint:uint32 long:int64 char:int8"
        " uchar:uint8 size_t:uint64 fp8:float8_e4m3 float8:float8_e4m3 float8_e4m3fn:float8_e4m3"
    ).split()
)


def nearest_dtype(name: str, symbols: frozenset[str] = frozenset()) -> str:
    """A hint at the element type or type symbol that was meant, or a list of all types."""
    if other := _OTHER_NAMES.get(name):
        return f"; did you mean '{other}'?"
    return nearest(name, {*DTYPES, *symbols}) or f"; there are: {listed(DTYPES)}"


def bindings(experiment: Experiment) -> Iterator[tuple[Path, ShapeBinding]]:
    """Every tune and held-out shape with its path."""
    for section in ("tune", "held_out"):
        for index, binding in enumerate(getattr(experiment.shapes, section)):
            yield ("shapes", section, index), binding


def type_symbols(experiment: Experiment) -> frozenset[str]:
    """The symbols that stand for an element type."""
    first = experiment.shapes.tune[0].symbols
    return frozenset(name for name, value in first.items() if value in DTYPES)


def check_shapes(experiment: Experiment) -> Iterator[Finding]:
    """All shapes bind the same symbols to sizes or element types, and no two are equal."""
    first = experiment.shapes.tune[0].symbols
    seen: dict[frozenset[tuple[str, Value]], Path] = {}
    for path, binding in bindings(experiment):
        for name in first.keys() - binding.symbols.keys():
            yield Finding(path, f"does not bind '{name}', which the first shape binds", name)
        for name, value in binding.symbols.items():
            if name not in first:
                hint = nearest(name, first)
                said = f"the first shape does not bind '{name}'{hint}"
                yield Finding((*path, name), said, name)
            elif message := _value_problem(name, value, first[name]):
                yield Finding((*path, name), message)
        same = seen.setdefault(frozenset(binding.symbols.items()), path)
        if same != path:
            yield Finding(path, f"the same shape as {same[1]}[{same[2]}]")


def _value_problem(name: str, value: Value, first: Value) -> str | None:
    if isinstance(value, str):
        if value not in DTYPES:
            return f"{name}: '{value}' is neither a size nor an element type{nearest_dtype(value)}"
    elif not isinstance(value, bool) and not 1 <= value <= MAX_SIZE:
        return f"{name}={value}: a size is at least 1" + (" and at most 2**40" * (value > 0))
    first_is_wrong = isinstance(first, str) and first not in DTYPES
    if type(value) is not type(first) and not first_is_wrong:
        return f"{name}: '{value}' here but '{first}' in the first shape"
    return None


def check_names(experiment: Experiment) -> Iterator[Finding]:
    """No name has two meanings, and no macro would break the source."""
    symbols = experiment.shapes.tune[0].symbols
    arguments: dict[str, str] = {}
    for index, argument in enumerate(experiment.arguments):
        if argument.name in arguments:
            message = f"duplicate argument name '{argument.name}'"
            yield Finding(("arguments", index, "name"), message)
        arguments[argument.name] = "an argument"
    for name in symbols:
        if name in RESERVED or name == "weight":
            path: Path = ("shapes", "tune", 0, name)
            yield Finding(path, f"'{name}' is reserved in expressions; rename the symbol")
    template = experiment.template
    if template is None:
        return
    for index, scratch in enumerate(template.scratch):
        if scratch.name in arguments:
            message = f"an argument named '{scratch.name}' exists"
            yield Finding(("template", "scratch", index, "name"), message)
        arguments[scratch.name] = "an argument"
    taken = dict.fromkeys(symbols, "a symbol") | arguments
    for name, values in template.parameters.items():
        path = ("template", "parameters", name)
        yield from _macro(path, name, taken)
        taken[name] = "a parameter"
        for value in values:
            if isinstance(value, str) and re.fullmatch(r"[A-Za-z_]\w*", value):
                taken.setdefault(f"{name}_{value}", f"the macro of {name}'s value {value}")
    for name in template.defines:
        yield from _macro(("template", "defines", name), name, taken)
        taken[name] = "a define"


def _macro(path: Path, name: str, taken: dict[str, str]) -> Iterator[Finding]:
    if name in taken:
        yield Finding(path, f"'{name}' is already {taken[name]}")
    elif name in RESERVED or name in _KEYWORDS or name.startswith("__"):
        yield Finding(path, f"'{name}' is reserved: as a macro it would break the source")
