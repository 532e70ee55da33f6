"""The fields of the structs that a source defines."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.csource.kernels import element_type
from tuner.csource.tree import Tree

if TYPE_CHECKING:
    from tree_sitter import Node

_SIZE = re.compile(r"\s*(\d{1,4})[uUlL]*\s*")


@dataclass(frozen=True, slots=True)
class StructMember:
    """``count`` elements of one type, those of vectors included, each of so many ``lanes``."""

    name: str
    dtype: str
    count: int
    lanes: int


def struct_members(tree: Tree, name: str) -> tuple[StructMember, ...] | None:
    """The fields of the struct of this name in C's order.

    ``None`` if the source does not define it, or if one is not a number, a vector or an array of
    them: a pointer, another struct, an array whose size is no number.
    """
    name = name.rpartition("::")[2]
    for node in tree.find("struct_specifier", "class_specifier"):
        body = node.child_by_field_name("body")
        if body is not None and name in _names(node, tree):
            found = list(_members(body, tree))
            return tuple(one for one in found if one) if found and all(found) else None
    return None


def _names(node: "Node", tree: Tree) -> Iterator[str]:
    """A struct's name, and that of its typedef."""
    if named := node.child_by_field_name("name"):
        yield tree.text(named)
    parent = node.parent
    typedef = parent is not None and parent.type == "type_definition"
    if typedef and parent and (declared := parent.child_by_field_name("declarator")):
        yield tree.text(declared)


def _members(body: "Node", tree: Tree) -> Iterator[StructMember | None]:
    for node in body.named_children:
        if node.type != "field_declaration":
            if node.type not in ("access_specifier", "comment"):
                yield None
            continue
        base = node.child_by_field_name("type")
        dtype, lanes = element_type(" ".join(tree.text(base).split())) if base else (None, 1)
        declared = node.children_by_field_name("declarator")
        if dtype is None or not declared:
            yield None
            continue
        for declarator in declared:
            yield _member(declarator, tree, dtype, lanes)


def _member(declarator: "Node", tree: Tree, dtype: str, lanes: int) -> StructMember | None:
    count = lanes
    while declarator.type == "array_declarator":
        size = declarator.child_by_field_name("size")
        inner = declarator.child_by_field_name("declarator")
        extent = _SIZE.fullmatch(tree.text(size)) if size else None
        if extent is None or inner is None:
            return None
        count, declarator = count * int(extent[1]), inner
    if declarator.type != "field_identifier":
        return None
    return StructMember(tree.text(declarator), dtype, count, lanes)
