"""Which values one size takes on odd shapes, and how far it may grow within the domain.

Sizes count in the least steps in which the domain lets them change.
"""

from collections.abc import Iterable, Mapping

from tuner.backends.registry import traits_of
from tuner.experiment.domain import elements, inside
from tuner.experiment.model import Experiment
from tuner.trial import Value

REACH = 512
"""Sizes that are looked at below or above another one."""
PERIOD = 32
"""What remainders of sizes are taken modulo."""
FAR_ELEMENTS, _FAR_ELEMENTS_ON_GPU = 1 << 20, 1 << 23
"""Elements of all arrays far above the known sizes. On a GPU they are more than 1,024 blocks of 256
threads with four elements each: some kernels sum over so many alone. On an H200 twice as many made
a confirmation take a second longer."""
WORD = 1 << 16
"""What an index of 16 bits does not reach."""
PRODUCTS = tuple(
    pair
    for word, root in ((WORD, 257), (WORD // 2, 182))
    for size in (root * 6**power // 5**power for power in range(20))
    for other in (word // size + 1,)
    for pair in ((size, other), (other, size))
)
"""Two sizes with a product that is just larger, most alike first: a domain may bound one.

Then those just beyond what signed numbers of 16 bits reach: a domain may end at 256 times 256."""
_LARGE_TILES = (512, 1024, 2048, 4096)
"""Elements that blocks with several for each thread take at a time."""
_CHOICES, _CHOICES_END = 8, 65
"""A size of which so few values below the end are in the domain (a stride, a width) has each alone,
since a kernel may have a path for each; of one with more, such as a radius, the last fits in some
counters and private arrays alone."""


def smaller_sizes(value: Value, step: int = 1) -> list[int]:
    """Smaller sizes, primes first, those that leave seven of eight before others, nearest first.

    Counted in steps, then by one. A loop that takes several elements at a time may lose the third
    or the seventh of those left.
    """

    def order(size: int) -> tuple[bool, bool, int]:
        return not _is_prime(size // step), size // step % 8 != 7, -size

    sizes = range(int(value) - step, max(0, int(value) - step * REACH), -step)
    return [*sorted(sizes, key=order), *(smaller_sizes(value) if step > 1 else ())]


def step_of(experiment: Experiment, symbols: Mapping[str, Value], name: str) -> int:
    """The least change of a size that the domain allows."""
    size = int(symbols[name])
    steps = (change for n in range(1, REACH) for change in (n, -n))
    fits = (n for n in steps if inside(experiment, {**symbols, name: size + n}))
    return abs(next(fits, 1))


def at_remainder(
    experiment: Experiment, symbols: Mapping[str, Value], name: str, remainder: int
) -> list[int]:
    """The next size above with a remainder modulo the period, and the next one below."""
    size, step = int(symbols[name]), step_of(experiment, symbols, name)
    above = size + 1 + (step * remainder - size - 1) % (step * PERIOD)
    return [above, above - step * PERIOD]


def large_tiles(tune: Iterable[int], timed: Iterable[int]) -> list[int]:
    """Three of each large tile that divides a tune size, unless a timed size has an odd number.

    A template for multiples of such a tile is searched, but may take twice as much at a time.
    """
    divided = [tile for tile in _LARGE_TILES if any(size > 0 and size % tile == 0 for size in tune)]
    seen = {size & -size for size in timed if size & (size - 1)}
    return [3 * tile for tile in divided if tile not in seen]


def few_values(experiment: Experiment, base: Mapping[str, Value], name: str) -> list[int]:
    """The values of a size up to the end, if they are few."""
    found = [n for n in range(1, _CHOICES_END) if inside(experiment, {**base, name: n})]
    return found if len(found) <= _CHOICES else []


def end_of_domain(experiment: Experiment, base: Mapping[str, Value], name: str) -> list[int]:
    """The largest value of a size that makes no array larger, if the domain ends so early."""
    fits = [n for n in range(1, 2 * _CHOICES_END) if inside(experiment, {**base, name: n})]
    if not fits or fits[-1] >= _CHOICES_END:
        return []
    last = {**base, name: fits[-1]}
    return fits[-1:] if elements(experiment, last) == elements(experiment, base) else []


def raised(
    experiment: Experiment, symbols: Mapping[str, Value], name: str, size: int
) -> dict[str, Value] | None:
    """The shape with a size set, and one other as large if only then it is in the domain."""
    alone = {**symbols, name: size}
    smaller = [other for other, value in alone.items() if type(value) is int and value < size]
    shapes = (alone, *({**alone, other: size} for other in smaller))
    return next((shape for shape in shapes if inside(experiment, shape)), None)


def enlarged(
    experiment: Experiment, symbols: Mapping[str, Value], name: str
) -> Mapping[str, Value]:
    """The shape with a size increased, to less than twice as much, as far as it may grow."""
    step = step_of(experiment, symbols, name)
    for power in reversed(range((int(symbols[name]) // step).bit_length())):
        further = raised(experiment, symbols, name, int(symbols[name]) + (step << power))
        if further is not None and grows(experiment, symbols, further):
            symbols = further
    return symbols


def grows(
    experiment: Experiment, symbols: Mapping[str, Value], further: Mapping[str, Value]
) -> bool:
    """Whether ``further`` is in the domain and larger than ``symbols``, but not too large."""
    if not inside(experiment, further):
        return False
    gpu = traits_of(experiment.kernel.language).gpu_only
    most = _FAR_ELEMENTS_ON_GPU if gpu else FAR_ELEMENTS
    return elements(experiment, symbols) < elements(experiment, further) <= most


def first_inside(
    experiment: Experiment, symbols: Mapping[str, Value], name: str, values: Iterable[int]
) -> Value:
    """The first of ``values`` that keeps the shape in the domain, or else its present one."""
    for value in values:
        if inside(experiment, {**symbols, name: value}):
            return value
    return symbols[name]


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))
