"""Odd shapes of a domain, on which kernels tuned for round sizes tend to fail.

Finalists are checked on them; they are never searched or timed. Also the numbering of all shapes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, cycle, islice
from math import gcd

from tuner.experiment.constants import Constants, changed_shapes, chosen_paths
from tuner.experiment.domain import all_symbols, elements, free_symbols, inside, meets_conditions
from tuner.experiment.model import Experiment, ShapeBinding
from tuner.experiment.odd_sizes import (
    FAR_ELEMENTS,
    PRODUCTS,
    REACH,
    WORD,
    at_remainder,
    end_of_domain,
    enlarged,
    few_values,
    first_inside,
    grows,
    large_tiles,
    raised,
    smaller_sizes,
    step_of,
)
from tuner.trial import Value

_MOST_ELEMENTS = 1 << 23
_FAR_GROWTH = 4
_MOST_ALONE = 4
_FEWER = 3
"""Sizes that are varied alone throughout; further ones have so many values alone, and two more."""
_LARGER, _FAR, _SMALL, _LEFT_OVER, _VECTORS = 2, 4, 6, 7, 8
"""Remainders, modulo the period, of the size above the largest known one, of the one far above, of
a small one, of the one far above among the least, and of one with whole vectors. Kernels that read
several elements at a time can be wrong at each of these alone."""
_TILES: tuple[Value, ...] = (3 * 16, 3 * 32, 3 * 64, 3 * 128, 3 * 256)
"""Three whole tiles: an odd number, and fewer than some pipelines have stages. A template may be
for multiples of so many elements, by its constraints, and take twice as many at a time."""
_ONE_MORE = (257, 65, 33)
"""Steps of a size with one more than whole tiles, the first that fits: one may be left over."""
_BEYOND: tuple[tuple[Value, ...], ...] = ((191, 3 * 64), (743, 3 * 256))
"""Larger values of a further size, primes or else tiles: one that makes no array larger, such as a
window, is not far above the others, and a path may begin at 128."""
_FEW_TILES: tuple[Value, ...] = (32, 128)
"""One or two whole tiles: a loop that reads ahead may count on more."""
_TIMES = (3, 2)
"""By how many times the longest tune size is exceeded by one that is as aligned: a path for whole
tiles may have room for as many only."""
_LIGHT = 1 << 20
"""Elements of a tune shape that can have such a size; beside a larger one the others are small."""
_UNBOUNDED = -(2**40)
"""A size that is in no domain which says how small it may be."""
_SCALED = 16
"""Smaller sizes are strides and widths rather, and stay where others are scaled."""
_OTHER_PATHS = 3
"""Odd shapes on which flags are changed too: the first, with sizes just below, tiny and larger."""
_KEPT = 64
_kept: dict[tuple[object, ...], tuple[ShapeBinding, ...]] = {}
"""Odd shapes by what they follow from, for so many experiments: a run asks for its own often."""


def odd_shapes(experiment: Experiment) -> tuple[ShapeBinding, ...]:
    """Shapes inside the domain on which kernels that are right at round sizes tend to be wrong.

    - all sizes just below the first tune shape's, primes preferred, those of 7 modulo 8 most;
    - all sizes as small as the domain allows;
    - all sizes just above the largest known of each, or above one known shape's if that is too big;
    - for each size that makes some argument larger: that size far above all known ones, the others
      small, but large enough that elements differ, and again, an odd number of steps, the others as
      small as the domain allows; where the domain ties a size to it, such as a stride that is no
      less, that one is as large; and at the very end of the domain, if that is near: an array or a
      counter may be one too small;
    - each two sizes of an array so large that their product exceeds 16 bits, the others as small
      as may be, unless a shape above has both so large: a kernel may number planes by it;
    - all sizes equal, and of three or more each two of them;
    - a tune shape's sizes in the same proportions, as a path for twice as many rows has a tail too;
    - each size alone: at the values above, tiny too, at remainders 1, 2, 4, 6 and 8 modulo 32, at
      one and three whole tiles (larger ones where they divide a tune size, which a template's
      constraint may ask for), at three times the longest, and at every value if there are few
      up to 64, or at the last of them if it makes no array larger (a radius); the others are a tune
      shape's, of each combination of types in turn, or small where three times as much would be too
      much; of several sizes with few values, all but one are at their least, too;
    - each size that the domain allows to be nonpositive (a padding, a shift): at 0, also beside
      sizes just below, at -1, negated, and far below.

    Those in which all sizes differ are there for each combination of types and flags. Sizes that an
    equation of the domain ties to others follow these. Remainders count the steps in which the
    domain lets a size grow. Values are used again where they can be: a template may be compiled for
    each.

    Empty without a ``domain``, since then only the spec's own shapes are promised to work.
    """
    shapes = experiment.shapes
    key = experiment.arguments, shapes.domain, repr((shapes.tune, shapes.held_out))
    if (found := _kept.get(key)) is None:
        if len(_kept) >= _KEPT:
            _kept.clear()
        found = _kept[key] = _odd_shapes(experiment)
    return found


def _odd_shapes(experiment: Experiment) -> tuple[ShapeBinding, ...]:
    if not experiment.shapes.domain:
        return ()
    timed = (*experiment.shapes.tune, *experiment.shapes.held_out)
    known = [free_symbols(experiment, shape) for shape in timed]
    base = known[0]
    sizes = [name for name, value in base.items() if type(value) is int]
    around, *others = (_around(experiment, alike) for alike in _by_types(known))
    found = [shape for each in (around, *others) for shape in each.shapes]
    bases = cycle(_smallest(experiment))
    alone: list[dict[str, Value]] = []
    for number, name in enumerate(sizes):
        given: list[tuple[list[Value], int | None]] = [
            ([around.below[name]], None),
            ([symbols[name] for symbols in around.larger], _LARGER),
            ([symbols[name] for symbols in around.far[name]], _FAR),
            ([around.tiny[name]], None),
            ([around.small[name]], None),
            ([], _VECTORS),
            *(([size], None) for size in (*_TILES, *_FEW_TILES)),
        ]
        if number >= _MOST_ALONE:
            given = [*given[:_FEWER], *(([*sizes], None) for sizes in _BEYOND)]
        for values, remainder in given:
            beside = next(bases)
            if remainder is not None:
                values = [*values, *at_remainder(experiment, beside, name, remainder)]
            alone += _alone(experiment, beside, name, values)
        beside = next(bases)
        if number < _MOST_ALONE:
            tune = [int(shape.symbols[name]) for shape in experiment.shapes.tune]
            one_more = [steps * step_of(experiment, beside, name) for steps in _ONE_MORE]
            alone += _alone(experiment, beside, name, [n for n in one_more if n <= max(tune)])
            light = beside if elements(experiment, beside) <= _LIGHT else around.small
            for size in large_tiles(tune, [int(symbols[name]) for symbols in known]):
                alone += _alone(experiment, light, name, [size])
            alone += _alone(experiment, light, name, [times * max(tune) for times in _TIMES])
        choices = few_values(experiment, beside, name)
        for choice in choices or end_of_domain(experiment, beside, name):
            alone += _alone(experiment, beside, name, [choice])
            if base[name] in choices:
                alone += _alone(experiment, around.below, name, [choice])
        for values in _nonpositive(experiment, beside, name):
            alone += _alone(experiment, beside, name, values)
            alone += _alone(experiment, around.below, name, values[:1])
    alone += _among_least_choices(experiment, base, sizes)
    square = _equal(experiment, base, sizes) if len(sizes) > 1 else []
    if len(sizes) > 2:
        for pair in combinations(sizes[:_MOST_ALONE], 2):
            square += _equal(experiment, next(bases), pair)
            if all(int(one[pair[0]]) * int(one[pair[1]]) <= WORD for one in (*known, *found)):
                alone += _product(experiment, around.tiny, pair)
    alone += _proportional(experiment, base, sizes)
    wanted = (symbols for symbols in (*found, *alone, *square) if symbols not in known)
    shapes = (ShapeBinding(all_symbols(experiment, symbols)) for symbols in wanted)
    return tuple({str(shape): shape for shape in shapes}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    """Shapes around timed ones of the same types, all sizes changed together.

    ``far`` has for each size those in which it is far larger, ``among_least`` those in which all
    others are as small as may be.
    """

    below: Mapping[str, Value]
    tiny: Mapping[str, Value]
    small: Mapping[str, Value]
    larger: list[dict[str, Value]]
    far: Mapping[str, list[dict[str, Value]]]
    among_least: Mapping[str, list[dict[str, Value]]]

    @property
    def shapes(self) -> list[Mapping[str, Value]]:
        """All but the small one."""
        far = [shape for n in self.far for shape in (*self.far[n], *self.among_least[n])]
        return [self.below, self.tiny, *self.larger, *far]


def _around(experiment: Experiment, known: Sequence[Mapping[str, Value]]) -> _Around:
    base = known[0]
    sizes = [name for name, value in base.items() if type(value) is int]
    below, tiny, small = dict(base), dict(base), dict(base)
    for name in (*sizes, *sizes):  # one that is set later may have kept another from its value
        step = step_of(experiment, below, name)
        below[name] = first_inside(experiment, below, name, smaller_sizes(base[name], step))
        tiny[name] = first_inside(experiment, tiny, name, range(1, REACH))
        values = [_SMALL * step_of(experiment, small, name), *range(_SMALL, REACH)]
        small[name] = first_inside(experiment, small, name, values)
    far = {name: _far(experiment, small, known, name) for name in sizes}
    return _Around(
        below=below,
        tiny=tiny,
        small=small,
        larger=_larger(experiment, known),
        far=far,
        among_least={name: _far_among_least(experiment, tiny, name, far[name]) for name in sizes},
    )


def _by_types(known: Sequence[Mapping[str, Value]]) -> list[list[Mapping[str, Value]]]:
    """The shapes of each combination of types and flags: a kernel may have a path for each."""
    found: dict[tuple[Value, ...], list[Mapping[str, Value]]] = {}
    for symbols in known:
        types = tuple(value for value in symbols.values() if type(value) is not int)
        found.setdefault(types, []).append(symbols)
    return list(found.values())


def unchecked_sizes(experiment: Experiment) -> str:
    """What to say of a spec that has no odd shapes; empty if it has some."""
    if odd_shapes(experiment):
        return ""
    why = (
        "the `domain` has no others: widen it if your application has other sizes"
        if experiment.shapes.domain
        else "give a `domain` in `shapes`, so that odd sizes are checked, too"
    )
    return f"kernels are checked on the spec's own shapes alone: {why}"


def every_shape(experiment: Experiment) -> tuple[ShapeBinding, ...]:
    """Tune, held-out and odd shapes, and those on which constants are changed.

    In the order that numbers them from 0.
    """
    shapes = experiment.shapes
    changed = (binding for binding, _ in shapes_with_changes(experiment))
    return (*shapes.tune, *shapes.held_out, *odd_shapes(experiment), *changed)


def shapes_with_changes(
    experiment: Experiment,
) -> tuple[tuple[ShapeBinding, tuple[Constants, ...]], ...]:
    """The shapes on which constants are changed, and what is changed on each.

    Tune shapes, and a few odd ones where an integer may choose a path of the kernel: that path is
    as likely to be wrong there as any. Scalars are changed with the path, which may not read them.
    """
    odd = odd_shapes(experiment)[:_OTHER_PATHS]
    kinds = (tuple(dict.fromkeys((kind, "scalars"))) for kind in chosen_paths(experiment))
    return (
        *((shape, (kind,)) for shape, kind in changed_shapes(experiment)),
        *((shape, together) for together in kinds for shape in odd),
    )


def _smallest(experiment: Experiment) -> list[Mapping[str, Value]]:
    """The smallest tune shape of each combination of types and flags."""
    tune = [free_symbols(experiment, shape) for shape in experiment.shapes.tune]
    size = partial(elements, experiment)
    return sorted((min(alike, key=size) for alike in _by_types(tune)), key=size)


def _alone(
    experiment: Experiment, base: Mapping[str, Value], name: str, values: Iterable[Value]
) -> list[dict[str, Value]]:
    """``base`` with the first of ``values`` that is in the domain and not too large, if any."""
    return _fitting(experiment, base, ({**base, name: value} for value in values))


def _among_least_choices(
    experiment: Experiment, base: Mapping[str, Value], names: Sequence[str]
) -> list[dict[str, Value]]:
    """``base`` with all sizes of few values at their least but one, for each of them.

    A path for the least of several (a filter of one element) may not look at others (its stride).
    """
    choices = {name: few for name in names if (few := few_values(experiment, base, name))}
    least = dict(base)
    for name, values in choices.items():
        least[name] = first_inside(experiment, least, name, values)
    alone: list[dict[str, Value]] = []
    for name, values in choices.items():
        other = base[name] if base[name] != least[name] else values[-1]
        alone += _alone(experiment, least, name, [other])
    return alone


def _nonpositive(experiment: Experiment, base: Mapping[str, Value], name: str) -> list[list[Value]]:
    """0, -1, smaller numbers, the negated size first, and much smaller ones, if bounded below.

    A domain without a lower bound does not mean that numbers below 1 are defined.
    """
    if meets_conditions(experiment, {**base, name: _UNBOUNDED}):
        return []
    less: list[Value] = [n for n in (-int(base[name]), *range(-2, -REACH, -1)) if n < -1]
    return [[0], [-1], less, [-int(size) for sizes in reversed(_BEYOND) for size in sizes]]


def _equal(
    experiment: Experiment, base: Mapping[str, Value], names: Sequence[str]
) -> list[dict[str, Value]]:
    """``base`` with these sizes equal and others not, for kernels with a path for that, if any."""
    others = {size for name, size in base.items() if name not in names}
    values = (*_TILES, *(base[name] for name in names), *range(1, REACH))
    shapes = ({**base, **dict.fromkeys(names, size)} for size in values if size not in others)
    return _fitting(experiment, base, shapes)


def _product(
    experiment: Experiment, base: Mapping[str, Value], names: Sequence[str]
) -> list[dict[str, Value]]:
    """``base`` with two sizes whose product exceeds 16 bits, or at least signed ones.

    If they are sizes of one array.
    """
    one, two = names
    first = ((raised(experiment, base, one, size), other) for size, other in PRODUCTS)
    both = (raised(experiment, shape, two, other) for shape, other in first if shape)
    found = _fitting(experiment, base, (shape for shape in both if shape))
    return [shape for shape in found if elements(experiment, shape) > WORD // 2]


def _proportional(
    experiment: Experiment, base: Mapping[str, Value], names: Sequence[str]
) -> list[dict[str, Value]]:
    """``base`` with its larger sizes less by one factor, for kernels with a path for a ratio."""
    large = {name: int(base[name]) for name in names if int(base[name]) >= _SCALED}
    common = gcd(*large.values())
    shapes = (
        {**base, **{name: size // common * part for name, size in large.items()}}
        for part in (smaller_sizes(common) if len(large) > 1 else ())
    )
    return _fitting(experiment, base, shapes)


def _fitting(
    experiment: Experiment, base: Mapping[str, Value], shapes: Iterable[dict[str, Value]]
) -> list[dict[str, Value]]:
    """The first of ``shapes`` that is in the domain and not much larger than ``base``, if any."""
    most = max(_FAR_GROWTH * elements(experiment, base), FAR_ELEMENTS)
    fits = (s for s in shapes if inside(experiment, s) and elements(experiment, s) <= most)
    return list(islice(fits, 1))


def _larger(experiment: Experiment, known: Sequence[Mapping[str, Value]]) -> list[dict[str, Value]]:
    """The shape with all sizes just above the largest known ones, or above one known shape's."""
    largest = {
        name: max(int(symbols[name]) for symbols in known) if type(value) is int else value
        for name, value in known[0].items()
    }
    several = sorted(known, key=lambda symbols: -elements(experiment, symbols))
    for symbols in (largest, *several):
        found = dict(symbols)
        for name, value in symbols.items():
            if type(value) is int:
                above = [
                    *at_remainder(experiment, found, name, _LARGER)[:1],
                    *range(value + 1, value + REACH),
                ]
                found[name] = first_inside(experiment, found, name, above)
        fits = inside(experiment, found) and elements(experiment, found) <= _MOST_ELEMENTS
        if fits and found not in known:
            return [found]
    return []


def _far(
    experiment: Experiment,
    small: Mapping[str, Value],
    known: Sequence[Mapping[str, Value]],
    name: str,
) -> list[dict[str, Value]]:
    """The shape with one size far above the known ones and the others small, if it is larger.

    Where the domain ends before the next doubling, the size is about the largest that it allows,
    and again the very largest.
    """
    largest = max(int(symbols[name]) for symbols in known)
    symbols: Mapping[str, Value] | None = raised(experiment, small, name, largest)
    if symbols is None:
        return []
    while True:
        further = raised(experiment, symbols, name, 2 * int(symbols[name]))
        if further is None:
            symbols = enlarged(experiment, symbols, name)
        if further is None or not grows(experiment, symbols, further):
            break
        symbols = further
    if not grows(experiment, small, symbols):
        return []
    least = max(largest, int(symbols[name]) // 2)
    sizes = [size for size in at_remainder(experiment, symbols, name, _FAR) if size > least]
    found = [{**symbols, name: first_inside(experiment, symbols, name, sizes)}]
    beyond = int(symbols[name]) + step_of(experiment, symbols, name)
    return found if raised(experiment, symbols, name, beyond) else [*found, dict(symbols)]


def _far_among_least(
    experiment: Experiment,
    tiny: Mapping[str, Value],
    name: str,
    far: Sequence[Mapping[str, Value]],
) -> list[dict[str, Value]]:
    """``tiny`` with a size as far above, but an odd number of steps, if there is such a shape.

    Beside so few others it may be farther: beyond 16 bits, if it can.
    """
    least = raised(experiment, tiny, name, int(far[0][name])) if far else None
    if least is None:
        return []
    while int(least[name]) <= WORD:
        further = raised(experiment, least, name, 2 * int(least[name]))
        if further is None or not grows(experiment, least, further):
            break
        least = further
    sizes = at_remainder(experiment, least, name, _LEFT_OVER)
    return [{**least, name: first_inside(experiment, least, name, sizes)}]
