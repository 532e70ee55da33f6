"""Where the host launches a kernel: configuration, arguments, and the scope that they stand in.

Finds ``kernel<<<…>>>(…)``, ``cudaLaunchKernel`` and ``cudaLaunchKernelEx``, through variables that
hold the kernel and through macros.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tuner.csource.arithmetic import Polynomial
from tuner.csource.host_program import (
    Function,
    HostProgram,
    Macro,
    after_template,
    arguments,
    bound,
    closing,
    split,
)
from tuner.csource.host_values import Scope
from tuner.csource.launch_sites import LaunchSite, launch_at, naming

_RUNTIME = re.compile(r"\bcudaLaunch(?:Cooperative)?Kernel\w*\s*\([^;]*$")
_BEFORE = 4000
"""Characters before a launch in which what it passes is looked for."""
_MAX_MACROS = 3
"""Macros that call each other between a function and a launch."""


@dataclass(frozen=True)
class HostLaunch:
    """One launch, written at ``start`` of ``file``; absent parts are empty.

    It stands in ``function`` at ``place``, a file and a place in it: there itself, or through
    macros, whose expanded code goes on with ``before`` the launch.
    """

    program: HostProgram
    file: str
    start: int
    template: tuple[str, ...]
    grid: str
    block: str
    shared: str
    arguments: tuple[str, ...]
    place: tuple[str, int]
    function: Function | None = None
    before: str = ""

    @property
    def line(self) -> int:
        """Where it is written, from 1."""
        return self.program.code[self.file].count("\n", 0, self.start) + 1

    @cached_property
    def scope(self) -> Scope:
        """What its expressions can name."""
        assert self.function is not None
        file, place = self.place
        local = self.program.code[file][self.function.body[0] : place]
        local = f"{local}\n{self.before}" if self.before else local
        return Scope(self.program.seen_from(file), self.function, local, known=_cases(local))


def host_launches(kernel: str, program: HostProgram) -> Iterator[HostLaunch]:
    """The launches of the kernel of this name, in the files' order."""
    for file in program.code:
        for found in _launches(kernel, program, file):
            yield from _placed(found)


def _launches(kernel: str, program: HostProgram, file: str) -> Iterator[HostLaunch]:
    """The launches as written, in no function yet."""
    code = program.code[file]
    for match in naming(kernel).finditer(code):
        if site := launch_at(code, match.span()):
            yield _written(program, file, site, site.template)
            continue
        place, template = after_template(code, match.end())
        before = code[max(0, match.start() - 120) : match.start()]
        held = re.search(r"\b(\w+)\s*=\s*&?\s*$", before)
        if held and code[place : place + 1] in (";", ","):
            function = program.enclosing(file, place)
            end = function.body[1] if function else len(code)
            yield from _held(held[1], program, file, (place, end), template)
        elif _RUNTIME.search(before):
            yield from _called(program, file, match.start(), template)


def _written(
    program: HostProgram, file: str, site: LaunchSite, template: tuple[str, ...]
) -> HostLaunch:
    start = site.name[0]
    grid, block, shared = (*site.configuration, "", "", "")[:3]
    place = (file, start)
    return HostLaunch(program, file, start, template, grid, block, shared, site.arguments, place)


def _held(
    name: str, program: HostProgram, file: str, place: tuple[int, int], template: tuple[str, ...]
) -> Iterator[HostLaunch]:
    """Launches, between two places, through a variable that was set to the kernel."""
    code = program.code[file]
    for match in re.compile(rf"\b{re.escape(name)}\b").finditer(code, *place):
        if site := launch_at(code, match.span()):
            yield _written(program, file, site, template)
        elif _RUNTIME.search(code[max(0, match.start() - 120) : match.start()]):
            yield from _called(program, file, match.start(), template)


def _called(
    program: HostProgram, file: str, start: int, template: tuple[str, ...]
) -> Iterator[HostLaunch]:
    """A launch by a function of the runtime that ``start`` lies among the arguments of."""
    code = program.code[file]
    call = re.compile(r"cudaLaunch\w*\s*\(").search(code, code.rfind("cudaLaunch", 0, start))
    if not call:
        return
    given = arguments(code, call.end() - 1)
    before = code[max(0, start - _BEFORE) : start]
    if call[0].startswith("cudaLaunchKernelEx") and len(given) >= 2:
        name = re.escape(given[0].lstrip("&"))
        set_ = rf"\b{name}\s*\.\s*(gridDim|blockDim|dynamicSmemBytes)\s*=\s*([^;]+);"
        fields = dict(re.findall(set_, before))
        if not fields:
            return
        named = (fields.get(field, "") for field in ("gridDim", "blockDim", "dynamicSmemBytes"))
        grid, block, shared = named
        passed = given[2:]
    elif len(given) >= 4:
        listed = re.findall(rf"\b{re.escape(given[3])}\s*\[\s*\]\s*=\s*\{{([^{{}}]*)\}}", before)
        grid, block, shared = given[1], given[2], (*given, "")[4]
        passed = tuple(
            re.sub(r"^(?:\(void\s*\*\)\s*)?&", "", one)
            for one in (split(listed[-1]) if listed else ())
        )
    else:
        return
    yield HostLaunch(program, file, start, template, grid, block, shared, passed, (file, start))


def _placed(found: HostLaunch) -> Iterator[HostLaunch]:
    """The launch in each function that it stands in, itself or through macros."""
    function = found.program.enclosing(found.file, found.start)
    if function is not None:
        yield replace(found, function=function)
    elif macro := found.program.macro_at(found.file, found.start):
        yield from _expansions(macro, found, macro.body[: found.start - macro.start], _MAX_MACROS)


def _expansions(macro: Macro, found: HostLaunch, before: str, depth: int) -> Iterator[HostLaunch]:
    program = found.program
    for call in (*program.calls(macro.name), *program.handed_on(macro.name)):
        file, place, given, names = call.file, call.place, call.arguments, macro.parameters or ()

        def fill(text: str, names: tuple[str, ...] = names, given: tuple[str, ...] = given) -> str:
            return bound(text, names, given)

        there = replace(
            found,
            template=tuple(map(fill, found.template)),
            grid=fill(found.grid),
            block=fill(found.block),
            shared=fill(found.shared),
            arguments=tuple(map(fill, found.arguments)),
            place=(file, place),
            function=program.enclosing(file, place),
            before=fill(before),
        )
        outer = program.macro_at(file, place)
        if there.function is not None:
            yield there
        elif outer is not None and depth:
            inner = outer.body[: place - outer.start] + there.before
            yield from _expansions(outer, there, inner, depth - 1)


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
