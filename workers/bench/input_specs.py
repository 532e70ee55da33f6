"""Which inputs the verification cases have: in search, and in confirmation."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.constants import OtherSign, chosen_paths
from tuner.experiment.odd_shapes import odd_shapes
from tuner.journal.facts import ConfirmScope
from tuner.plan import CellPlan
from tuner.trial import Infeasible
from workers.bench.preparation import Preparation
from workers.constants import not_constant
from workers.distributions import NARROWER, WIDE, Distribution
from workers.elements import is_float
from workers.inputs import applies, stream

REFERENCE_ELEMENTS = 1 << 24
"""Above so many output elements the baseline alone is the oracle."""
_STAND_IN_ELEMENTS = 1 << 20
"""Elements, at most, of the shape that has cases for large ones, if any is as small."""
_POWER = 256
"""Of powers of two above it no path is known to depend on them."""

_DISTRIBUTIONS: dict[Distribution, str] = {
    "large": "large magnitudes",
    "small": "small magnitudes",
    "outliers": "a few far larger",
    "zeros": "exact zeros",
    "few": "few different values",
    "ends": "ends of the range",
    "low": "low numbers",
    "high": "high numbers",
    "specials": "special values",
    "rare specials": "a few special values",
    "whole": "values of the type's whole range",
    "most": "values of most of the type's range",
    "half": "values of half of the type's range",
    "lowest": "lowest numbers",
    "lower": "lower numbers",
    "highest": "highest numbers",
    "higher": "higher numbers",
    "farthest apart": "each array near an end of its type",
    "far apart": "each array far from zero on one side",
    "sides apart": "each array on one side of zero",
    "same": "one integer throughout",
    "tiny": "tiny magnitudes",
    "parts": "parts of several kinds",
}
"""Labels by distribution, which are the keys of their random streams as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """How the inputs of a case are drawn: random stream, distribution, and changes after.

    ``label`` is for people, ``key`` chooses the random streams. The argument ``spare`` keeps the
    default distribution. ``flip`` changes a few elements of every input; ``redraw`` draws one
    argument anew at large magnitude. The outputs are those after so many ``launches`` in a row.
    ``varied``: inputs that hold one number throughout hold others.
    ``odd_shape`` is the shape in words, if it is one that is not timed. A scalar may have the
    ``other_sign`` than the spec's.
    """

    label: str
    key: str = "first"
    distribution: Distribution = "default"
    spare: str | None = None
    flip: bool = False
    redraw: str | None = None
    launches: int = 1
    varied: bool = False
    odd_shape: str = ""
    other_sign: bool = False

    @property
    def described(self) -> str:
        """The label, with the odd shape if it is on one."""
        return f"odd shape {self.odd_shape}, {self.label}" if self.odd_shape else self.label

    @property
    def digest(self) -> str:
        """Twelve hex digits of its fields."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    @property
    def wide(self) -> bool:
        """Whether results may not be finite though the inputs are."""
        return self.other_sign or self.distribution in WIDE

    def shares(self, argument: ResolvedArgument) -> bool:
        """Whether the argument holds some numbers of others.

        Integers also on odd shapes: where they are searched for, a tail holds some. Equal floats
        there might make results that are not finite.
        """
        odd = self.odd_shape and self.distribution in ("default", "outliers")
        return self.distribution == "few" or bool(odd and not is_float(argument.dtype))


FIRST = InputSpec(label="ordinary inputs")
FLIPPED = InputSpec(label="some elements changed", flip=True)
FRESH = InputSpec(label="fresh inputs", key="fresh")
ASSORTED = InputSpec(label="rows of several kinds", key="assorted", distribution="assorted")
FEW = InputSpec(label=_DISTRIBUTIONS["few"], key=_DISTRIBUTIONS["few"], distribution="few")
_VARIED = ", no input constant"
_LESS: tuple[Distribution, ...] = ("small", "tiny")
_PADDED: tuple[Distribution, Distribution] = ("farthest apart", "far apart")
_MANY: Distribution = "same"
"""What the second case of an odd shape holds, of two in turn: what a kernel pads a row with may be
above all its elements, and where there are many elements a counter may be too narrow."""
_MANY_TIMES = 2
"""So many times the elements of the smallest timed shape are many."""
SAME = InputSpec(label=_DISTRIBUTIONS[_MANY], key=_DISTRIBUTIONS[_MANY], distribution=_MANY)
REPEATED = InputSpec(label="three launches in a row", launches=3)


SEARCHED = (FIRST, FLIPPED, REPEATED, FRESH)
"""All that the search may use."""


def search_keys(prep: Preparation) -> list[tuple[int, InputSpec]]:
    """Shapes and specs of the cases that preparation and search need."""
    return [
        (shape, spec)
        for shape in prep.timed
        for spec in (_searched(prep.arguments[shape]) if shape in prep.tune else (FIRST, FRESH))
    ]


def _searched(arguments: Sequence[ResolvedArgument]) -> tuple[InputSpec, ...]:
    """The cases of a tune shape in search.

    An application launches a kernel that works in place several times in a row: one that recognises
    its own output could do nothing from the second launch on.
    """
    in_place = any(argument.kind == "inout" for argument in arguments)
    return (FIRST, FLIPPED, *((REPEATED,) if in_place else ()), FRESH)


def extra_specs(prep: Preparation, shape: int) -> list[InputSpec]:
    """Further cases of a shape, for finalists: one on large shapes, two at most on odd ones.

    The second draw is on every timed shape, each other case on every second tune shape and every
    second held-out one: what a kernel makes of a distribution seldom depends on the size as well.
    With which shape a case begins is secret, for kernels in which it does. Where all these are
    large, an odd shape that is not has the other cases.
    """
    arguments = prep.arguments[shape]
    specs = others = _extra([a for a in arguments if a.is_input])
    small = [spec for spec in specs if spec.distribution == "small"]
    small = [spec for spec in small if spec.spare is not None] or small
    if is_large(arguments):
        specs, small = specs[:1], small[-1:]
    if shape in prep.timed:
        part = [n for n in prep.timed if (n in prep.tune) == (shape in prep.tune)]
        alike = [n for n in part if not is_large(prep.arguments[n])]
        turn = alike.index(shape) if shape in alike else 0
        return [
            spec
            for number, spec in enumerate(specs)
            if number == 0 or (turn + _first_turn(prep, spec)) % min(2, len(alike)) == 0
        ]
    if shape in prep.constants:
        what, changed = prep.constants[shape]
        if isinstance(what, OtherSign):
            return [replace(FIRST, label=f"{changed}, {FIRST.label}", other_sign=True)]
        if prep.bindings[shape] in odd_shapes(prep.setup.experiment):
            spec = ASSORTED if any(applies(a, "assorted") for a in arguments) else FIRST
            if _times_smallest(prep, shape) > 1 and any(applies(a, _MANY) for a in arguments):
                spec = SAME
            label, odd_shape = f"{changed}, {spec.label}", str(prep.bindings[shape])
            return [replace(spec, label=label, odd_shape=odd_shape)]
        few = [FEW] if any(applies(a, "few") for a in arguments if a.is_input) else []
        chosen = what in chosen_paths(prep.setup.experiment)
        special = [spec for spec in specs if chosen and spec.distribution == "specials"]
        wanted = small if small and is_large(arguments) else (FIRST, *few, *special, *small)
        return [replace(spec, label=f"{changed}, {spec.label}") for spec in wanted]
    if any(applies(a, "assorted") for a in arguments):
        spec = ASSORTED
    elif shape % 2:
        spec = FIRST
    else:
        spec = next((spec for spec in specs if spec.distribution == "outliers"), specs[0])
    if any(not_constant(argument) is not argument for argument in arguments):
        spec = replace(spec, label=f"{spec.label}{_VARIED}", varied=True)
    beside = [] if is_large(arguments) else _beside(prep, shape)
    if shape == _stands_in(prep):
        beside += others[1:]
    return [replace(one, odd_shape=str(prep.bindings[shape])) for one in (spec, *beside)]


def _beside(prep: Preparation, shape: int) -> list[InputSpec]:
    """The second case of an odd shape, if it has an argument for it."""
    arguments = prep.arguments[shape]
    many = _times_smallest(prep, shape) > _MANY_TIMES
    distribution = _MANY if many else _PADDED[shape % 2]
    if not any(applies(argument, distribution) for argument in arguments if argument.is_input):
        return []
    label = _DISTRIBUTIONS[distribution]
    return [InputSpec(label=label, key=label, distribution=distribution)]


def _stands_in(prep: Preparation) -> int | None:
    """The odd shape that has the cases of timed shapes, if all of these are large and it is not.

    A small one, and most like the first of them in the powers of two that its sizes are multiples
    of: the paths of whole vectors and tiles are those that are timed.
    """
    if not all(is_large(prep.arguments[timed]) for timed in prep.timed):
        return None
    cells = enumerate(prep.setup.baseline.plan.cells)
    others = {*prep.timed, *prep.constants, *(n for n, c in cells if isinstance(c, Infeasible))}
    small = {n: a for n, a in prep.arguments.items() if n not in others and not is_large(a)}
    sizes = {n: total_elements(arguments) for n, arguments in small.items()}
    first = {n: v for n, v in prep.bindings[0].symbols.items() if isinstance(v, int)}

    def rank(shape: int) -> tuple[bool, int, int]:
        own = prep.bindings[shape].symbols
        alike = math.prod(math.gcd(size, int(own[name]), _POWER) for name, size in first.items())
        few = sizes[shape] <= _STAND_IN_ELEMENTS
        return few, alike, sizes[shape] if few else -sizes[shape]

    return max(sizes, key=rank, default=None)


def _times_smallest(prep: Preparation, shape: int) -> float:
    """How many times as many elements a shape has as the smallest timed one."""
    smallest = min(total_elements(prep.arguments[timed]) for timed in prep.timed)
    return total_elements(prep.arguments[shape]) / smallest


def extra_keys(prep: Preparation, scope: ConfirmScope) -> list[tuple[int, InputSpec]]:
    """Shapes and specs of the extra cases in a scope of confirmation, in the order of checks.

    After the timed shapes, small ones first: a failure on them tells more, and they are made first.
    """
    cells = prep.setup.baseline.plan.cells

    def order(shape: int) -> tuple[bool, int]:
        size = sum(a.size for a in prep.arguments[shape] if a.is_buffer)
        return (False, shape) if shape in prep.timed else (True, size)

    return [
        (shape, spec)
        for shape in sorted(range(len(cells)), key=order)
        if isinstance(cells[shape], CellPlan) and scope in (scope_of(prep, shape), "all")
        for spec in extra_specs(prep, shape)
    ]


def scope_of(prep: Preparation, shape: int) -> ConfirmScope:
    """The scope of confirmation that a shape is in: odd ones are checked with the tune shapes."""
    held_out = shape in prep.timed and shape not in prep.tune
    return "rest" if held_out else "tune"


def _first_turn(prep: Preparation, spec: InputSpec) -> int:
    """0 or 1, by the secret."""
    return int(stream(prep.setup.secret, "turn", spec.label).integers(2))


def narrower(spec: InputSpec) -> InputSpec | None:
    """The case in place of one on which the baseline is undefined, if there is one."""
    if spec.varied:
        return replace(spec, label=spec.label.removesuffix(_VARIED), varied=False)
    distribution = NARROWER.get(spec.distribution)
    if distribution is None:
        return None
    label = _DISTRIBUTIONS[distribution]
    return replace(spec, label=label, key=label, distribution=distribution)


def _extra(arguments: Sequence[ResolvedArgument]) -> list[InputSpec]:
    """A second draw, other distributions, all but one input small, each input drawn anew.

    Args:
        arguments: those that hold something before a launch.
    """
    specs = [InputSpec(label="ordinary inputs, drawn again", key="second")]
    for distribution, label in _DISTRIBUTIONS.items():
        if distribution in NARROWER.values() or distribution in (*_PADDED, _MANY):
            continue  # in place of the widest, where that is too wide, or on odd shapes
        if any(applies(argument, distribution) for argument in arguments):
            specs.append(InputSpec(label=label, key=label, distribution=distribution))
    # If all inputs are small, outputs may be too, and any difference is within tolerance.
    for less in _LESS:
        small = [a.name for a in arguments if applies(a, less)]
        for name in small if len(small) > 1 else ():
            label = f"{_DISTRIBUTIONS[less]}, but for {name}"
            specs.append(InputSpec(label=label, key=label, distribution=less, spare=name))
    inputs = [a.name for a in arguments if a.kind in ("in", "inout")]
    if len(inputs) > 1:
        specs += [InputSpec(label=f"{name} drawn anew", redraw=name) for name in inputs]
    return specs


def is_large(arguments: Sequence[ResolvedArgument]) -> bool:
    """Whether drawing all buffers anew takes seconds."""
    return total_elements(arguments) > REFERENCE_ELEMENTS


def total_elements(arguments: Sequence[ResolvedArgument]) -> int:
    """The elements of all buffers."""
    return sum(a.elements for a in arguments if a.is_buffer)
