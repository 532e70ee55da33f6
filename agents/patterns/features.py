"""The features by which similar kernels are found, and the distance between two kernels.

A pure function of the experiment. Features are coarse on purpose: they hold no source, and kernels
with the same features should profit from the same values.
"""

import math
import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from tuner.csource.tree import without_directives
from tuner.device import Backend
from tuner.experiment.contents import Offsets
from tuner.experiment.model import Experiment

Access = Literal["contiguous", "neighbours", "gathered"]

_COOPERATES = re.compile(
    r"\b(?:barrier|work_group_\w+|sub_group_\w+|__syncthreads\w*|__shfl\w*|atomic\w*)\s*\("
)
_LOOP_HEAD = re.compile(r"\bfor\s*\([^;]*;[^;]*;[^;{]*?\)(?=\s*[\w{])")
_ACCUMULATES = re.compile(r"(?<!\])\s\w+\s*\+=|\b(\w+)\s*=\s*f?max\w*\s*\(\s*\1\b")
_NEIGHBOURS = re.compile(r"\b(?:clamp|min)\s*\([^;]*[+-]\s*d?[xyzij1-9]\b")
_FARTHEST_INTENSITY = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Features of a kernel.

    Attributes:
        rank: The largest number of dimensions among the outputs.
        reduces: Whether work-items combine many elements into few.
        intensity: Operations per byte by the experiment's ``cost``.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    language: Backend
    dtypes: Annotated[tuple[Annotated[str, Field(max_length=40)], ...], Field(max_length=16)]
    rank: Annotated[int, Field(ge=0, le=8)]
    access: Access
    reduces: bool
    in_place: bool
    intensity: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


def features_of(experiment: Experiment) -> Features:
    """The features of an experiment's kernel."""
    code = without_directives(experiment.kernel.source.text)
    buffers = [argument for argument in experiment.arguments if argument.is_buffer]
    first = experiment.shapes.tune[0].symbols
    types = {str(first.get(argument.dtype, argument.dtype)) for argument in buffers}
    return Features(
        language=experiment.kernel.language,
        dtypes=tuple(sorted(types)),
        rank=max((len(argument.shape) for argument in buffers if argument.is_output), default=0),
        access=_access(experiment, code),
        reduces=bool(_COOPERATES.search(code) or _ACCUMULATES.search(_LOOP_HEAD.sub(" ", code))),
        in_place=any(argument.kind == "inout" for argument in buffers),
        intensity=_intensity(experiment),
    )


def distance(first: Features, second: Features) -> float:
    """Distance of two kernels: 0 for equal features, about 1 for each that differs."""
    shared = set(first.dtypes) & set(second.dtypes)
    every = set(first.dtypes) | set(second.dtypes)
    apart = 1 - len(shared) / len(every) if every else 0.0
    apart += 2 * (first.language != second.language)
    apart += first.access != second.access
    apart += first.reduces != second.reduces
    apart += 0.5 * (first.in_place != second.in_place)
    apart += 0.5 * min(2, abs(first.rank - second.rank))
    if first.intensity and second.intensity:
        ratio = abs(math.log2(first.intensity / second.intensity))
        apart += min(1.0, ratio / math.log2(_FARTHEST_INTENSITY))
    return apart


def _access(experiment: Experiment, code: str) -> Access:
    indices = any(
        argument.kind == "in"
        and (argument.values == "permutation" or isinstance(argument.values, Offsets))
        for argument in experiment.arguments
    )
    if indices:
        return "gathered"
    return "neighbours" if _NEIGHBOURS.search(code) else "contiguous"


def _intensity(experiment: Experiment) -> float | None:
    cost = experiment.cost
    if cost is None or cost.bytes is None or cost.flops is None:
        return None
    symbols = experiment.shapes.tune[0].symbols
    moved = int(cost.bytes.evaluate(symbols))
    return round(int(cost.flops.evaluate(symbols)) / moved, 4) if moved > 0 else None
