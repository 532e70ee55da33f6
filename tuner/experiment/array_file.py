"""Checks of the ``.npy`` files that fill arguments; only their headers are read."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from tuner.errors import SpecError
from tuner.experiment.arguments import resolve_argument
from tuner.experiment.contents import FromFile
from tuner.experiment.model import Argument, ShapeBinding

_KINDS = "fiub"


def check_array_file(argument: Argument, bindings: Iterable[ShapeBinding]) -> None:
    """Check that the file which fills an argument, if any, fits it on every shape.

    Shapes on which the argument cannot be resolved are skipped: another check reports them.

    Raises:
        ValueError: The file is not an array, or has another shape or type.
    """
    fill = argument.initial if argument.kind == "inout" else argument.values
    if not isinstance(fill, FromFile):
        return
    if not fill.differs:
        _described(fill.file)
    for binding in bindings:
        with suppress(SpecError):
            wanted = resolve_argument(argument, binding.symbols)
            assert isinstance(wanted.fill, FromFile)
            file = wanted.fill.file
            shape, dtype = _described(file)
            if shape != wanted.shape:
                raise ValueError(
                    f"{file} holds an array of shape {_sizes(shape)}, but '{argument.name}' "
                    f"has shape {_sizes(wanted.shape)} at {binding}"
                )
            if dtype.kind == "f" and not wanted.dtype.startswith(("float", "bfloat")):
                raise ValueError(f"{file} holds {dtype}, but '{argument.name}' is {wanted.dtype}")


def _described(file: str) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"no such file: {path}")
    with suppress(OSError, ValueError, EOFError):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(array, np.ndarray) and array.dtype.kind in _KINDS:
            return array.shape, array.dtype
    raise ValueError(f"{path} is not a complete .npy file of numbers; write it with numpy.save")


def _sizes(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
