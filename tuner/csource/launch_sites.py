"""Reads a launch with ``<<<…>>>`` as it is written, and tells whether it is a plain statement."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.csource.host_program import after_template, arguments, split
from tuner.csource.tree import Tree

if TYPE_CHECKING:
    from tree_sitter import Node

Span = tuple[int, int]
"""Start and end in the source."""

_UNPARSED = "the source cannot be parsed there"
_ARGUMENTS = re.compile(r">>>\s*\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSite:
    """One launch of a kernel, ``NAME<template><<<configuration>>>(arguments)``.

    ``name`` spans the kernel with its namespaces, ``opening`` is ``<<<``, ``closing`` reaches from
    ``>>>`` to behind the parenthesis that follows.
    """

    name: Span
    opening: Span
    closing: Span
    template: tuple[str, ...]
    configuration: tuple[str, ...]
    arguments: tuple[str, ...]


def naming(kernel: str) -> re.Pattern[str]:
    """What names a kernel, with its namespaces."""
    return re.compile(rf"(?<!\w)(?<!::)(?:::)?(?:\w+::)*{re.escape(kernel)}\b")


def launch_sites(code: str, kernel: str) -> Iterator[LaunchSite]:
    """The launches of a kernel in code without comments; those in macros' bodies too."""
    for named in naming(kernel).finditer(code):
        if site := launch_at(code, named.span()):
            yield site


def launch_at(code: str, name: Span) -> LaunchSite | None:
    """The launch of the kernel that is named there, if it is launched with ``<<<…>>>``."""
    place, template = after_template(code, name[1])
    end = code.find(">>>", place) if code.startswith("<<<", place) else -1
    following = _ARGUMENTS.match(code, end) if end > 0 else None
    if following is None:
        return None
    return LaunchSite(
        name=name,
        opening=(place, place + 3),
        closing=following.span(),
        template=template,
        configuration=split(code[place + 3 : end]),
        arguments=arguments(code, following.end() - 1),
    )


def statement(site: LaunchSite, tree: Tree) -> Span:
    """Where the statement lies that a launch is, if there is no :func:`obstacle`."""
    call = _call(site, tree)
    assert call is not None, "a statement was parsed"
    assert call.parent is not None, "a call stands in a statement"
    return call.parent.start_byte, call.parent.end_byte


def obstacle(site: LaunchSite, tree: Tree) -> str:
    """Why a launch is not a statement of its own; empty if it is one."""
    if tree.code[slice(*site.opening)] != "<<<":
        return "it is in a macro"
    call = _call(site, tree)
    parent = call.parent if call else None
    if call is None or call.has_error or parent is None:
        return _UNPARSED
    if parent.type != "expression_statement":
        return "it is part of an expression"
    while parent is not None and parent.type != "function_definition":
        if parent.type == "argument_list" and parent.parent is not None:
            outer = parent.parent.child_by_field_name("function")
            called = tree.text(outer) if outer else "a call"
            return f"it is among the arguments of {called}"
        if parent.type == "ERROR":
            return _UNPARSED
        parent = parent.parent
    return ""


def _call(site: LaunchSite, tree: Tree) -> "Node | None":
    """The call that the grammar reads a launch as, if it has the same name and configuration."""
    node = tree.root.named_descendant_for_byte_range(*site.opening) if tree.root else None
    if node is None or node.type != "kernel_call_syntax" or node.end_byte != site.closing[0] + 3:
        return None
    function = node.parent.child_by_field_name("function") if node.parent else None
    return node.parent if function and function.start_byte == site.name[0] else None
