"""Where a source launches a kernel with ``<<<…>>>``, and whether a launch is a plain statement."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.csource.tree import Tree, parse, without_comments

if TYPE_CHECKING:
    from tree_sitter import Node

Span = tuple[int, int]
"""Start and end in the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSite:
    """One launch of a kernel, ``NAME<template><<<configuration>>>(arguments)``.

    ``name`` spans the kernel with its namespaces, ``opening`` is ``<<<``, ``closing`` reaches from
    ``>>>`` to the parenthesis that follows. ``statement`` spans the statement. ``problem`` says why
    the launch is no statement of its own; it is empty where it is one, and all spans are empty but
    that of ``name`` where the source cannot be parsed there.
    """

    line: int
    name: Span
    statement: Span = (0, 0)
    opening: Span = (0, 0)
    closing: Span = (0, 0)
    template: tuple[str, ...] = ()
    configuration: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    problem: str = ""


def launch_sites(source: str, kernel: str, language: str) -> tuple[LaunchSite, ...]:
    """The launches of the kernel ``kernel`` (a name without namespaces), in order."""
    tree = parse(source, language)
    visible = without_comments(source)
    sites = {}
    for call in tree.find("call_expression"):
        site = _site(call, tree, kernel)
        if site is not None:
            sites[site.opening[0]] = site
    written = re.compile(rf"\b{re.escape(kernel)}\s*(?:<[^;{{}}()]*>)?\s*(?P<opening><<<)")
    for match in written.finditer(visible):
        start = match.start("opening")
        if start not in sites:
            directive = tree.code[start : start + 3] != "<<<"
            sites[start] = LaunchSite(
                line=source.count("\n", 0, start) + 1,
                name=(match.start(), match.start() + len(kernel)),
                problem="it is in a macro" if directive else "the source cannot be parsed there",
            )
    return tuple(sites[start] for start in sorted(sites))


def _site(call: "Node", tree: Tree, kernel: str) -> LaunchSite | None:
    function = call.child_by_field_name("function")
    syntax = next((node for node in call.children if node.type == "kernel_call_syntax"), None)
    listed = call.child_by_field_name("arguments")
    if function is None or syntax is None or listed is None:
        return None
    given = next(tree.find("template_argument_list", within=function), None)
    start, end = function.start_byte, given.start_byte if given else function.end_byte
    name = tree.text(function)[: end - start].rstrip()
    if name.rpartition("::")[2].strip() != kernel:
        return None
    statement = call.parent
    return LaunchSite(
        line=function.start_point[0] + 1,
        name=(start, start + len(name)),
        statement=(statement.start_byte, statement.end_byte) if statement else (0, 0),
        opening=(syntax.start_byte, syntax.start_byte + 3),
        closing=(syntax.end_byte - 3, listed.start_byte + 1),
        template=_texts(given, tree),
        configuration=_texts(syntax, tree),
        arguments=_texts(listed, tree),
        problem=_problem(call, tree),
    )


def _texts(node: "Node | None", tree: Tree) -> tuple[str, ...]:
    return tuple(tree.text(child) for child in node.named_children) if node else ()


def _problem(call: "Node", tree: Tree) -> str:
    """Why a launch is not a statement of its own; empty if it is one."""
    parent = call.parent
    if call.has_error or parent is None:
        return "the source cannot be parsed there"
    if parent.type != "expression_statement":
        return "it is part of an expression"
    while parent is not None and parent.type != "function_definition":
        if parent.type == "argument_list" and parent.parent is not None:
            outer = parent.parent.child_by_field_name("function")
            called = tree.text(outer) if outer else "a call"
            return f"it is among the arguments of {called}"
        if parent.type == "ERROR":
            return "the source cannot be parsed there"
        parent = parent.parent
    return ""
