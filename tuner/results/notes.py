"""The notes of a run in words: what could not be checked, with one note for each cause."""

import re
from collections.abc import Iterable, Sequence

from tuner.journal.facts import Note, Unchecked
from tuner.trial import Code

_WRONG_REMEDY = "mend it (a bounds check, say), or narrow shapes.domain"
_DISAGREES_REMEDY = (
    "mend the reference, an argument's `kind` or the `tolerance`, or give a `range` of the numbers "
    "that occur"
)


def note_texts(notes: Iterable[Note]) -> tuple[str, ...]:
    """One line for each text, and for all inputs that were not checked for the same cause."""
    found: dict[str | tuple[object, ...], list[Note]] = {}
    for note in notes:
        found.setdefault(note if isinstance(note, str) else _cause(note), []).append(note)
    return tuple(
        key if isinstance(key, str) else _text([n for n in alike if isinstance(n, Unchecked)])
        for key, alike in found.items()
    )


def _cause(note: Unchecked) -> tuple[object, ...]:
    """What notes of one cause share: all shapes at which the kernel is wrong are one."""
    return (True,) if note.wrong else (note.code, re.sub(r"\d\S*", "", note.reason.split(": ")[0]))


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
