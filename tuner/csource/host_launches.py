"""Where the host launches a kernel: configuration, arguments, and the scope that they stand in.

Finds ``kernel<<<…>>>(…)``, ``cudaLaunchKernel`` and ``cudaLaunchKernelEx``, through variables that
hold the kernel and through macros.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tuner.csource.arithmetic import Polynomial
from tuner.csource.host_program import (
    HostProgram,
    Macro,
    after_template,
    arguments,
    bound,
    closing,
    split,
)
from tuner.csource.host_values import Scope

_RUNTIME = re.compile(r"\bcudaLaunch(?:Cooperative)?Kernel\w*\s*\([^;]*$")
_MAX_MACROS = 3
"""Macros that call each other between a function and a launch."""


@dataclass(frozen=True, slots=True)
class HostLaunch:
    """One launch, as written. ``line`` counts from 1; absent parts are empty."""

    file: str
    line: int
    template: tuple[str, ...]
    grid: str
    block: str
    shared: str
    arguments: tuple[str, ...]
    scope: Scope


@dataclass(frozen=True, slots=True)
class _Found:
    """A launch before the macros around it are expanded."""

    start: int
    template: tuple[str, ...]
    grid: str
    block: str
    shared: str
    arguments: tuple[str, ...]


def host_launches(kernel: str, program: HostProgram) -> Iterator[HostLaunch]:
    """The launches of the kernel of this name, in the files' order."""
    for file, code in program.code.items():
        for found in _launches(kernel, program, file):
            line = code.count("\n", 0, found.start) + 1
            for site, scope in _scopes(program, file, found):
                yield HostLaunch(
                    file,
                    line,
                    site.template,
                    site.grid,
                    site.block,
                    site.shared,
                    site.arguments,
                    replace(scope, known={**scope.known, **_cases(scope.local)}),
                )


def _launches(kernel: str, program: HostProgram, file: str) -> Iterator[_Found]:
    code = program.code[file]
    named = re.compile(rf"(?<![\w])(?:[\w]+::)*{re.escape(kernel)}\b")
    for match in named.finditer(code):
        place, template = after_template(code, match.end())
        if code[place : place + 3] == "<<<":
            yield from _chevrons(code, match.start(), place, template)
            continue
        before = code[: match.start()][-120:]
        held = re.search(r"\b(\w+)\s*=\s*&?\s*$", before)
        if held and code[place : place + 1] in (";", ","):
            function = program.enclosing(file, place)
            end = function.body[1] if function else len(code)
            yield from _held(held[1], code, (place, end), template)
        elif _RUNTIME.search(before):
            yield from _called(code, match.start(), template)


def _chevrons(code: str, start: int, place: int, template: tuple[str, ...]) -> Iterator[_Found]:
    end = code.find(">>>", place)
    opening = re.compile(r"\s*\(").match(code, end + 3) if end > 0 else None
    if opening:
        grid, block, shared = (*split(code[place + 3 : end]), "", "", "")[:3]
        given = arguments(code, opening.end() - 1)
        yield _Found(start, template, grid, block, shared, given)


def _held(
    name: str, code: str, place: tuple[int, int], template: tuple[str, ...]
) -> Iterator[_Found]:
    """Launches, between two places, through a variable that was set to the kernel."""
    for match in re.compile(rf"\b{re.escape(name)}\b").finditer(code, *place):
        chevrons = re.compile(r"\s*<<<").match(code, match.end())
        if chevrons:
            yield from _chevrons(code, match.start(), chevrons.end() - 3, template)
        elif _RUNTIME.search(code[: match.start()][-120:]):
            yield from _called(code, match.start(), template)


def _called(code: str, start: int, template: tuple[str, ...]) -> Iterator[_Found]:
    """A launch by a function of the runtime that ``start`` lies among the arguments of."""
    call = re.compile(r"cudaLaunch\w*\s*\(").search(code, code.rfind("cudaLaunch", 0, start))
    if not call:
        return
    given = arguments(code, call.end() - 1)
    if call[0].startswith("cudaLaunchKernelEx") and len(given) >= 2:
        name = given[0].lstrip("&")
        fields = dict(
            re.findall(
                rf"\b{re.escape(name)}\s*\.\s*(gridDim|blockDim|dynamicSmemBytes)\s*=\s*([^;]+);",
                code[:start][-4000:],
            )
        )
        if fields:
            yield _Found(
                start,
                template,
                fields.get("gridDim", ""),
                fields.get("blockDim", ""),
                fields.get("dynamicSmemBytes", ""),
                given[2:],
            )
    elif len(given) >= 4:
        listed = re.findall(
            rf"\b{re.escape(given[3])}\s*\[\s*\]\s*=\s*\{{([^{{}}]*)\}}", code[:start][-4000:]
        )
        passed = split(listed[-1]) if listed else ()
        cleaned = tuple(re.sub(r"^(?:\(void\s*\*\)\s*)?&", "", one) for one in passed)
        yield _Found(start, template, given[1], given[2], (*given, "")[4], cleaned)


def _scopes(program: HostProgram, file: str, found: _Found) -> Iterator[tuple[_Found, Scope]]:
    """The launch in each function that it stands in, itself or through macros."""
    function = program.enclosing(file, found.start)
    code = program.code[file]
    if function is not None:
        yield found, Scope(program.seen_from(file), function, code[function.body[0] : found.start])
    elif macro := program.macro_at(file, found.start):
        before = macro.body[: found.start - macro.start]
        yield from _expansions(program, macro, found, before, _MAX_MACROS)


def _expansions(
    program: HostProgram, macro: Macro, found: _Found, before: str, depth: int
) -> Iterator[tuple[_Found, Scope]]:
    for call in (*program.calls(macro.name), *program.handed_on(macro.name)):
        file, place, given, names = call.file, call.place, call.arguments, macro.parameters or ()

        def fill(text: str, names: tuple[str, ...] = names, given: tuple[str, ...] = given) -> str:
            return bound(text, names, given)

        there = _Found(
            place,
            tuple(map(fill, found.template)),
            fill(found.grid),
            fill(found.block),
            fill(found.shared),
            tuple(map(fill, found.arguments)),
        )
        function = program.enclosing(file, place)
        outer = program.macro_at(file, place)
        if function is not None:
            code = program.code[file][function.body[0] : place]
            yield there, Scope(program.seen_from(file), function, f"{code}\n{fill(before)}")
        elif outer is not None and depth:
            inner = outer.body[: place - outer.start] + fill(before)
            yield from _expansions(program, outer, there, inner, depth - 1)


def _cases(local: str) -> Mapping[str, Polynomial]:
    """The names that enclosing ``switch`` and ``if`` statements fix, with their values."""
    known = {}
    for found in re.finditer(r"\bswitch\s*\(\s*(\w+)\s*\)\s*\{", local):
        if closing(local, found.end() - 1) is None:  # the launch stands inside it
            values = re.findall(r"\bcase\s+(\d+)\s*:", local[found.end() :])
            if values:
                known[found[1]] = Polynomial.number(int(values[-1]))
    for found in re.finditer(r"\bif\s*\(\s*(\w+)\s*==\s*(\d+)\s*\)\s*\{", local):
        if closing(local, found.end() - 1) is None:
            known[found[1]] = Polynomial.number(int(found[2]))
    return known
