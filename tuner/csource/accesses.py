"""How a kernel reads and writes its arrays, and how far: guesses from its code.

Pointers are followed through local variables and into functions of the same files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from tuner.csource.arithmetic import Polynomial
from tuner.csource.host_program import HostProgram
from tuner.csource.host_values import Scope
from tuner.csource.index_bounds import ONE, IndexBounds
from tuner.csource.tree import Tree, parse

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH = 4
"""Functions that are followed in a row."""

MAX_NAME = 1000
"""Characters of the name in a call, with template arguments; longer ones are not understood."""

MAX_CALLS = 50
"""Calls that are followed in all."""

Kind = Literal["read", "write", "update"]
_LOADS = re.compile(r"_*(?:ld|load)\w*|VLLM_LDG", re.IGNORECASE)
_STORES = re.compile(r"_*(?:st|store)\w*", re.IGNORECASE)
_CASTS = re.compile(r"(?:reinterpret|static|const)_cast")
_AROUND = ("field_expression", "parenthesized_expression")


@dataclass(frozen=True, slots=True)
class Access:
    """One access to an array; ``extent`` is a bound of the elements that it reaches."""

    array: str
    kind: Kind
    extent: Polynomial | None


@dataclass(frozen=True, slots=True)
class Launched:
    """The kernel as launched: extents of grid and block, values of names, types of names.

    ``elements`` bounds what an index array ``name[]`` holds; ``lanes`` has how many elements the
    type of an array's pointer has.
    """

    grid: tuple[Polynomial, ...]
    block: tuple[Polynomial, ...]
    known: Mapping[str, Polynomial] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    elements: Mapping[str, Polynomial] = field(default_factory=dict)
    lanes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Pointer:
    """A pointer into an array: how far it is moved, and how many elements one of its own holds."""

    array: str
    offset: Polynomial | None
    scale: int


def accesses(
    program: HostProgram, body: str, arrays: Mapping[str, int], launched: Launched
) -> tuple[Access, ...]:
    """The accesses to arrays in a kernel's body, in the order in which they happen.

    Args:
        program: the files, in which called functions are looked up.
        body: the code between the kernel's braces.
        arrays: the bytes of one element of each array, by name.
        launched: what the launch fixes.
    """
    known, bounds = dict(launched.known), dict(launched.elements)
    for number, axis in enumerate("xyz"):
        for of, axes in (("thread", launched.block), ("block", launched.grid)):
            extent = axes[number] if number < len(axes) else ONE
            known[f"{'block' if of == 'thread' else 'grid'}Dim.{axis}"] = extent
            bounds[f"{of}Idx.{axis}"] = extent
    scope = Scope(program, None, body, known, launched.types, opaque=False)
    pointers = {name: _Pointer(name, Polynomial(), launched.lanes.get(name, 1)) for name in arrays}
    calls = iter(range(MAX_CALLS))
    return tuple(_Reader(scope, bounds, arrays, pointers, MAX_DEPTH, calls).accesses())


class _Reader:
    """Reads one function's body; all readers of one kernel share its ``calls``."""

    def __init__(
        self,
        scope: Scope,
        bounds: Mapping[str, Polynomial],
        arrays: Mapping[str, int],
        pointers: Mapping[str, _Pointer],
        depth: int,
        calls: Iterator[int],
    ) -> None:
        self._scope, self._known, self._arrays = scope, bounds, arrays
        self._bounds = IndexBounds(scope, bounds)
        self._pointers, self._depth, self._calls = dict(pointers), depth, calls
        self._tree = parse(f"void _() {{{scope.local}\n}}", "cuda")

    def accesses(self) -> Iterator[Access]:
        found: list[tuple[int, Access]] = []
        for node in self._tree.find(
            "subscript_expression",
            "pointer_expression",
            "call_expression",
            "init_declarator",
            "assignment_expression",
        ):
            new: Iterator[Access] = iter(())
            match node.type:
                case "subscript_expression":
                    new = self._subscript(node)
                case "pointer_expression":
                    new = self._dereferenced(node)
                case "call_expression":
                    new = self._call(node)
                case _:
                    self._follow(node)
            found += [(_when(node), access) for access in new]
        yield from (access for _, access in sorted(found, key=lambda one: one[0]))

    def _follow(self, node: "Node") -> None:
        """Note a pointer that is set or moved here."""
        fresh = node.type == "init_declarator"
        name = node.child_by_field_name("declarator" if fresh else "left")
        value = node.child_by_field_name("value" if fresh else "right")
        if name is None or value is None or re.search(r"[\[(.]", self._tree.text(name)):
            return
        *_, target = re.findall(r"[A-Za-z_]\w*", self._tree.text(name)) or [""]
        operator = node.child_by_field_name("operator")
        sign = self._tree.text(operator) if operator else "="
        if sign == "+=" and (old := self._pointers.get(target)):
            step = self._bounds.of(value, self._tree)
            self._pointers[target] = replace(old, offset=_moved(old, step))
        elif sign == "=" and (fresh or name.type == "identifier"):
            pointer = self._pointer(value)
            if pointer:
                self._pointers[target] = pointer

    def _pointer(self, node: "Node | None") -> _Pointer | None:
        """Where an expression points to, if into an array."""
        if node is None:
            return None
        text, part = self._tree.text(node), node.child_by_field_name
        match node.type:
            case "identifier":
                return self._pointers.get(text)
            case "parenthesized_expression" if node.named_children:
                return self._pointer(node.named_children[0])
            case "cast_expression":
                type_ = part("type")
                return self._cast(self._pointer(part("value")), type_)
            case "call_expression" if _CASTS.match(text):
                listed, function = part("arguments"), part("function")
                types = function.child_by_field_name("arguments") if function else None
                if listed and listed.named_children:
                    return self._cast(self._pointer(listed.named_children[0]), types)
            case "pointer_expression" if text.startswith("&"):
                inner = part("argument")
                if inner is not None and inner.type == "subscript_expression":
                    array, index = _parts(inner)
                    return self._shifted(self._pointer(array), index)
            case "binary_expression":
                operator, left, right = part("operator"), part("left"), part("right")
                sign = self._tree.text(operator) if operator else ""
                if sign == "-":
                    return self._pointer(left)
                if sign == "+":
                    return self._shifted(self._pointer(left), right) or self._shifted(
                        self._pointer(right), left
                    )
        return None

    def _shifted(self, pointer: _Pointer | None, by: "Node | None") -> _Pointer | None:
        if pointer is None:
            return None
        step = self._bounds.of(by, self._tree) if by else None
        return replace(pointer, offset=_moved(pointer, step))

    def _cast(self, pointer: _Pointer | None, type_: "Node | None") -> _Pointer | None:
        text = self._tree.text(type_) if type_ else ""
        name = re.sub(r"\b(?:const|volatile|struct|__restrict__)\b|[*&<>\s]", "", text)
        own = self._arrays.get(pointer.array) if pointer else None
        size = self._scope.size(name) if name else None
        if pointer is None or size is None or not own:
            return pointer
        return replace(pointer, scale=max(1, size // own))

    def _subscript(self, node: "Node") -> Iterator[Access]:
        array, index = _parts(node)
        pointer = self._pointer(array)
        above = node.parent
        if pointer is not None and not (above and self._tree.text(above).startswith("&")):
            yield self._access(pointer, self._bounds.of(index, self._tree) if index else None, node)

    def _dereferenced(self, node: "Node") -> Iterator[Access]:
        pointer = self._pointer(node.child_by_field_name("argument"))
        if pointer is not None and self._tree.text(node).startswith("*"):
            yield self._access(pointer, ONE, node)

    def _access(self, pointer: _Pointer, index: Polynomial | None, node: "Node") -> Access:
        extent = None
        if index is not None and pointer.offset is not None:
            extent = pointer.offset + index * Polynomial.number(pointer.scale)
        return Access(pointer.array, _kind(node, self._tree), extent)

    def _call(self, node: "Node") -> Iterator[Access]:
        function, listed = (node.child_by_field_name(part) for part in ("function", "arguments"))
        if function is None or listed is None:
            return
        given = [(one, self._pointer(one)) for one in listed.named_children]
        text = self._tree.text(function)
        if len(text) > MAX_NAME or not any(pointer for _, pointer in given):
            return
        name = re.split(r"::|\.|->", text.partition("<")[0])[-1].strip()
        if _CASTS.match(name):
            return
        kind: Kind = "read"
        if name.startswith("atomic"):
            kind = "update"
        elif _STORES.fullmatch(name):
            kind = "write"
        elif not _LOADS.fullmatch(name):
            yield from self._called(name, given)
            return
        for _, pointer in given:
            if pointer:
                yield replace(self._access(pointer, ONE, node), kind=kind)

    def _called(
        self, name: str, given: "Sequence[tuple[Node, _Pointer | None]]"
    ) -> Iterator[Access]:
        """The accesses of a function of the files that pointers are handed to."""
        program = self._scope.program
        fitting = (
            function
            for function in program.functions
            if function.name == name and len(function.parameters) >= len(given)
        )
        function = next(fitting, None) if self._depth else None
        if function is None or next(self._calls, None) is None:
            return
        pointers, bounds = {}, dict(self._known)
        known = {key: value for key, value in self._scope.known.items() if "Dim." in key}
        for parameter, (node, pointer) in zip(function.parameters, given, strict=False):
            value = None if pointer else self._scope.value(self._tree.text(node))
            extent = None if pointer else self._bounds.of(node, self._tree)
            if pointer:
                pointers[parameter] = pointer
            elif value is not None:
                known[parameter] = value
            elif extent is not None:
                bounds[parameter] = extent
        body = program.code[function.file][function.body[0] + 1 : function.body[1] - 1]
        scope = replace(self._scope, local=body, known=known)
        depth, calls = self._depth - 1, self._calls
        yield from _Reader(scope, bounds, self._arrays, pointers, depth, calls).accesses()


def _parts(node: "Node") -> "tuple[Node | None, Node | None]":
    """Array and index of a subscript."""
    index = node.child_by_field_name("indices") or node.child_by_field_name("index")
    if index is not None and index.type == "subscript_argument_list":
        index = index.named_children[0] if index.named_children else None
    return node.child_by_field_name("argument"), index


def _moved(pointer: _Pointer, step: Polynomial | None) -> Polynomial | None:
    """The largest offset after a move by a step with this exclusive bound."""
    if pointer.offset is None or step is None:
        return None
    return pointer.offset + (step - ONE) * Polynomial.number(pointer.scale)


def _assigned(node: "Node") -> "tuple[Node | None, bool]":
    """The assignment around a place, and whether the place is its left side."""
    above = node.parent
    while above is not None and above.type in _AROUND:
        node, above = above, above.parent
    if above is None or above.type not in ("assignment_expression", "update_expression"):
        return None, False
    return above, above.type == "update_expression" or above.child_by_field_name("left") == node


def _when(node: "Node") -> int:
    """The order of an access: what an assignment reads comes before what it writes."""
    assignment, left = _assigned(node)
    return assignment.end_byte if assignment and left else node.start_byte


def _kind(node: "Node", tree: Tree) -> Kind:
    """What happens to an element: from what stands around its place."""
    assignment, left = _assigned(node)
    if assignment is None or not left:
        return "read"
    operator = assignment.child_by_field_name("operator")
    return "write" if operator is None or tree.text(operator) == "=" else "update"
