"""Mechanical rule: integer constants of the source become parameters.

Names decide which constants are tuning knobs; nothing else tells them from constants of the
operation. A constant that the launch may depend on in a way not understood is left alone.
"""

import math
import re
from dataclasses import replace

from agents.generation.draft import Draft
from tuner.csource.tree import without_comments
from tuner.errors import SpecError
from tuner.experiment.arguments import item_bytes
from tuner.experiment.model import Experiment, Launch
from tuner.expressions import Expression

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?(\d+)[uU]?\)?[ \t]*$", re.MULTILINE)
_DECLARED = re.compile(
    r"^[ \t]*(?:static[ \t]+|inline[ \t]+|__constant__[ \t]+)*(?:constexpr|const)[ \t]+"
    r"(?:static[ \t]+)?(?:unsigned[ \t]+)?(?:int|unsigned|size_t|uint)[ \t]+"
    r"(\w+)[ \t]*=[ \t]*(\d+)[uU]?[ \t]*;[ \t]*$",
    re.MULTILINE,
)
_WORK_GROUP = re.compile(r"BLOCK|THREADS|WORK_?GROUP|(?:^|_)WG|LOCAL_SIZE", re.IGNORECASE)
_WIDTH = re.compile(r"VEC|WIDTH|PACK", re.IGNORECASE)
_LOOP = re.compile(r"UNROLL|TILE|ITEMS|PER_(?:THREAD|ITEM)|CHUNK|STAGES", re.IGNORECASE)
_TILE = re.compile(r"TILE", re.IGNORECASE)
_INTEGER = re.compile(r"(?:const )?(?:unsigned )?(?:int|unsigned|size_t)")
_MOST = 1024


def constants(draft: Draft, experiment: Experiment) -> Draft:
    """Turn recognised constants into parameters."""
    return _of_the_source(_of_the_entry(draft, experiment), experiment)


def _of_the_entry(draft: Draft, experiment: Experiment) -> Draft:
    """Integer arguments of a kernel template, as in ``kernel<half, 128>``, by their names in it."""
    kernel = draft.kernel
    entry = re.fullmatch(r"([\w:]+)\s*<([^<>]*)>", draft.entry)
    if kernel is None or entry is None:
        return draft
    given = [argument.strip() for argument in entry[2].split(",")]
    named = zip(kernel.signature.template, given, strict=False)
    for place, ((name, kind), value) in enumerate(named):
        integer = _INTEGER.fullmatch(kind) and value.isdecimal() and int(value) >= 1
        if not integer or not _is_knob(name):
            continue
        parameter = draft.fresh(f"{name}_VALUE", experiment)
        arguments = [*given[:place], f"{{{parameter}}}", *given[place + 1 :]]
        taken = replace(draft, entry=f"{entry[1]}<{', '.join(arguments)}>")
        draft = _linked_parameter(draft, taken, experiment, name, parameter, int(value))
        given = arguments if draft.entry == taken.entry else given
    return draft


def _of_the_source(draft: Draft, experiment: Experiment) -> Draft:
    visible = without_comments(draft.source)
    seen: set[str] = set()
    for match in sorted(
        (*_DEFINE.finditer(visible), *_DECLARED.finditer(visible)), key=lambda found: found.start()
    ):
        name, value = match[1], int(match[2])
        if name in seen or value < 1 or not _is_knob(name):
            continue
        seen.add(name)
        if len(re.findall(rf"^[ \t]*#[ \t]*(?:define|undef)[ \t]+{name}\b", visible, re.M)) > 1:
            draft = draft.noted(name, "it is defined more than once")
        elif len(re.findall(rf"\b{name}\b", visible)) < 2:
            draft = draft.noted(name, "it is never used")
        else:
            moved = len(draft.source) - len(visible)  # by the definitions removed above this one
            start, end = match.start() + moved, match.end() + moved
            source = draft.source[:start] + draft.source[end:]
            draft = _adopt(draft, experiment, name, value, source)
    return draft


def _is_knob(name: str) -> bool:
    return any(pattern.search(name) for pattern in (_WORK_GROUP, _WIDTH, _LOOP))


def _adopt(draft: Draft, experiment: Experiment, name: str, value: int, source: str) -> Draft:
    """The draft with a parameter for the constant that ``source`` no longer defines."""
    if name in experiment.shapes.tune[0].symbols:
        return draft.noted(name, "a symbol of the experiment has the same name")
    taken = replace(draft, source=source)
    return _linked_parameter(draft, taken, experiment, name, name, value)


def _linked_parameter(
    draft: Draft, taken: Draft, experiment: Experiment, called: str, name: str, value: int
) -> Draft:
    """``taken`` with the parameter and the launch that goes with it, or ``draft`` as it was.

    ``called`` is what the source calls the constant, ``name`` the parameter.
    """
    launch = _linked(draft.launch, called, name, value) if draft.launch else None
    if launch is None:
        return draft.noted(called, "the launch may depend on its value in a way not understood")
    taken = replace(taken, launch=launch)
    values = _around(value)
    if _WIDTH.search(called):
        widest = _widest(experiment)
        values = tuple(option for option in values if option <= max(widest, value))
        taken = taken.with_parameter(name, values)
        for argument in experiment.arguments:
            if argument.kind in ("in", "out", "inout") and argument.shape:
                taken = taken.with_constraint(
                    f"{name} == {value} or ({argument.shape[-1].text}) % {name} == 0"
                )
        return taken.noted(
            name, f"a width in the source; buffers are aligned to {widest} elements at least"
        )
    taken = taken.with_parameter(name, values)
    return taken.noted(name, f"an integer constant of the source, {value} as written")


def _linked(launch: Launch, called: str, name: str, value: int) -> Launch | None:
    """The launch with ``name`` in place of ``value`` where it stands for it; ``None``: unclear."""
    blocks = {axis.text for axis in launch.block}
    texts = [expression.text for expression in (*launch.grid, *launch.block, launch.shared_bytes)]
    literals = {number for text in texts for number in re.findall(r"\b\d+\b", text)} - {"0", "1"}
    multiples = {number for number in literals - blocks if int(number) % value == 0}
    if value == 1 or (not multiples and str(value) not in blocks):
        return launch
    if not (_WORK_GROUP.search(called) or _TILE.search(called)) or multiples - {str(value)}:
        return None

    def substituted(expressions: tuple[Expression, ...]) -> tuple[Expression, ...]:
        return tuple(
            Expression.parse(re.sub(rf"\b{value}\b", name, expression.text))
            for expression in expressions
        )

    shared = substituted((launch.shared_bytes,))[0]
    return replace(
        launch,
        grid=substituted(launch.grid),
        block=substituted(launch.block),
        shared_bytes=shared,
    )


def _around(value: int) -> tuple[int, ...]:
    """The value, and a quarter, half, twice and four times it where those are whole."""
    options = {value * factor for factor in (1, 2, 4) if value * factor <= max(_MOST, value)}
    options |= {value // divisor for divisor in (2, 4) if value % divisor == 0}
    return tuple(sorted(options))


def _widest(experiment: Experiment) -> int:
    """The most elements that every buffer's promised alignment covers."""
    widths = []
    for argument in experiment.arguments:
        if argument.kind in ("in", "out", "inout"):
            try:
                size = item_bytes(argument.dtype)
            except (KeyError, SpecError):
                return 1
            widths.append(max(1, (argument.align or size) // size))
    return math.gcd(*widths) if widths else 1
