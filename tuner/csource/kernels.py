"""The kernels of a source: their signatures, and where their parts lie.

Good enough to help and to warn; the compiler has the last word. A parameter whose type is not
understood has no element type, and a signature that may be misread is not ``certain``.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from tuner.backends.registry import traits_of
from tuner.csource.tree import (
    MAX_CHARACTERS,
    MAX_NESTING,
    Tree,
    inner_declarator,
    object_macros,
    parse,
    without_comments,
)

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_KERNELS = 100
_MAX_PARAMETERS = 20_000
"""Characters between the parentheses, before and after macros are expanded."""

_DTYPES = {
    name: dtype
    for dtype, names in {
        "bool": "bool",
        "int8": "char, signed char, int8_t",
        "uint8": "uchar, unsigned char, uint8_t",
        "int16": "short, int16_t",
        "uint16": "ushort, unsigned short, uint16_t",
        "int32": "int, signed, int32_t",
        "uint32": "uint, unsigned, unsigned int, uint32_t",
        "int64": "long, long long, longlong, int64_t, ptrdiff_t",
        "uint64": "ulong, unsigned long, unsigned long long, ulonglong, uint64_t, size_t",
        "float16": "half, __half, Half",
        "bfloat16": "__nv_bfloat16, nv_bfloat16, BFloat16",
        "float32": "float",
        "float64": "double",
        "float8_e4m3": "__nv_fp8_e4m3, float8_e4m3_t, Float8_e4m3fn",
        "float8_e5m2": "__nv_fp8_e5m2, float8_e5m2_t, Float8_e5m2",
    }.items()
    for name in names.split(", ")
}
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:[^\n\\]|\\\r?\n)*", re.MULTILINE)
_VECTOR = re.compile(r"(.*?(?:[a-z_]|bfloat16))(2|3|4|8|16)")
_LOCAL = frozenset({"__local", "local"})
_CONST = frozenset({"const", "constant", "__constant"})
_FUNCTIONS = ("function_definition", "declaration")
_TYPEDEFS = ("type_definition", "alias_declaration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter: ``dtype`` is that of the elements, or ``None`` for a type not understood.

    A vector type has so many ``lanes`` of it.
    """

    name: str
    type: str
    dtype: str | None
    lanes: int
    pointer: bool
    const: bool
    local: bool

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer passed by value."""
        return not self.pointer and (self.dtype or "").startswith(("int", "uint"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A kernel: its name, parameters, and the names of its template parameters with their kinds.

    ``namespace`` is empty or ends in ``::``. Not ``certain`` where directives or unknown macros
    stand among the parameters.
    """

    name: str
    parameters: tuple[Parameter, ...]
    namespace: str = ""
    template: tuple[tuple[str, str], ...] = ()
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelSource:
    """A kernel's definition or declaration, with its parts as ``(start, end)`` in the source.

    ``head`` is all before the name (qualifiers, attributes, return type, a template's parameters),
    ``parameters`` between the round brackets, ``block`` the body's node (``None`` if there is
    none).
    """

    signature: Signature
    language: str
    source: str
    tree: Tree
    head: tuple[int, int]
    parameters: tuple[int, int]
    block: "Node | None"

    @property
    def name(self) -> str:
        """The name without namespaces."""
        return self.signature.name

    @property
    def body(self) -> tuple[int, int]:
        """What lies between the braces; empty if the kernel is only declared."""
        if self.block is None:
            return self.parameters[1], self.parameters[1]
        return self.block.start_byte + 1, self.block.end_byte - 1

    def code(self, span: tuple[int, int]) -> str:
        """The code between two places, without comments and directives."""
        return self.tree.code[slice(*span)]

    def text(self, span: tuple[int, int]) -> str:
        """The source between two places."""
        return self.source[slice(*span)]


def unsupported_parameters(source: str, language: str) -> Iterator[tuple[str, str, str]]:
    """Kernel, parameter and what it is, of those that no spec can pass."""
    refused = traits_of(language).unsupported_parameters
    for signature in signatures(source, language):
        for parameter in signature.parameters:
            if what := refused.get(parameter.type.rpartition("::")[2]):
                yield signature.name, parameter.name, what


def signatures(source: str, language: str) -> tuple[Signature, ...]:
    """The kernels that the source defines or declares, in order; at most :data:`MAX_KERNELS`.

    Several have one name where directives choose between them.
    """
    return tuple(dict.fromkeys(kernel.signature for kernel in kernels(source, language)))


def find_kernel(source: str, entry: str, language: str) -> KernelSource | None:
    """The definition of the kernel that ``entry`` (a name or a C++ name expression) means."""
    name = entry.partition("<")[0].rpartition("::")[2].strip()
    found = (k for k in kernels(source, language) if k.name == name and k.block)
    return next(found, None)


def kernels(source: str, language: str) -> tuple[KernelSource, ...]:
    """The kernels that the source defines or declares, in order; at most :data:`MAX_KERNELS`."""
    words = traits_of(language).kernel_qualifiers
    if len(source) > MAX_CHARACTERS or not any(word in source for word in words):
        return ()
    reader = _Reader(parse(source, language), source, language)
    return tuple(islice(reader.kernels(), MAX_KERNELS))


def element_type(name: str) -> tuple[str | None, int]:
    """The element type of a type as C names it, and how many a value has: 4 in a ``float4``.

    ``None`` if it is not understood.
    """
    base = name.rpartition("::")[2]
    if dtype := _DTYPES.get(base) or _DTYPES.get(base.removesuffix(" int")):
        return dtype, 1
    vector = _VECTOR.fullmatch(base)
    if vector and (dtype := _DTYPES.get(vector[1])):
        return dtype, int(vector[2])
    return None, 1


def reachable_code(kernel: KernelSource, headers: Sequence[str] = ()) -> str:
    """The code of a kernel and of all that it calls."""
    own = (kernel.code(kernel.parameters), kernel.code(kernel.body))
    return "\n".join((*own, called_code(kernel, headers)))


def called_code(kernel: KernelSource, headers: Sequence[str] = ()) -> str:
    """The code of all that a kernel calls: functions and macros of its source and of headers."""
    return "\n".join(text for text, _ in _called(kernel, headers))


def called_functions(kernel: KernelSource) -> "tuple[Node, ...]":
    """The definitions in the same source of the functions that a kernel calls, also indirectly."""
    return tuple(node for _, node in _called(kernel) if node is not None)


def _called(kernel: KernelSource, headers: Sequence[str] = ()) -> "list[tuple[str, Node | None]]":
    """Functions and macros that a kernel calls; those functions of its own source with a node.

    A variable that has a function's name does not call it.
    """
    named: dict[str, list[tuple[str, Node | None]]] = defaultdict(list)
    for text in (kernel.source, *headers):
        own = text is kernel.source
        tree = kernel.tree if own else parse(text, kernel.language)
        for node in tree.find("function_definition"):
            name = _declared_name(node, tree)
            if name and name != kernel.name:
                named[name].append((tree.text(node), node if own else None))
        for match in _DEFINE.finditer(without_comments(text)):
            named[match[1]].append((match[0], None))
    found: list[tuple[str, Node | None]] = []
    own_code = f"{kernel.code(kernel.parameters)}\n{kernel.code(kernel.body)}"
    variables = {parameter.name for parameter in kernel.signature.parameters}
    unread = [(own_code, variables | _variables(kernel.block, kernel.tree))]
    while unread:
        code, variables = unread.pop(0)
        for word in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", code)):
            if word in variables and all(node for _, node in named.get(word, ())):
                continue
            reached = named.pop(word, [])
            found += reached
            unread += [(text, _variables(node, kernel.tree)) for text, node in reached]
    return found


def _variables(node: "Node | None", tree: Tree) -> set[str]:
    """The names of parameters and variables that are declared within a node."""
    kinds = ("parameter_declaration", "optional_parameter_declaration", "declaration")
    found = tree.find(*kinds, "init_declarator", within=node) if node else ()
    return {name for declaration in found if (name := _declared_name(declaration, tree))}


class _Reader:
    """Reads the kernels of one tree."""

    def __init__(self, tree: Tree, source: str, language: str) -> None:
        self._tree, self._source, self._language = tree, source, language
        self._visible = without_comments(source)
        macros = object_macros(source)
        self._macros = {name: body for name, (body, *others) in macros.items() if not others}
        found = list(tree.find(*_FUNCTIONS, *_TYPEDEFS))
        self._functions = [node for node in found if node.type in _FUNCTIONS]
        self._types = {**macros, **_typedefs(tree, found)}
        self._element = cache(self._element_type)  # bounds what many macros of many meanings cost
        words = traits_of(language).kernel_qualifiers
        self._qualifier = re.compile(rf"\b(?:{'|'.join(words)})\b")

    def kernels(self) -> Iterator[KernelSource]:
        code = self._tree.code
        for node in self._functions:
            declarator = node.child_by_field_name("declarator")
            if declarator is None or declarator.type != "function_declarator":
                continue
            name = declarator.child_by_field_name("declarator")
            listed = declarator.child_by_field_name("parameters")
            if name is None or listed is None or name.type != "identifier":
                continue
            start = self._tree.begin(node.start_byte)
            qualified = self._qualifier.search(code, start, name.start_byte)
            first = re.compile(r"\S").search(code, start)
            if not qualified or not first:
                continue
            inside = (listed.start_byte + 1, listed.end_byte - 1)
            yield KernelSource(
                signature=self._signature(node, self._tree.text(name), inside),
                language=self._language,
                source=self._source,
                tree=self._tree,
                head=(first.start(), name.start_byte),
                parameters=inside,
                block=node.child_by_field_name("body"),
            )

    def _signature(self, node: "Node", name: str, inside: tuple[int, int]) -> Signature:
        listed = self._tree.code[slice(*inside)]
        undirected = listed == self._visible[slice(*inside)]
        parts, understood = _parts(self._expanded(listed), self._language)
        parameters = tuple(self._parameter(*part) for part in parts)
        return Signature(
            name=name,
            parameters=parameters,
            namespace=_namespace(node, self._tree),
            template=_template(node, self._tree),
            certain=understood and undirected and all(p.name for p in parameters),
        )

    def _expanded(self, listed: str) -> str:
        """The parameters with macros replaced, a few levels deep and within bounds."""
        for _ in range(4):
            longer = re.sub(r"[A-Za-z_]\w*", lambda at: self._macros.get(at[0], at[0]), listed)
            if longer == listed or len(longer) > _MAX_PARAMETERS:
                break
            listed = longer
        return listed

    def _parameter(self, text: str, base: str, name: str) -> Parameter:
        pointee = text[: text.rfind("*")] if "*" in text else text
        dtype, lanes = self._element(base)
        return Parameter(
            name=name,
            type=base,
            dtype=dtype,
            lanes=lanes,
            pointer="*" in text or "[" in text,
            const=bool(_CONST & set(re.findall(r"\w+", pointee))),
            local=bool(_LOCAL & set(re.findall(r"\w+", text))),
        )

    def _element_type(self, base: str, depth: int = 4) -> tuple[str | None, int]:
        """Element type and lanes, looked up through macros and typedefs that agree on one."""
        found = element_type(base)
        if found[0] or not depth:
            return found
        base = base.rpartition("::")[2]
        meant = [self._element(type_, depth - 1) for type_ in self._types.get(base, ())]
        dtypes, lanes = {dtype for dtype, _ in meant}, {lanes for _, lanes in meant}
        dtype = dtypes.pop() if len(dtypes) == 1 else None
        return dtype, lanes.pop() if dtype and len(lanes) == 1 else 1


def _parts(listed: str, language: str) -> tuple[list[tuple[str, str, str]], bool]:
    """Text, type and name of each parameter, and whether all of the list was understood."""
    opening = "void f("
    tree = parse(f"{opening}{listed});", language)
    declarator = next(tree.find("function_declarator"), None)
    node = declarator and declarator.child_by_field_name("parameters")
    if not node:
        return [], False
    found, start, understood = [], len(opening), not node.has_error
    for child in node.named_children:
        text = tree.code[start : child.end_byte].partition("=")[0].strip("\n\t ,")
        start = child.end_byte
        if text == "void":
            continue
        if child.type not in ("parameter_declaration", "optional_parameter_declaration"):
            understood = False
            continue
        base = child.child_by_field_name("type")
        name = _declared_name(child, tree)
        plain = name is not None and not re.search(r"[(&]", text[: text.rfind(name) or None])
        understood = understood and plain
        found.append((text, _type(tree.text(base)) if base else "", name or ""))
    return found, understood


def _declared_name(node: "Node", tree: Tree) -> str | None:
    """The name that a parameter or a function declares."""
    inner = inner_declarator(node, "identifier")
    return tree.text(inner) if inner else None


def _type(text: str) -> str:
    """A type as written, less what says nothing of its elements."""
    words = re.sub(r"\b(?:const|volatile|struct|typename)\b", " ", text)
    return re.sub(r"\s*(::|[<>,])\s*", r"\1", " ".join(words.split()))


def _typedefs(tree: Tree, nodes: "Iterable[Node]") -> dict[str, frozenset[str]]:
    """The names of types, and everything that each stands for anywhere in the source."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        name = node.child_by_field_name("declarator") or node.child_by_field_name("name")
        base = node.child_by_field_name("type")
        if node.type in _TYPEDEFS and name and base and name.type == "type_identifier":
            found[tree.text(name)].add(_type(tree.text(base)))
    return {name: frozenset(types) for name, types in found.items()}


def _namespace(node: "Node", tree: Tree) -> str:
    """The namespaces around a node; empty, or ending in ``::``."""
    found, depth, parent = "", 0, node.parent
    while parent is not None and depth < MAX_NESTING:
        name = parent.child_by_field_name("name")
        if parent.type == "namespace_definition" and name:
            found = f"{tree.text(name)}::{found}"
        depth, parent = depth + 1, parent.parent
    return found


def _template(node: "Node", tree: Tree) -> tuple[tuple[str, str], ...]:
    """Name and kind of the parameters of a kernel that is a template."""
    head = node.parent
    listed = head.child_by_field_name("parameters") if head else None
    if head is None or head.type != "template_declaration" or listed is None:
        return ()
    named = []
    for parameter in listed.named_children:
        if pointed := re.search(r"\(\s*\*\s*(\w+)\s*\)", tree.text(parameter)):
            named.append((pointed[1], "function"))
            continue
        *kind, name = re.findall(r"[\w:]+|\.\.\.", tree.text(parameter).partition("=")[0]) or [""]
        if kind:
            named.append((name, " ".join(kind)))
    return tuple(named)
