"""``.npy`` files that a spec names as contents: what they hold, looked at without reading it."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from tuner.errors import SpecError
from tuner.experiment.arguments import resolve_argument
from tuner.experiment.model import Argument, FromFile, ShapeBinding

_KINDS = "fiub"


def check_array_file(argument: Argument, bindings: Iterable[ShapeBinding]) -> None:
    """See that the file which fills an argument, if one does, fits it on every shape.

    Shapes on which the argument comes to nothing are left to others.

    Raises:
        ValueError: The file is no array, or one of another shape or type.
    """
    fill = argument.initial if argument.kind == "inout" else argument.values
    if not isinstance(fill, FromFile):
        return
    shape, dtype = _described(Path(fill.file))
    for binding in bindings:
        with suppress(SpecError):
            wanted = resolve_argument(argument, binding.symbols)
            if shape != wanted.shape:
                raise ValueError(
                    f"{fill.file} holds an array of shape {_sizes(shape)}, and '{argument.name}' "
                    f"has {_sizes(wanted.shape)} at {binding}"
                )
            if dtype.kind == "f" and not wanted.dtype.startswith(("float", "bfloat")):
                raise ValueError(
                    f"{fill.file} holds {dtype}, and '{argument.name}' is {wanted.dtype}"
                )


def _described(path: Path) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    if not path.is_file():
        raise ValueError(f"no such file: {path}")
    with suppress(OSError, ValueError, EOFError):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(array, np.ndarray) and array.dtype.kind in _KINDS:
            return array.shape, array.dtype
    raise ValueError(f"{path} is no whole .npy file of numbers, as numpy.save writes one")


def _sizes(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
