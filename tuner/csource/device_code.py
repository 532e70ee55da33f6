"""The device code of an application's files: what a compiler for the device alone can read.

Declarations at namespace scope that the wanted kernels do not reach by name, and host functions,
are turned to spaces, so that every place in the result is a place in the source. Directives stay.
Files without a host function stay as they are.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tuner.csource.includes import reached, with_recorded_names
from tuner.csource.tree import Tree, parse, without_comments

if TYPE_CHECKING:
    from tree_sitter import Node

_WORD = re.compile(r"[A-Za-z_]\w*")
_KEPT_DIRECTIVE = re.compile(r"^[ \t]*#(?![ \t]*pragma)(?:\\\r?\n|[^\n])*", re.MULTILINE)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_ANNOTATION = re.compile(r"__(?:global|device|constant|managed|shared)__")
_COMPILE_TIME = re.compile(r"\bconst(?:expr|eval)\b")
_DECLARES = re.compile(r"\b(?:template|struct|class|union|enum|using|typedef|constexpr)\b")
_NAMED_NAMESPACE = re.compile(r"\bnamespace\s+([\w:]+)\s*;")
_TOOLCHAIN_NAMESPACES = frozenset(
    {"cooperative_groups", "nvcuda", "cuda", "cub", "std", "at", "c10", "torch"}
)
_SCOPES = ("declaration_list", "ERROR")
_CLASSES = ("struct_specifier", "class_specifier", "union_specifier")
_NAMED = (*_CLASSES, "enum_specifier", "concept_definition", "alias_declaration")
_NAMES = (
    "identifier",
    "type_identifier",
    "field_identifier",
    "namespace_identifier",
    "operator_name",
)
_PASTES = "##"
"""Among a macro's words: it makes names of parts, so any device function may be called."""

_MAX_EXPANSION = 4
"""Macros within macros whose bodies are read for annotations and names."""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """Source and headers to compile; ``cut`` tells whether host code was taken out."""

    source: str
    headers: tuple[tuple[str, str], ...]
    cut: bool


@lru_cache(maxsize=32)
def device_code(
    file: str, source: str, headers: tuple[tuple[str, str], ...], entries: tuple[str, ...]
) -> DeviceCode:
    """What the kernels and variables ``entries`` (C++ name expressions) need of a CUDA source.

    Only headers that the source reaches are kept. A file that the reader cannot parse is left as
    it is.
    """
    texts = dict(headers)
    used = reached(file, source, texts)
    named = {name: with_recorded_names(name, texts[name], texts) for name in used}
    files = [(file, with_recorded_names(file, source, texts)), *named.items()]
    trees = [parse(text, "cuda") for _, text in files]
    if any(tree.root is None for tree in trees):
        return DeviceCode(files[0][1], tuple(files[1:]), cut=False)
    macros = _macros([text for _, text in files])
    declarations = [list(_declarations(tree, number, macros)) for number, tree in enumerate(trees)]
    everything = [one for each in declarations for one in each]
    if not any(one.host for one in everything):
        return DeviceCode(files[0][1], tuple(files[1:]), cut=False)
    kept = _reached(everything, entries, macros)
    made = []
    for number, ((name, text), tree) in enumerate(zip(files, trees, strict=True)):
        dropped = [one.span for one in declarations[number] if one not in kept]
        dropped += [
            span
            for one in declarations[number]
            if one in kept
            for span in _host_methods(tree, one, macros)
        ]
        made.append((name, _blanked(text, dropped)))
    return DeviceCode(made[0][1], tuple(made[1:]), cut=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Declaration:
    """One declaration at namespace scope.

    ``names`` is what it declares; one without names is kept if it ``stays``. ``host`` marks a
    function or variable that a compiler for the device alone refuses.
    """

    file: int
    span: tuple[int, int]
    node: "Node"
    names: frozenset[str]
    words: frozenset[str]
    annotated: bool
    host: bool
    stays: bool


def _macros(texts: Sequence[str]) -> Mapping[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for text in texts:
        for name, body in _MACRO.findall(without_comments(text)):
            pastes = {_PASTES} if _PASTES in body else set()
            found[name] = found.get(name, frozenset()) | frozenset(_WORD.findall(body)) | pastes
    for _ in range(_MAX_EXPANSION):
        found = {
            name: words.union(*(found[word] for word in words if word in found))
            for name, words in found.items()
        }
    return found


def _words(code: str, macros: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The words of some code, and those of the macros that it names."""
    plain = frozenset(_WORD.findall(code))
    return plain.union(*(macros[word] for word in plain if word in macros))


def _declarations(
    tree: Tree, file: int, macros: Mapping[str, frozenset[str]]
) -> Iterator[_Declaration]:
    assert tree.root is not None
    waiting = [(tree.root, 0)]
    while waiting:
        scope, end = waiting.pop()
        for node in scope.children:
            body = node.child_by_field_name("body")
            if node.type in _SCOPES or (body and body.type == "declaration_list"):
                inner = body or node
                waiting.append((inner, inner.start_byte + (body is not None)))
            elif node.is_named:
                span = (_start(tree, end, node.start_byte), node.end_byte)
                yield _declaration(tree, node, span, file, macros)
            end = node.end_byte


def _start(tree: Tree, after: int, before: int) -> int:
    """Where a declaration begins whose qualifiers the grammar does not know."""
    start = max(after, tree.begin(before))
    first = re.compile(r"\S").search(tree.code, start)
    return min(before, first.start()) if first else before


def _declaration(
    tree: Tree,
    node: "Node",
    span: tuple[int, int],
    file: int,
    macros: Mapping[str, frozenset[str]],
) -> _Declaration:
    code = tree.code[slice(*span)]
    inner = _inner(node)
    body = inner.child_by_field_name("body")
    head = tree.code[span[0] : body.start_byte if body else span[1]]
    qualifiers = _words(head, macros)
    annotated = any(map(_ANNOTATION.fullmatch, qualifiers))
    fixed = any(map(_COMPILE_TIME.fullmatch, qualifiers))
    words = _words(code, macros)
    names = frozenset(_declared(inner, tree))
    function = inner.type == "function_definition" or bool(
        inner.type == "declaration" and _function_declarator(inner)
    )
    stays = False
    if node.type == "using_declaration" and (found := _NAMED_NAMESPACE.search(code)):
        stays, names = found[1].partition("::")[0] in _TOOLCHAIN_NAMESPACES, frozenset()
    if node.type in ("expression_statement", "ERROR"):
        expansion = frozenset().union(*(macros[w] for w in _WORD.findall(code) if w in macros))
        stays = any(map(_ANNOTATION.fullmatch, expansion)) or any(map(_DECLARES.search, expansion))
        names = frozenset()
    return _Declaration(
        file=file,
        span=span,
        node=node,
        names=names,
        words=words,
        annotated=annotated,
        host=function and not annotated and not fixed,
        stays=stays,
    )


def _inner(node: "Node") -> "Node":
    """What a template or ``extern "C"`` declares; the node itself for anything else."""
    while node.type in ("template_declaration", "linkage_specification"):
        node = node.named_children[-1]
    return node


def _function_declarator(node: "Node") -> "Node | None":
    inner = node.child_by_field_name("declarator")
    while inner is not None and inner.type != "function_declarator":
        inner = inner.child_by_field_name("declarator") or (
            inner.named_children[0]
            if inner.type == "reference_declarator" and inner.named_children
            else None
        )
    return inner


def _declared(node: "Node", tree: Tree) -> Iterator[str]:
    """The names that a declaration makes known: its own, and an enumeration's values."""
    name = node.child_by_field_name("name")
    if name and node.type in _NAMED:
        yield from _last_name(name, tree)
    for declarator in node.children_by_field_name("declarator"):
        yield from _last_name(declarator, tree)
    type_ = node if node.type == "enum_specifier" else node.child_by_field_name("type")
    if type_ is not None and type_ is not node:
        yield from _declared(type_, tree) if type_.child_by_field_name("body") else ()
    if type_ is not None and type_.type == "enum_specifier":
        for value in tree.find("enumerator", within=type_):
            if name := value.child_by_field_name("name"):
                yield tree.text(name)
    if node.type in ("namespace_alias_definition", "using_declaration"):
        yield from _WORD.findall(tree.text(node))[1 : 2 if node.type.startswith("n") else None]


def _last_name(node: "Node", tree: Tree) -> Iterator[str]:
    while node.type not in _NAMES:
        inner = node.child_by_field_name("declarator") or node.child_by_field_name("name")
        if inner is None:
            inner = node.named_children[0] if node.named_children else None
        if inner is None:
            return
        node = inner
    yield "operator" if node.type == "operator_name" else tree.text(node)


def _reached(
    declarations: Sequence[_Declaration],
    entries: Sequence[str],
    macros: Mapping[str, frozenset[str]],
) -> set[_Declaration]:
    """The declarations that the entries' kernels need; with no such kernel, that all need."""
    wanted = _words(" ".join(entries), macros)
    roots = [one for one in declarations if one.annotated and one.names & wanted]
    if not roots:
        roots = [one for one in declarations if one.annotated]
    kept: set[_Declaration] = set()
    known = set(wanted)
    own = frozenset().union(*(one.names for one in declarations))
    asserted = [one for one in declarations if one.node.type == "static_assert_declaration"]
    waiting = roots + [one for one in declarations if one.stays]
    while waiting:
        for one in waiting:
            kept.add(one)
            known |= one.words
        available = frozenset().union(*(one.names for one in kept)) - {"operator"}
        waiting = [
            one
            for one in declarations
            if one not in kept
            and not one.host
            and (
                one.names & known - {"operator"}
                or (one.annotated and _PASTES in known)
                or ("operator" in one.names and (one.words & available or not one.words & own))
            )
        ]
    gone = own - frozenset().union(*(one.names for one in kept))
    return kept | {one for one in asserted if not one.words & gone}


def _host_methods(
    tree: Tree, declaration: _Declaration, macros: Mapping[str, frozenset[str]]
) -> Iterator[tuple[int, int]]:
    """The places of methods in a class that only the host can call."""
    for body in tree.find("field_declaration_list", within=declaration.node):
        end = body.start_byte + 1
        for node in body.named_children:
            start, end = _start(tree, end, node.start_byte), node.end_byte
            inner = _inner(node)
            block = inner.child_by_field_name("body")
            if not _function_declarator(inner):
                continue
            last = block.start_byte if block and block.type == "compound_statement" else end
            head = tree.code[start:last]
            if re.search(r"=\s*(?:default|delete)\s*;?\s*$", tree.code[start:end]):
                continue
            words = _words(head, macros)
            if not any(_ANNOTATION.fullmatch(w) or _COMPILE_TIME.fullmatch(w) for w in words):
                yield start, end


def _blanked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text with these places turned to spaces, less the directives in them."""
    if not spans:
        return text
    plain = without_comments(text)
    parts, end = [], 0
    for start, stop in sorted(spans):
        if start < end:
            continue
        parts.append(text[end:start])
        place = start
        for found in _KEPT_DIRECTIVE.finditer(plain, start, stop):
            parts += [_spaces(text[place : found.start()]), text[found.start() : found.end()]]
            place = found.end()
        parts.append(_spaces(text[place:stop]))
        end = stop
    return "".join((*parts, text[end:]))


def _spaces(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
