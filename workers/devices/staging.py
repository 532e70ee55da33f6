"""From resolved arguments to what the device port stages, whatever is asked of them."""

from collections.abc import Mapping, Sequence

import numpy as np

from tuner.experiment.arguments import ResolvedArgument
from workers.devices.port import (
    Staged,
    StagedBuffer,
    StagedNull,
    StagedScalar,
    StagedStruct,
    StagedValue,
)
from workers.elements import numpy_dtype


def staged(
    arguments: Sequence[ResolvedArgument], contents: Mapping[str, str], least_align: int = 1
) -> list[Staged]:
    """Resolved arguments as the device port takes them, aligned to at least so many bytes."""
    found: list[Staged] = []
    for a in arguments:
        if a.kind == "null":
            found.append(StagedNull(name=a.name))
        elif a.kind == "scalar":
            assert a.value is not None
            found.append(StagedScalar(name=a.name, dtype=a.dtype, value=a.value))
        elif a.kind == "struct":
            found.append(StagedStruct(name=a.name, data=_struct(a).hex()))
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
                )
            )
    return found


def value_bytes(value: StagedValue) -> bytes:
    """An argument that is passed by value, as the kernel reads it."""
    if isinstance(value, StagedStruct):
        return bytes.fromhex(value.data)
    return _packed(value.dtype, [value.value])


def _struct(argument: ResolvedArgument) -> bytes:
    """A struct's bytes; those between its fields are zero."""
    if not argument.fields:
        return bytes.fromhex(argument.contents)
    data = bytearray(argument.struct_bytes)
    for field in argument.fields:
        packed = _packed(field.dtype, field.values)
        data[field.offset : field.offset + len(packed)] = packed
    return bytes(data)


def _packed(dtype: str, values: Sequence[int | float]) -> bytes:
    return np.array(values).astype(numpy_dtype(dtype)).tobytes()
