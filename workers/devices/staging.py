"""From resolved arguments to what the device port stages, whatever is asked of them."""

from collections.abc import Mapping, Sequence

import numpy as np

from tuner.experiment.arguments import POINTER_BYTES, ResolvedArgument
from workers.devices.port import Staged, StagedBuffer, StagedValue
from workers.elements import numpy_dtype
from workers.variations import variations

NULL = bytes(POINTER_BYTES)
"""A null pointer, as a kernel reads it."""


def staged(
    arguments: Sequence[ResolvedArgument], contents: Mapping[str, str], least_align: int = 1
) -> list[Staged]:
    """Resolved arguments as the device port takes them, aligned to at least so many bytes."""
    found: list[Staged] = []
    varying = variations(arguments)
    for a in arguments:
        if a.kind == "null":
            found.append(StagedValue(name=a.name, data=NULL.hex()))
        elif a.kind == "scalar":
            assert a.value is not None
            found.append(staged_scalar(a.name, a.dtype, a.value))
        elif a.kind == "struct":
            found.append(StagedValue(name=a.name, data=_struct(a).hex()))
        else:
            found.append(
                StagedBuffer(
                    name=a.name,
                    kind=a.kind,
                    dtype=a.dtype,
                    shape=a.shape,
                    strides=a.strides,
                    size=a.size,
                    align=max(a.align, least_align),
                    contents=contents.get(a.name),
                    symbol=a.symbol,
                    read_only=a.kind == "in" and least_align > 1,
                    varies=varying.get(a.name),
                )
            )
    return found


def buffer_bytes(arguments: Sequence[ResolvedArgument]) -> int:
    """Bytes of all buffers."""
    return sum(argument.size for argument in arguments if argument.is_buffer)


def staged_scalar(name: str, dtype: str, value: float) -> StagedValue:
    """A scalar argument of this type."""
    return StagedValue(name=name, data=packed(dtype, [value]).hex())


def packed(dtype: str, values: Sequence[float]) -> bytes:
    """Numbers of this type in a row, as a kernel reads them."""
    return np.array(values, numpy_dtype(dtype)).tobytes()


def _struct(argument: ResolvedArgument) -> bytes:
    """A struct's bytes; those between its fields are zero."""
    if not argument.fields:
        return bytes.fromhex(argument.contents)
    data = bytearray(argument.struct_bytes)
    for field in argument.fields:
        held = packed(field.dtype, field.values)
        data[field.offset : field.offset + len(held)] = held
    return bytes(data)
