"""The notes of a run in words: what could not be checked, with one note for each cause."""

from collections.abc import Iterable, Sequence

from tuner.journal.facts import Note, Unchecked
from tuner.trial import Code

_WRONG_REMEDY = "mend it (a bounds check, say), or narrow shapes.domain"
_ROUNDING_REMEDY = (
    "the difference is no larger than the rounding of a long sum: widen `rtol` or `atol`, or sum "
    "more accurately (in parts, or in a wider type); if it is more than rounding, mend the kernel"
)
_DISAGREES_REMEDY = (
    "ordinary inputs agree, so the tolerance is too narrow for such inputs: widen its `rtol` or "
    "`atol`, or give a `range` of the numbers that occur; if the difference is more than rounding, "
    "mend the reference or an argument's `kind`"
)


def note_texts(notes: Iterable[Note]) -> tuple[str, ...]:
    """One line for each text, and for all inputs that were not checked for the same cause."""
    found: dict[str | tuple[Code, bool], list[Unchecked]] = {}
    for note in notes:
        if isinstance(note, str):
            found[note] = []
        else:
            found.setdefault(_cause(note), []).append(note)
    return tuple(key if isinstance(key, str) else _text(alike) for key, alike in found.items())


def wrong_remedy(code: Code | None) -> str:
    """What to do about a kernel that fails its checks on a shape which is not timed."""
    return _ROUNDING_REMEDY if code is Code.ROUNDING else _WRONG_REMEDY


def _cause(note: Unchecked) -> tuple[Code, bool]:
    """All shapes at which the kernel is wrong are one cause, but for mere rounding."""
    if note.wrong:
        return note.code if note.code is Code.ROUNDING else Code.WRONG_RESULT, True
    return Code.DISAGREES if note.code is Code.ROUNDING else note.code, False


def _text(alike: Sequence[Unchecked]) -> str:
    first = alike[0]
    shapes = dict.fromkeys(note.shape for note in alike)
    if first.wrong:
        where = f"{first.shape}, inside shapes.domain"
        if len(shapes) > 1:
            where = f"{len(shapes)} shapes inside shapes.domain, first {first.shape}"
        said = f"{where}: {first.reason}; {wrong_remedy(first.code)}"
        if first.code is Code.ROUNDING:
            return f"your kernel misses its tolerance at {said}"
        return f"your kernel is wrong at {said}"
    place = f"{first.shape}, {first.inputs}"
    if len(alike) > 1:
        labels = list(dict.fromkeys(note.inputs for note in alike))
        at = f"at {len(shapes)} shapes" if len(shapes) > 1 else f"at {first.shape}"
        place = f"{len(alike)} sets of inputs {at} ({'; '.join(labels)}), first {place}"
    disagrees = _cause(first)[0] is Code.DISAGREES
    remedy = f"; {_DISAGREES_REMEDY}" if disagrees else ""
    return f"not checked on {place}: {first.reason}{remedy}"
