"""Guesses about one array of a kernel: how it is used, and how long it is."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.csource.accesses import Access
from tuner.csource.arithmetic import Polynomial, quotients, without_remainders
from tuner.csource.kernels import Parameter
from tuner.drafts.guesses import Confidence, least
from tuner.drafts.symbols import quoted
from tuner.expressions import Expression, ExpressionError


@dataclass(frozen=True, slots=True)
class ArrayGuess:
    """Kind and shape as a spec writes them; ``exact`` has divisions taken to leave no rest."""

    kind: str
    shape: str
    why: str
    confidence: Confidence
    exact: tuple[tuple[Polynomial, Polynomial], ...]
    length: Polynomial

    def elements(self, shape: Mapping[str, int]) -> int:
        """How many elements it has at these sizes; 0 if that is not known."""
        return size_of(self.length, shape) or 0


def array_guess(
    parameter: Parameter,
    found: Sequence[Access],
    allocated: Polynomial | None,
    tune: Mapping[str, int],
    threads: Polynomial,
    order: Sequence[str],
) -> ArrayGuess:
    """The guess about one array.

    Args:
        parameter: the kernel's parameter.
        found: the accesses to it, in order; extents are in elements of its dtype.
        allocated: the elements that the host allocates for it, if that is known.
        tune: the symbols, with the sizes to tune for.
        threads: how many the launch has, the length where nothing else is known.
        order: the symbols from the outermost extent to the innermost.
    """
    kind, why, sure = use(parameter, found)
    length, whence, known, exact = _length(found, allocated, tune, threads)
    length, more = without_remainders(length)
    return ArrayGuess(
        kind,
        ", ".join(map(quoted, extents(length, order))),
        f"{why}; {whence}",
        least(sure, known),
        (*exact, *more),
        length,
    )


def use(parameter: Parameter, found: Sequence[Access]) -> tuple[str, str, Confidence]:
    """Kind, reason and confidence from all accesses to an array, in order."""
    if parameter.const:
        return "in", "const, so read", "high"
    kinds = [access.kind for access in found]
    if not kinds:
        return "out", "not const, so written; 'inout' if also read", "low"
    if set(kinds) == {"read"}:
        return "in", "read, and written nowhere", "medium"
    if kinds[0] == "write":
        return "out", "written before it is read", "medium"
    if "write" in kinds or kinds[0] == "read":
        return "inout", "read before it is written", "medium"
    return "inout", "updated in place, so read and written", "medium"


def _length(
    found: Sequence[Access],
    allocated: Polynomial | None,
    tune: Mapping[str, int],
    threads: Polynomial,
) -> tuple[Polynomial, str, Confidence, tuple[tuple[Polynomial, Polynomial], ...]]:
    """Length, reason, confidence, and the divisions that must leave no rest for it."""
    reached = [access.extent for access in found]
    known = [e for e in reached if e is not None and e.names <= tune.keys()]
    measured = [(size, e) for e in known if (size := size_of(e, tune)) is not None and size > 0]
    longest = max(measured, key=lambda one: one[0])[1] if measured else None
    size = None if allocated is None or allocated.names - tune.keys() else size_of(allocated, tune)
    if longest is not None and size == size_of(longest, tune):
        return longest, "as long as it is allocated", "high", ()
    fixed = longest is not None and longest.names and allocated and allocated.constant is not None
    if allocated is not None and size and not fixed:
        rounded = quotients(longest) if longest is not None and longest != allocated else ()
        return (
            allocated,
            "as long as it is allocated",
            "high",
            tuple((one.numerator, one.denominator) for one in rounded),
        )
    if longest is not None:
        sure: Confidence = "medium" if len(known) == len(reached) else "low"
        return longest, "its indices stay below this", sure, ()
    return threads, "its indices are not understood: an element for each thread", "low", ()


def size_of(extent: Polynomial, tune: Mapping[str, int]) -> int | None:
    """The value at these sizes, if it is a whole number."""
    try:
        value = Expression.parse(str(extent)).evaluate(tune)
    except ExpressionError:
        return None
    return value if isinstance(value, int) else None


def extents(length: Polynomial, order: Sequence[str]) -> tuple[str, ...]:
    """A length as extents: a product of names is one extent each.

    ``order`` has the names from the outermost extent to the innermost.
    """
    if len(length.terms) == 1:
        ((atoms, factor),) = length.terms.items()
        if 1 < len(atoms) <= 4 and factor == 1:
            places = {name: place for place, name in enumerate(order)}
            words = {str(atom): re.findall(r"\w+", str(atom)) for atom in atoms}
            last = {atom: max(places.get(w, -1) for w in of) for atom, of in words.items()}
            return tuple(sorted(map(str, atoms), key=last.__getitem__))
    return (str(length),)
