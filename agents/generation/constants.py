"""Mechanical rule: integer constants of the source become parameters.

Names decide which constants are tuning knobs; nothing else tells them from constants of the
operation. A constant that the launch may depend on in a way not understood is left alone.
"""

import math
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from agents.generation.draft import Draft
from tuner.csource.kernels import called_functions, reachable_code
from tuner.csource.tree import without_comments
from tuner.errors import SpecError
from tuner.experiment.arguments import item_bytes
from tuner.experiment.model import Experiment, Launch
from tuner.expressions import Expression

_VALUE = r"(\d+(?:[ \t]*(?:\*|<<)[ \t]*\d+)*)[uUlL]*"
_DEFINE = re.compile(rf"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?{_VALUE}\)?[ \t]*$", re.MULTILINE)
_TYPE = (
    r"(?:(?:unsigned|signed)[ \t]+)?(?:int|short|long|unsigned|size_t|uint|auto"
    r"|(?:std::)?u?int(?:8|16|32|64)_t)"
)
_DECLARED = re.compile(
    r"\b(?:constexpr|const)[ \t]+(?:static[ \t]+)?"
    rf"{_TYPE}[ \t]+(?:static[ \t]+)?(\w+)[ \t]*=[ \t]*{_VALUE}(?=[ \t]*[;,])"
)
_ENUM = re.compile(r"\benum\b[\w \t:]*\{([^{}]*)\}")
_MEMBER = re.compile(rf"\b(\w+)\s*=\s*{_VALUE}(?=\s*(?:,|\Z))")
_WORK_GROUP = re.compile(r"BLOCK|THREADS|WORK_?GROUP|(?:^|_)WG|LOCAL_SIZE", re.IGNORECASE)
_WIDTH = re.compile(r"VEC|WIDTH|PACK", re.IGNORECASE)
_LOOP = re.compile(r"UNROLL|TILE|ITEMS|PER_(?:THREAD|ITEM)|CHUNK|STAGES", re.IGNORECASE)
_TILE = re.compile(r"TILE", re.IGNORECASE)
_AXIS = re.compile(r"(?:_|DIM)([XYZ])$", re.IGNORECASE)
_EXACT = re.compile(r"((?:[^()/]|\([^()]*\))+?) // (\([^()]*\)|\w+)")
"""A number of blocks that leaves out what is no whole block."""
_FIXED = re.compile(r"WARP_?(?:SIZE|THREADS)|PER_WARP|MASK|SHIFT", re.IGNORECASE)
"""Names of what the hardware or the layout of data decides."""
_INTEGER = re.compile(rf"(?:const )?{_TYPE}")
_WORD = re.compile(r"[A-Za-z_]\w*")
_CONSTANT = re.compile(r"\b(\w+)\s*=\s*([^;={}]*)[;,}]")
_MOST = 1024
_MOST_PER_THREAD = 64
"""Elements of one thread, or bytes of shared memory for it, that a launch's number may hold."""


def constants(draft: Draft, experiment: Experiment) -> Draft:
    """Turn recognised constants into parameters."""
    return _of_the_source(draft.each(_of_the_entry, experiment), experiment)


def _of_the_entry(draft: Draft, experiment: Experiment) -> Draft:
    """Integer arguments of a kernel template, as in ``kernel<half, 128>``, by their names in it.

    Those that the entry leaves to their defaults are made explicit.
    """
    kernel = draft.kernel
    entry = re.fullmatch(r"([\w:]+)\s*<([^<>]*)>", draft.launched)
    if kernel is None or entry is None or draft.shared:
        return draft
    given = [argument.strip() for argument in entry[2].split(",") if argument.strip()]
    for name, _ in kernel.signature.template[len(given) :]:
        default = re.search(rf"\b{name}\s*=\s*(\d+)\s*[,>]", kernel.code(kernel.head))
        if default is None:
            break
        given.append(default[1])
    named = zip(kernel.signature.template, given, strict=False)
    for place, ((name, kind), value) in enumerate(named):
        integer = _INTEGER.fullmatch(kind) and value.isdecimal() and int(value) >= 1
        if not integer or not _is_knob(name):
            continue
        parameter = draft.fresh(f"{name}_VALUE", experiment)
        arguments = [*given[:place], f"{{{parameter}}}", *given[place + 1 :]]
        taken = draft.with_entry(f"{entry[1]}<{', '.join(arguments)}>")
        draft = _linked_parameter(draft, taken, experiment, name, parameter, int(value))
        given = arguments if draft.launched == taken.launched else given
    return draft


def _of_the_source(draft: Draft, experiment: Experiment) -> Draft:
    """Macros, constants and members of enumerations with knobs' names."""
    viewed, draft = draft.at, replace(draft, at=len(draft.steps))
    visible = without_comments(draft.source)
    own = _without_functions(draft.views(), visible, but_called=True)
    used = _used(draft.views(), visible)
    kernels = [view.kernel for view in draft.views()]
    seen = {name for kernel in kernels if kernel for name, _ in kernel.signature.template}
    for found in sorted(_definitions(own), key=lambda found: found.span[0]):
        name, value = found.name, found.value
        if name in seen or not value >= 1 or not _is_knob(name):
            continue
        seen.add(name)
        if len(re.findall(rf"^[ \t]*#[ \t]*(?:define|undef)[ \t]+{name}\b", visible, re.M)) > 1:
            draft = draft.noted(name, "it is defined more than once")
        elif name not in used:
            draft = draft.noted(name, "the kernel does not use it")
        else:
            moved = len(draft.source) - len(visible)  # by the definitions changed above this one
            start, end = (at + moved for at in found.span)
            parameter = (
                name if found.macro else draft.fresh(f"{name}_VALUE", experiment, common=True)
            )
            text = "" if found.macro else parameter
            source = draft.source[:start] + text + draft.source[end:]
            draft = _adopt(draft, experiment, found, parameter, source)
    return replace(draft, at=viewed)


def _without_functions(views: Sequence[Draft], visible: str, *, but_called: bool) -> str:
    """The source with the functions blanked, but those that the kernels consist of."""
    kernels = [kernel for view in views if (kernel := view.kernel)]
    kept = [
        (node.start_byte, node.end_byte)
        for kernel in kernels
        for node in (kernel.block and kernel.block.parent, *called_functions(kernel))
        if node is not None and but_called
    ]
    for node in kernels[0].tree.find("function_definition") if kernels else ():
        start, end = node.start_byte, node.end_byte
        if not any(first <= start < last for first, last in kept):
            inside = re.sub(r"[^\n]", " ", visible[start:end])
            visible = visible[:start] + inside + visible[end:]
    return visible


@dataclass(frozen=True, slots=True)
class _Definition:
    """An integer constant: ``span`` is all of a macro's line, or the value of another."""

    name: str
    value: int
    span: tuple[int, int]
    macro: bool


def _definitions(visible: str) -> Iterator[_Definition]:
    for match in _DEFINE.finditer(visible):
        yield _Definition(match[1], _valued(match[2]), match.span(), macro=True)
    for match in _DECLARED.finditer(visible):
        yield _Definition(match[1], _valued(match[2]), (match.start(2), match.end()), macro=False)
    for enum in _ENUM.finditer(visible):
        for match in _MEMBER.finditer(enum[1]):
            start, end = (enum.start(1) + at for at in (match.start(2), match.end()))
            yield _Definition(match[1], _valued(match[2]), (start, end), macro=False)


def _valued(text: str) -> int:
    """The value of a product or shift of numbers, from left to right."""
    first, *rest = re.findall(r"\d+|\*|<<", text)
    value = int(first)
    for operator, number in zip(rest[::2], rest[1::2], strict=True):
        shift = min(int(number), 64)
        value = value * int(number) if operator == "*" else value << shift
    return value


def _used(views: Sequence[Draft], visible: str) -> frozenset[str]:
    """Every name that the kernels in view read, also through other constants of the source."""
    kernels = [view.kernel for view in views]
    texts = [f"{k.code(k.head)} {reachable_code(k)}" if k else visible for k in kernels]
    words = {word for text in texts for word in _WORD.findall(text)}
    defined = _CONSTANT.findall(_without_functions(views, visible, but_called=False))
    while True:
        more = {w for name, value in defined if name in words for w in _WORD.findall(value)}
        if more <= words:
            return frozenset(words)
        words |= more


def _is_knob(name: str) -> bool:
    named = any(pattern.search(name) for pattern in (_WORK_GROUP, _WIDTH, _LOOP))
    return named and not _FIXED.search(name)


def _adopt(
    draft: Draft, experiment: Experiment, found: _Definition, parameter: str, source: str
) -> Draft:
    """The draft with a parameter for the constant that ``source`` no longer defines."""
    if parameter in experiment.shapes.tune[0].symbols:
        return draft.noted(found.name, "a symbol of the experiment has the same name")
    taken = replace(draft, source=source)
    return _linked_parameter(draft, taken, experiment, found.name, parameter, found.value)


def _linked_parameter(
    draft: Draft, taken: Draft, experiment: Experiment, called: str, name: str, value: int
) -> Draft:
    """``taken`` with the parameter and the launch that goes with it, or ``draft`` as it was.

    ``called`` is what the source calls the constant, ``name`` the parameter.
    """
    for view in draft.views():
        taken = replace(taken, at=view.at)
        if taken.launch is None or called not in _used([view], draft.source):
            continue
        launch = _linked(taken.launch, called, name, value)
        if launch is None:
            return draft.noted(called, "the launch may depend on its value in a way not understood")
        taken = taken.with_launch(launch)
        for axis in launch.grid:
            exact = _EXACT.fullmatch(axis.text)
            if exact and re.search(rf"\b{name}\b", exact[2]):
                rest = f"({exact[1]}) % {exact[2]}"
                taken = taken.with_constraint(f"{name} == {value} or {rest} == 0")
    taken = replace(taken, at=draft.at)
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
    """The launch with ``name`` in place of ``value`` where it stands for it; ``None``: unclear.

    A number of the launch may be a product: of a block's size and what each thread does or takes.
    Shared memory never becomes less than what it was, since its number may hold a size in bytes.
    """
    if value == 1:
        return launch
    of_block = bool(_WORK_GROUP.search(called) or _TILE.search(called))
    named_axis = _AXIS.search(called)
    blocks = [int(axis.text) if axis.text.isdecimal() else 0 for axis in launch.block]
    threads = range(2, _MOST_PER_THREAD + 1)

    def linked(expression: Expression, others: Container[int]) -> str | None:
        return _substituted(expression.text, name, value, others, of_block, {*blocks} - {0, value})

    texts: list[list[str | None]] = [[], []]
    for axes, found in zip((launch.grid, launch.block), texts, strict=True):
        for number, expression in enumerate(axes):
            if named_axis and "XYZ"[number] != named_axis[1].upper():
                found.append(expression.text)
                continue
            own = blocks[number : number + 1] == [value]
            others = (threads if own else ()) if of_block else {*blocks}
            found.append(linked(expression, others))
    shared: str | None = launch.shared_bytes.text
    if of_block:
        shared = linked(launch.shared_bytes, threads if value in blocks else ())
    elif any(number % value == 0 for number in _numbers(launch.shared_bytes.text)):
        shared = f"max({shared}, ({shared}) // {value} * {name})"
    if shared is None or None in texts[0] or None in texts[1]:
        return None
    grid, block = (tuple(Expression.parse(text) for text in found if text) for found in texts)
    return replace(launch, grid=grid, block=block, shared_bytes=Expression.parse(shared))


def _substituted(
    text: str, name: str, value: int, others: Container[int], of_block: bool, kept: set[int]
) -> str | None:
    """The text with ``name`` for ``value``, and for a product of it with one of the ``others``.

    ``None`` if a number may be a multiple in another way; those that are ``kept`` are none.
    """
    replaced: dict[int, str] = {}
    for number in _numbers(text) - kept:
        factor, remainder = divmod(number, value)
        if remainder:
            continue
        if factor == 1 and (of_block or re.search(rf"\({value} \* [A-Za-z_]\w*\)", text)):
            replaced[number] = name
        elif factor in others:
            replaced[number] = f"({factor} * {name})"
        else:
            return None
    return re.sub(r"\b\d+\b", lambda found: replaced.get(int(found[0]), found[0]), text)


def _numbers(*texts: str) -> set[int]:
    """The numbers above 1 in expressions."""
    return {int(number) for text in texts for number in re.findall(r"\b\d+\b", text)} - {0, 1}


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
