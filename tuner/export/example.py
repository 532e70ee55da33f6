"""``example.c`` of an export: a whole host program that uses the header.

One text for each backend, in ``examples/``; the arguments, their sizes and the shape are filled in.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from string import Template as Text

from tuner.device import Device
from tuner.experiment.arguments import item_bytes, resolve_argument
from tuner.experiment.model import Argument, Experiment
from tuner.export.launch_code import LaunchCode
from tuner.export.variant import ExportVariant, identifier
from tuner.expressions import Expression
from tuner.plan import Shape
from tuner.trial import Value

NAME = "example.c"

_FOLDER = Path(__file__).with_name("examples")
_FORMATS = {"float64": "<d", "float32": "<f", "float16": "<e"}
_ONE = {"bfloat16": b"\x80\x3f", "float8_e4m3": b"\x38", "float8_e5m2": b"\x3c"}
"""The number 1 in the types that Python cannot pack."""


def render_example(
    experiment: Experiment, device: Device, variants: Mapping[int, ExportVariant]
) -> str | None:
    """The program's text; ``None`` for a backend or an argument that it does not show.

    Structs, constants of a module, and scalars of narrow floating-point types are not shown.
    """
    place = _FOLDER / f"{experiment.kernel.language}.c"
    if not place.is_file() or any(map(_unshown, experiment.arguments)):
        return None
    prefix = identifier(experiment.name)
    launching = LaunchCode(experiment, device, list(variants.values()))
    symbols = experiment.shapes.tune[0].symbols
    scratch = [
        f"{{{launching.constant(variant)}, {json.dumps(one.name)}}},"
        for variant in variants.values()
        for one in (variant.template.scratch if variant.template else ())
    ]
    steps = [len(variant.subject(experiment).steps) for variant in variants.values()]
    filled = {
        "experiment": experiment.name,
        "header": f"{prefix}.h",
        "prefix": prefix,
        "device": json.dumps(device.name),
        "arch": device.arch,
        "shape": ", ".join(launching.value(*one) for one in symbols.items()),
        "arguments": "\n        ".join(_arguments(experiment, launching, symbols)),
        "scratch_names": "\n    ".join(scratch or ["{-1, NULL},"]),
        "most": str(len(experiment.arguments) + len(scratch) + 1),
        "most_steps": str(max(steps)),
    }
    common = Text((_FOLDER / "common.c").read_text()).substitute(filled)
    return Text(place.read_text()).substitute(filled, common=common)


_SHOWN = {"float32": "'f'", "float64": "'d'", "int": "'i'", "uint": "'u'"}
"""How a type's element is printed, by the beginning of its name; others as bytes."""


def _unshown(argument: Argument) -> bool:
    if argument.kind in ("struct", "constant"):
        return True
    return argument.kind == "scalar" and argument.dtype in _ONE


def _arguments(experiment: Experiment, launching: LaunchCode, symbols: Shape) -> Iterator[str]:
    types: Shape = {n: value for n, value in symbols.items() if isinstance(value, str)}
    for argument in experiment.arguments:
        dtype = str(symbols.get(argument.dtype, argument.dtype))
        if argument.kind == "null":
            yield _row(argument.name, "n", "0", "0", 1, b"\0")
        elif argument.kind == "scalar":
            value = _scalar(argument, dtype, symbols)
            yield _row(argument.name, "s", "0", str(len(value)), len(value), value)
        else:
            item = item_bytes(dtype)
            elements = _elements(argument, lambda one: launching.c(one, types))
            shown = next((how for of, how in _SHOWN.items() if dtype.startswith(of)), "'x'")
            yield _row(
                argument.name,
                "b",
                shown if argument.is_output else "0",
                f"(size_t)({item}LL * {elements})",
                item,
                bytes(item) if argument.is_output and argument.kind == "out" else _one(dtype),
            )


def _row(name: str, kind: str, shown: str, size: str, item: int, value: bytes) -> str:
    listed = ", ".join(f"0x{byte:02x}" for byte in value)
    return f"{{{json.dumps(name)}, '{kind}', {shown}, {size}, {item}, {{{listed}}}, 0}},"


def _elements(argument: Argument, c: Callable[[Expression], str]) -> str:
    """C for the elements from the first to the last one."""
    if not argument.strides:
        return " * ".join(map(c, argument.shape)) or "1"
    spans = (
        f"({c(n)} - 1) * {c(step)}"
        for n, step in zip(argument.shape, argument.strides, strict=True)
    )
    return f"(1 + {' + '.join(spans)})"


def _scalar(argument: Argument, dtype: str, symbols: Mapping[str, Value]) -> bytes:
    """The bytes of a scalar on the first tune shape."""
    value = resolve_argument(argument, symbols).value
    assert value is not None
    if dtype in _FORMATS:
        return struct.pack(_FORMATS[dtype], value)
    return int(value).to_bytes(item_bytes(dtype), "little", signed=not dtype.startswith(("u", "b")))


def _one(dtype: str) -> bytes:
    if dtype in _ONE:
        return _ONE[dtype]
    return struct.pack(_FORMATS[dtype], 1) if dtype in _FORMATS else bytes(item_bytes(dtype))
