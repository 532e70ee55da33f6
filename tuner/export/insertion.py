"""Puts the launch of tuned kernels into an application's CUDA source.

Three kinds of regions (:mod:`tuner.export.regions`) are added: an ``#include`` of the file of
:mod:`tuner.export.tuned_file`; after the kernel a function that launches it, tuned or not; and a
call of that function in place of each launch that can be replaced safely. Of the others the notes
say where they are, why they stay, and what to write.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.csource.host_program import joined_lines, split
from tuner.csource.kernels import KernelSource
from tuner.csource.launch_sites import LaunchSite, launch_sites, obstacle, statement
from tuner.csource.tree import without_comments
from tuner.export.original import BLOCK, CONFIGURATION, GRID, SHARED, STREAM
from tuner.export.regions import OFF, region
from tuner.export.tuned_file import TunedFile

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)", re.MULTILINE)
_TEMPLATE = re.compile(r"template\s*<.*>", re.DOTALL)
_OTHER_LAUNCH = r"\bcu(?:da)?Launch\w*\s*\([^;]*?\b{}\b"


@dataclass(frozen=True, slots=True)
class Insertion:
    """The source with its regions, and ``notes`` on launches that were not replaced."""

    text: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    """Lines that are added before a line, or from it on in place of ``original`` lines."""

    line: int
    added: tuple[str, ...]
    original: int = 0


def insert(
    text: str,
    file: str,
    kernel: KernelSource,
    tuned: TunedFile,
    include: str,
    run: str,
) -> Insertion:
    """The source with the launch of tuned kernels.

    Args:
        text: the source without regions of this kernel; lines may end in CRLF.
        file: its name, for messages.
        kernel: the kernel in it, of :func:`tuner.export.measured.measured_kernel`.
        tuned: the file of tuned kernels.
        include: how the source includes that file.
        run: the name of the run, for people.
    """
    return _Inserter(text, file, kernel, tuned).insert(include, run)


class _Inserter:
    def __init__(
        self,
        text: str,
        file: str,
        kernel: KernelSource,
        tuned: TunedFile,
    ) -> None:
        self.mark = text[:1] if text.startswith("\ufeff") else ""
        self.lines = text.removeprefix("\ufeff").split("\n")
        self.code = kernel.source
        self.visible = without_comments(self.code)
        self.file, self.kernel, self.tuned = file, kernel, tuned
        words = set(re.findall(r"\w+", self.code))
        self.function = f"{kernel.name}_tuned"
        while self.function in words:
            self.function += "_"

    def insert(self, include: str, run: str) -> Insertion:
        name = self.kernel.name
        written = launch_sites(joined_lines(self.code), name)
        sites = [(site, self._obstacle(site)) for site in written]
        plain = [site for site, why in sites if not why]
        edits = [
            _Edit(line=self._include_line(), added=(f'#include "{include}"',)),
            _Edit(
                line=self._line(self.kernel.body[1]) + 1, added=tuple(self._wrapper(include, run))
            ),
            *self._replacements(plain),
        ]
        notes = [
            f"{self.file}:{self._line(site.name[0]) + 1}: this launch of {name} stays: {why}. To "
            f"replace it by hand, write {self._call_by_hand(site)}"
            for site, why in sites
            if why
        ]
        notes += self._other_launches()
        if not sites:
            notes.append(
                f"{self.file}: no launch {name}<<<…>>> was found; where it is, call "
                f"{self._call_by_hand(None)}"
            )
        return Insertion(self.mark + self._edited(edits), tuple(notes))

    def _edited(self, edits: Sequence[_Edit]) -> str:
        lines = list(self.lines)
        end = "\r" if len(lines) > 1 and lines[0].endswith("\r") else ""
        for edit in sorted(edits, key=lambda one: (one.line, one.original), reverse=True):
            original = [line.removesuffix("\r") for line in lines[edit.line :][: edit.original]]
            added = [line + end for line in region(self.kernel.name, edit.added, original)]
            if edit.line == len(lines):  # the last line has no end
                lines[-1] += end
                added[-1] = added[-1].removesuffix("\r")
            lines[edit.line : edit.line + edit.original] = added
        return "\n".join(lines)

    def _line(self, place: int) -> int:
        """The number of the line of a place, from 0."""
        return self.code.count("\n", 0, place)

    def _include_line(self) -> int:
        """The line before which the tuned file is included: at global scope, under no condition.

        After the last ``#include <…>`` before the first declaration whose conditions hold at the
        kernel too, so that the source's own functions are not yet declared; else after the last
        ``#include "…"`` there; else before the outermost declaration around the kernel.
        """
        root = self.kernel.tree.root
        outer = self.kernel.block
        while outer is not None and outer.parent is not None and outer.parent.parent is not None:
            outer = outer.parent
        first = root.named_children[0].start_byte if root else 0
        conditions: list[int] = []
        found: dict[str, list[tuple[int, tuple[int, ...]]]] = {"<": [], '"': []}
        for match in _DIRECTIVE.finditer(self.visible, 0, self.kernel.head[0]):
            word = match[1]
            if word.startswith("if"):
                conditions.append(match.start())
            elif word.startswith("el") and conditions:
                conditions[-1] = match.start()
            elif word == "endif" and conditions:
                conditions.pop()
            elif word == "include" and match.start() < first:
                mark = self.visible[match.end() :].lstrip(" \t")[:1]
                place = (self._line(match.start()) + 1, tuple(conditions))
                found.setdefault(mark, []).append(place)
        around = tuple(conditions)
        for mark in '<"':
            if lines := [line for line, held in found[mark] if around[: len(held)] == held]:
                return lines[-1]
        return self._line(min(self.kernel.head[0], outer.start_byte if outer else 0))

    def _wrapper(self, include: str, run: str) -> Iterator[str]:
        """The function that launches the kernel, tuned or not."""
        kernel, tuned = self.kernel, self.tuned
        before = kernel.code(kernel.head).partition("__global__")[0]
        template = _TEMPLATE.search(before)
        parameters = " ".join(kernel.code(kernel.parameters).split())
        parameters = re.sub(r"\b__grid_constant__\s*", "", parameters)
        symbols = self._symbols()
        first = "".join(f"long long kw_{name}, " for name in symbols)
        given = "".join(f"kw_{name}, " for name in symbols)
        names = ", ".join(one.name for one in kernel.signature.parameters)
        of = [
            name + ("..." if kind.endswith("...") else "")
            for name, kind in kernel.signature.template
        ]
        instance = f"{kernel.name}<{', '.join(of)}>" if of else kernel.name
        yield f"// Launches {kernel.name}, or a kernel of {include}, tuned by {run}."
        if template:
            yield " ".join(template[0].split())
        head = f"static inline void {self.function}({first}{CONFIGURATION}, {parameters})"
        yield from _wrapped(head, "    ")
        yield "{"
        structs = [one.kind == "struct" for one in tuned.original.arguments]
        passed = ", ".join(
            f"&{one.name}" if struct else one.name
            for one, struct in zip(kernel.signature.parameters, structs, strict=False)
        )
        launch = (
            f"::{tuned.namespace}::launch({given}{GRID}, {BLOCK}, {SHARED}, {STREAM}, {passed})"
        )
        yield from _wrapped(f"    if (!{launch})", "        ")
        original = f"{instance}<<<{GRID}, {BLOCK}, {SHARED}, {STREAM}>>>({names});"
        yield from _wrapped(f"        {original}", "            ")
        yield "}"

    def _symbols(self) -> tuple[str, ...]:
        return (*self.tuned.original.entry_symbols, *self.tuned.original.missing)

    def _obstacle(self, site: LaunchSite) -> str:
        """Why a launch cannot be replaced; empty if it can."""
        if why := obstacle(site, self.kernel.tree):
            return why
        if self.tuned.original.missing:
            return f"it does not say the size {' and '.join(self.tuned.original.missing)}"
        if self._line(site.name[0]) <= self._line(self.kernel.body[1]):
            return "it stands before the end of the kernel's definition"
        if self._instance(site.template) is None:
            entry = self.tuned.original.entry
            written = f"<{', '.join(site.template)}>" if site.template else "no template arguments"
            return f"it has {written}, and the run measured {entry}"
        if not 2 <= len(site.configuration) <= 4:
            return "its configuration cannot be read"
        if len(site.arguments) != len(self.kernel.signature.parameters):
            return f"it has {len(site.arguments)} arguments"
        first, last = map(self._line, statement(site, self.kernel.tree))
        written = "\n".join(self.visible.split("\n")[first : last + 1])
        if _DIRECTIVE.search(written) or OFF in written:
            return "there are preprocessor directives in it"
        return ""

    def _instance(self, template: tuple[str, ...]) -> Mapping[str, str] | None:
        """C++ for the symbols in the entry, given a launch's template arguments."""
        listed = re.search(r"<(.*)>", self.tuned.original.entry, re.DOTALL)
        wanted = split(listed[1]) if listed else ()
        if len(wanted) != len(template):
            return None
        found: dict[str, str] = {}
        for pattern, given in zip(wanted, template, strict=True):
            symbol = re.fullmatch(r"\{(\w+)\}", pattern)
            value = self.tuned.constants.get((symbol[1], _plain(given))) if symbol else None
            if symbol and value is not None and found.get(symbol[1], value) == value:
                found[symbol[1]] = value
            elif symbol or _plain(pattern) != _plain(given):
                return None
        return found

    def _replacements(self, sites: Sequence[LaunchSite]) -> Iterator[_Edit]:
        """A region for each group of launches that share lines."""
        groups: list[tuple[int, int, list[LaunchSite]]] = []
        for site in sites:
            first, last = map(self._line, statement(site, self.kernel.tree))
            if groups and first <= groups[-1][1]:
                start, end, members = groups.pop()
                groups.append((start, max(end, last), [*members, site]))
            else:
                groups.append((first, last, [site]))
        starts = [0]
        for line in self.code.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        for first, last, members in groups:
            text, begin = self.code[starts[first] : starts[last + 1] - 1], starts[first]
            for site in reversed(members):
                for (start, end), new in self._changes(site):
                    text = text[: start - begin] + new + text[end - begin :]
            lines = tuple(line.rstrip(" ") for line in text.split("\n"))
            yield _Edit(line=first, added=lines, original=last + 1 - first)

    def _changes(self, site: LaunchSite) -> Iterator[tuple[tuple[int, int], str]]:
        """What becomes of the parts of a launch, the last first."""
        instance = self._instance(site.template) or {}
        first = "".join(f"{instance[name]}, " for name in self.tuned.original.entry_symbols)
        filled = ", 0" * (4 - len(site.configuration))
        yield site.closing, f"{filled}, " if site.arguments else filled
        yield site.opening, f"({first}"
        yield site.name, self._callee(self.code[slice(*site.name)])

    def _callee(self, written: str) -> str:
        namespace = self.kernel.signature.namespace
        if "::" not in written and not namespace:
            return self.function
        return f"::{namespace}{self.function}"

    def _call_by_hand(self, site: LaunchSite | None) -> str:
        parameters = [one.name for one in self.kernel.signature.parameters]
        configuration = ["grid", "block", "shared_bytes", "stream"]
        template: Sequence[str] = [name for name, _ in self.kernel.signature.template]
        if site is not None and site.configuration:
            given = [*site.configuration, "0", "0"]
            configuration, parameters = given[:4], list(site.arguments)
            template = site.template
        of = f"<{', '.join(template)}>" if template else ""
        symbols = [f"/* {name} */" for name in self._symbols()]
        listed = ", ".join([*symbols, *configuration, *parameters])
        return f"{self._callee('')}{of}({' '.join(listed.split())});"

    def _other_launches(self) -> Iterator[str]:
        """Launches of the kernel through functions of the runtime."""
        for match in re.finditer(_OTHER_LAUNCH.format(re.escape(self.kernel.name)), self.visible):
            yield (
                f"{self.file}:{self._line(match.start()) + 1}: this launch of {self.kernel.name} "
                f"stays: it is made by a call of the runtime. To replace it by hand, write "
                f"{self._call_by_hand(None)}"
            )


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        100,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def _plain(argument: str) -> str:
    """A template argument in one spelling."""
    return "".join(argument.split()).removeprefix("::")
