"""Mechanical rule: how far loops are unrolled. It never changes the order of operations."""

import re
from dataclasses import replace

from agents.generation.draft import Draft
from agents.generation.source import closing, code_only
from tuner.experiment.model import Experiment

_NUMERIC = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+unroll[ \t(]+(\d+)\)?[ \t]*$", re.MULTILINE)
_FOR = re.compile(r"\bfor\s*\(")
_LOOP = re.compile(r"\b(?:for|while|do)\b")
_PRAGMA_BEFORE = re.compile(r"#[ \t]*pragma[^\n]*\n\s*\Z")
_FACTORS = (0, 2, 4, 8)


def unroll(draft: Draft, experiment: Experiment) -> Draft:
    """Turn numeric unroll pragmas into a parameter, and give innermost loops one."""
    kernel = draft.kernel
    if kernel is None:
        return draft.found("loops", "the kernel's definition was not recognised")
    name = draft.fresh("UNROLL", experiment)
    pragma = f"#if {name} > 0\n#pragma unroll {name}\n#endif"
    begin, end = kernel.body
    own = {int(match[1]) for match in _NUMERIC.finditer(draft.source, begin, end)}
    edits = [(*match.span(), pragma) for match in _NUMERIC.finditer(draft.source, begin, end)]
    edits += [(at, at, f"{pragma}\n") for at in _bare_loops(draft.source, begin, end)]
    if not edits:
        return draft.found("loops", "there is none, or each has a pragma already")
    source = draft.source
    for first, last, text in sorted(edits, reverse=True):
        source = source[:first] + text + source[last:]
    values = tuple(sorted({*_FACTORS, *own}))
    return (
        replace(draft, source=source)
        .with_parameter(name, values)
        .found(name, f"{len(edits)} loops may overlap their iterations; 0 lets the compiler decide")
    )


def _bare_loops(source: str, begin: int, end: int) -> list[int]:
    """The starts of lines that begin with an innermost ``for`` and follow no pragma."""
    code = code_only(source)
    places = []
    for match in _FOR.finditer(code, begin, end):
        line = source.rfind("\n", 0, match.start()) + 1
        before = code[: match.start()].rstrip()
        if source[line : match.start()].strip() or before[-1:] not in ("{", "}", ";"):
            continue
        if _PRAGMA_BEFORE.search(source[:line]):
            continue
        if _contains_loop(source, code, match.end() - 1):
            continue
        places.append(line)
    return places


def _contains_loop(source: str, code: str, bracket: int) -> bool:
    """Whether the loop holds another that is not unrolled by a pragma of its own."""
    head = closing(code, bracket)
    if head is None:
        return True
    body = re.compile(r"\s*").match(code, head + 1)
    start = body.end() if body else head + 1
    if code[start : start + 1] == "{":
        stop = closing(code, start)
    else:
        stop = code.find(";", start)
        opened = code.find("(", start)
        if re.compile(r"(?:for|while|do|if|switch)\b").match(code, start):
            inner = closing(code, opened) if opened >= 0 else None
            stop = code.find("}", inner) if inner is not None else None
    if stop is None or stop < 0:
        return True
    return any(
        not _PRAGMA_BEFORE.search(source[: inner.start()])
        for inner in _LOOP.finditer(code, start, stop)
    )
