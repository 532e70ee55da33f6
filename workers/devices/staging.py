"""From resolved arguments to what the device port stages, whatever is asked of them."""

from collections.abc import Mapping, Sequence

from tuner.experiment.arguments import ResolvedArgument
from workers.devices.port import Staged, StagedBuffer, StagedNull, StagedScalar


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
