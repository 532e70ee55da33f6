"""The notes of a run in words: what could not be checked, with one note for each cause."""

from collections.abc import Iterable, Sequence

from tuner.journal.facts import Note, Unchecked
from tuner.trial import Code

_WRONG_REMEDY = "mend it (a bounds check, say), or narrow shapes.domain"
_DISAGREES_REMEDY = (
    "ordinary inputs agree, so the tolerance is too narrow for such inputs: widen its `rtol` or "
    "`atol`, or give a `range` of the numbers that occur; if the difference is more than rounding, "
    "mend the reference or an argument's `kind`"
)


def note_texts(notes: Iterable[Note]) -> tuple[str, ...]:
    """One line for each text, and for all inputs that were not checked for the same cause."""
    found: dict[str | tuple[Code | None], list[Unchecked]] = {}
    for note in notes:
        if isinstance(note, str):
            found[note] = []
        else:  # all shapes at which the kernel is wrong are one cause
            found.setdefault((None if note.wrong else note.code,), []).append(note)
    return tuple(key if isinstance(key, str) else _text(alike) for key, alike in found.items())


def _text(alike: Sequence[Unchecked]) -> str:
    first = alike[0]
    shapes = dict.fromkeys(note.shape for note in alike)
    if first.wrong:
        where = f"{first.shape}, inside shapes.domain"
        if len(shapes) > 1:
            where = f"{len(shapes)} shapes inside shapes.domain, first {first.shape}"
        return f"your kernel is wrong at {where}: {first.reason}; {_WRONG_REMEDY}"
    place = f"{first.shape}, {first.inputs}"
    if len(alike) > 1:
        labels = list(dict.fromkeys(note.inputs for note in alike))
        at = f"at {len(shapes)} shapes" if len(shapes) > 1 else f"at {first.shape}"
        place = f"{len(alike)} sets of inputs {at} ({'; '.join(labels)}), first {place}"
    remedy = f"; {_DISAGREES_REMEDY}" if first.code is Code.DISAGREES else ""
    return f"not checked on {place}: {first.reason}{remedy}"
