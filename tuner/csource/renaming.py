"""New names for functions of a source that is put beside another one.

A call with an argument of a type at global scope finds functions at global scope too, from whatever
namespace: one that both sources have would be ambiguous.
"""

import re
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from tuner.csource.tree import Tree, inner_declarator, parse, without_comments

if TYPE_CHECKING:
    from tree_sitter import Node

_SCOPES = ("translation_unit", "declaration_list")
_CALLED = re.compile(r"(?P<before>(?:(?P<scope>\w*)\s*::|->|\.)\s*)?\b(?P<name>[A-Za-z_]\w*)")


def with_renamed_functions(source: str, words: Set[str]) -> str:
    """The CUDA source with a new name for each function at namespace scope that is among ``words``.

    Kernels and names that begin with two underscores, which overload the toolchain's, stay.
    """
    tree = parse(source, "cuda")
    own = set(re.findall(r"\w+", source))
    names = {name: _fresh(name, own) for name in _functions(tree) if name in words}
    if not names:
        return source
    spaces = (node.child_by_field_name("name") for node in tree.find("namespace_definition"))
    namespaces = {tree.text(space) for space in spaces if space}
    members = {tree.text(node) for node in tree.find("field_identifier") if _declares(node)}
    parts, end = [], 0
    for match in _CALLED.finditer(without_comments(source)):
        name, before = match["name"], match["before"] or ""
        elsewhere = before.rstrip().endswith("::") and match["scope"] not in namespaces
        member = before[:1] in (".", "-") and name not in members
        if name in names and not elsewhere and not member:
            parts += [source[end : match.start("name")], names[name]]
            end = match.end("name")
    return "".join((*parts, source[end:]))


def _fresh(name: str, own: Set[str]) -> str:
    new = f"{name}_tuned"
    while new in own:
        new += "_"
    return new


def _functions(tree: Tree) -> Iterator[str]:
    for node in tree.find("function_definition"):
        scope = node.parent
        while scope is not None and scope.type in ("template_declaration", "linkage_specification"):
            scope = scope.parent
        declared = inner_declarator(node, "identifier")
        if scope is None or scope.type not in _SCOPES or declared is None:
            continue
        name, end = tree.text(declared), declared.start_byte
        if "__global__" not in tree.code[tree.begin(end) : end] and name[:2] != "__":
            yield name


def _declares(node: "Node") -> bool:
    """Whether a member's name stands in its declaration, not in an access."""
    return node.parent is not None and node.parent.type != "field_expression"
