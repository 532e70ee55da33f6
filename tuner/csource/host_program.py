"""An application's files as text to look names up in: functions, macros and constants.

Good enough to help, never certain: what is not understood is not found.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from tuner.csource.tree import Tree, inner_declarator, parse, without_comments

if TYPE_CHECKING:
    from tree_sitter import Node

_MACRO = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([^()\n]*)\))?[ \t]*([^\n]*)$", re.MULTILINE
)
_CONSTANT = re.compile(r"\b(?:const|constexpr)\b[^;(){}=]{0,200}?(?=\b\w+\s*(?:=[^=]|\{))")
_DECLARATOR = re.compile(r"[*&\s]*(\w+)\s*(?:=\s*(.+)|\{(.*)\})", re.DOTALL)
_WORD_END = re.compile(r"\w")
_OPENING = "([{<"
_BRACKETS, _ANGLES = re.compile(r"[][(){}]"), re.compile(r"[][(){}<]|(?<!-)>")
_NEAR = 100
"""Characters in which a bracket is mostly closed."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function's definition: its parameters, those of its template, and where its body lies.

    ``defaults`` has each parameter's default argument as written, or nothing.
    """

    file: str
    name: str
    parameters: tuple[str, ...]
    defaults: tuple[str, ...]
    template: tuple[str, ...]
    body: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro whose body begins at ``start``; ``parameters`` is ``None`` without parentheses."""

    file: str
    name: str
    parameters: tuple[str, ...] | None
    body: str
    start: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call, with its template arguments and arguments as written."""

    file: str
    place: int
    template: tuple[str, ...]
    arguments: tuple[str, ...]


class HostProgram:
    """The files that may launch a kernel, by name; the kernel's own first."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.code = {name: joined_lines(text) for name, text in files.items()}
        self._trees = {name: parse(text, "cuda") for name, text in files.items()}

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """The functions that the files define."""
        return tuple(
            function
            for file, tree in self._trees.items()
            for node in tree.find("function_definition")
            if (function := _function(file, tree, node))
        )

    @cached_property
    def macros(self) -> Mapping[str, Macro]:
        """The macros, as the first file to define each defines it last."""
        return {
            found[1]: Macro(
                file,
                found[1],
                None if found[2] is None else _names(found[2]),
                found[3].strip(),
                found.start(3),
            )
            for file, code in reversed(self.code.items())
            for found in _MACRO.finditer(code)
        }

    @cached_property
    def _constants(self) -> Mapping[str, Mapping[str, str]]:
        """By file and name, what the constants outside functions are initialised with."""
        return {
            file: {
                name: value
                for found in _CONSTANT.finditer(code)
                if self.enclosing(file, found.start()) is None
                for name, value in _declared(code, found.end())
            }
            for file, code in self.code.items()
        }

    @cached_property
    def _calls(self) -> dict[str, tuple[Call, ...]]:
        """The calls of each name that was looked up so far."""
        return {}

    def constant(self, name: str) -> str | None:
        """What a constant is initialised with, in the first file that has one of this name."""
        return next((file[name] for file in self._constants.values() if name in file), None)

    def definition(self, name: str) -> str | None:
        """What a macro without parameters or a constant stands for, in the first file with one."""
        macro = self.macros.get(name)
        for file, constants in self._constants.items():
            if macro and macro.file == file and macro.parameters is None and macro.body:
                return macro.body
            if name in constants:
                return constants[name]
        return None

    def seen_from(self, file: str) -> "HostProgram":
        """The same files with this one first, so that its own definitions count."""
        if next(iter(self.code)) == file:
            return self
        view = copy(self)
        view.code = {file: self.code[file], **self.code}
        for ordered in ("macros", "_constants", "_calls"):
            view.__dict__.pop(ordered, None)
        return view

    def enclosing(self, file: str, place: int) -> Function | None:
        """The innermost function around a place."""
        around = [f for f in self.functions if f.file == file and f.body[0] <= place < f.body[1]]
        return min(around, key=lambda f: f.body[1] - f.body[0], default=None)

    def macro_at(self, file: str, place: int) -> Macro | None:
        """The macro whose body holds a place."""
        for macro in self.macros.values():
            if macro.file == file and macro.start <= place < macro.start + len(macro.body):
                return macro
        return None

    def calls(self, name: str) -> tuple[Call, ...]:
        """The calls of a function or a macro."""
        if name not in self._calls:
            self._calls[name] = tuple(self._called(name))
        return self._calls[name]

    def _called(self, name: str) -> Iterator[Call]:
        pattern = re.compile(rf"(?<![\w.>])(?<!::)(?:::)?(?:\w+::)*{re.escape(name)}\b(?!\s*::)")
        for file, code in self.code.items():
            for found in pattern.finditer(code):
                if re.search(r"#[ \t]*define[ \t]+$", code[: found.start()][-40:]):
                    continue
                place, template = after_template(code, found.end())
                if place < len(code) and code[place] == "(":
                    yield Call(file, found.start(), template, arguments(code, place))

    def handed_on(self, name: str) -> Iterator[Call]:
        """Where a macro's name is an argument of another macro."""
        for file, code in self.code.items():
            for found in re.finditer(rf"[(,]\s*{re.escape(name)}\s*[,)]", code):
                yield Call(file, found.start() + 1, (), ())


def joined_lines(text: str) -> str:
    """The text without comments, continued lines joined, at equal length."""
    return re.sub(r"\\[ \t]*\n", lambda found: " " * len(found[0]), without_comments(text))


def after_template(code: str, place: int) -> tuple[int, tuple[str, ...]]:
    """Where the code goes on behind template arguments, and these; spaces are skipped."""
    place = _skip(code, place)
    if code[place : place + 1] == "<" and code[place : place + 2] != "<<":
        end = closing(code, place)
        if end is not None and not re.search(r"[;{}]", code[place:end]):
            return _skip(code, end + 1), split(code[place + 1 : end])
    return place, ()


def arguments(code: str, opening: int) -> tuple[str, ...]:
    """What stands between the bracket at ``opening`` and its partner, split at commas."""
    end = closing(code, opening)
    return split(code[opening + 1 : end]) if end is not None else ()


def called(call: "Node", tree: Tree) -> tuple[str, tuple[str, ...]] | None:
    """The name in a call, without namespaces and template arguments, and its arguments."""
    function, listed = (call.child_by_field_name(part) for part in ("function", "arguments"))
    if function is None or listed is None:
        return None
    name = re.sub(r"<.*", "", tree.text(function), flags=re.DOTALL).rpartition("::")[2].strip()
    return name, split(tree.text(listed)[1:-1])


def closing(code: str, opening: int) -> int | None:
    """The place of the bracket that closes the one at ``opening``.

    Angles count as brackets only if the first is one.
    """
    marks = _ANGLES if code[opening] == "<" else _BRACKETS
    near = _partners(code[opening : opening + _NEAR], marks).get(0)
    if near is not None or len(code) <= opening + _NEAR:
        return None if near is None else opening + near
    return _all_partners(code, marks).get(opening)


def _partners(code: str, marks: re.Pattern[str]) -> dict[int, int]:
    """The place of each bracket that is closed, with that of the one that closes it."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for at in marks.finditer(code):
        if at[0] in _OPENING:
            opened.append(at.start())
        elif opened:
            found[opened.pop()] = at.start()
    return found


_all_partners = lru_cache(maxsize=8)(_partners)
"""Of a long text, found once: else many brackets that nothing closes would take too long."""


def split(listed: str) -> tuple[str, ...]:
    """A list's elements; commas inside brackets, and inside template arguments, split nothing."""
    parts, depth, start = [], 0, 0
    for place, mark in enumerate(listed):
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        elif mark == "<" and _WORD_END.match(listed, place - 1) and closing(listed, place):
            depth += 1
        elif mark == ">" and depth and listed[place - 1] != "-":
            depth -= 1
        elif mark == "," and depth == 0:
            parts.append(listed[start:place])
            start = place + 1
    parts.append(listed[start:])
    return tuple(" ".join(part.split()) for part in parts if part.strip())


def bound(text: str, names: Sequence[str], values: Sequence[str]) -> str:
    """The text with each name replaced by its value."""
    given = dict(zip(names, values, strict=False))
    return re.sub(r"(?:##)?\b[A-Za-z_]\w*\b", lambda w: given.get(w[0].strip("#"), w[0]), text)


def _skip(code: str, place: int) -> int:
    while place < len(code) and code[place].isspace():
        place += 1
    return place


def _declared(code: str, place: int) -> Iterator[tuple[str, str]]:
    """The names that a declaration's declarators initialise, with the initialisers."""
    end, depth = place, 0
    while end < len(code) and depth >= 0 and not (code[end] == ";" and depth == 0):
        depth += (code[end] in "([{") - (code[end] in ")]}")
        end += 1
    if depth == 0:  # else a parameter with a default
        for part in split(code[place:end]):
            if found := _DECLARATOR.fullmatch(part):
                yield found[1], (found[2] or found[3] or "").strip()


def _names(listed: str) -> tuple[str, ...]:
    names = (re.findall(r"\w+|\.\.\.", part) for part in listed.split(","))
    return tuple(words[-1] for words in names if words)


def _function(file: str, tree: Tree, node: "Node") -> Function | None:
    declared, body = inner_declarator(node, "function_declarator"), node.child_by_field_name("body")
    if declared is None or body is None:
        return None
    name = declared.child_by_field_name("declarator")
    listed = declared.child_by_field_name("parameters")
    if name is None or listed is None:
        return None
    head = node.parent
    template = None
    if head is not None and head.type == "template_declaration":
        template = head.child_by_field_name("parameters")
    return Function(
        file,
        tree.text(name).rpartition("::")[2],
        _parameters(tree.text(listed)[1:-1]),
        tuple(part.partition("=")[2].strip() for part in split(tree.text(listed)[1:-1])),
        _parameters(tree.text(template)[1:-1]) if template else (),
        (body.start_byte, body.end_byte),
    )


def _parameters(listed: str) -> tuple[str, ...]:
    """The names that a list of parameters declares."""
    found = []
    for part in split(listed):
        words = re.findall(r"[A-Za-z_]\w*", re.sub(r"\[.*|=.*", "", part))
        found.append(words[-1] if words else "")
    return tuple(found)
