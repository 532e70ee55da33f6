"""Partial evaluation of an expression: substitution, constant folding, and unparsing."""

from collections.abc import Mapping

from tuner.device import Device
from tuner.expressions import scalar
from tuner.expressions.tree import (
    Apply,
    Chain,
    Choice,
    Const,
    DeviceAttribute,
    ExpressionError,
    Logic,
    Name,
    Node,
    constant,
)
from tuner.trial import Value


def substitute(node: Node, values: Mapping[str, Value], device: Device | None) -> Node:
    """The tree with names replaced and constants folded, unless undefined."""
    match node:
        case Name(name):
            return constant(values[name]) if name in values else node
        case DeviceAttribute(name) if device is not None:
            return constant(getattr(device, name))
        case Apply(operator, operands):
            parts = tuple(substitute(operand, values, device) for operand in operands)
            return _folded(Apply(operator, parts), parts)
        case Chain(operators, operands):
            parts = tuple(substitute(operand, values, device) for operand in operands)
            return _folded(Chain(operators, parts), parts)
        case Logic(operator, operands):
            kept: list[Node] = []
            for operand in operands:
                part = substitute(operand, values, device)
                if isinstance(part, Const) and bool(part.value) is (operator == "and"):
                    continue
                kept.append(part)
                if isinstance(part, Const):
                    break
            if not kept:
                return Const(operator == "and")
            if len(kept) == 1 and not isinstance(kept[0], Const):
                return _truth(kept[0])
            parts = tuple(kept)
            return _folded(Logic(operator, parts), parts)
        case Choice(condition, then, otherwise):
            decided = substitute(condition, values, device)
            if isinstance(decided, Const):
                return substitute(then if decided.value else otherwise, values, device)
            return Choice(
                decided,
                substitute(then, values, device),
                substitute(otherwise, values, device),
            )
        case _:
            return node


def _truth(node: Node) -> Node:
    """The node as a bool, which ``and`` and ``or`` yield even of one operand."""
    match node:
        case Chain() | Logic() | Apply("not" | "in"):
            return node
    return Apply("not", (Apply("not", (node,)),))


def _folded(node: Node, parts: tuple[Node, ...]) -> Node:
    if not all(isinstance(part, Const) for part in parts):
        return node
    try:
        return Const(scalar.evaluate(node, {}, None))
    except ExpressionError:
        return node


def unparse(node: Node) -> str:
    """Text that parses to the tree again, with every operation in parentheses."""
    match node:
        case Const(value):
            # In parentheses, since -1 ** a is -(1 ** a).
            return f"({value})" if isinstance(value, int) and value < 0 else repr(value)
        case Name(name):
            return name
        case DeviceAttribute(name):
            return f"device.{name}"
        case Apply("in", (first, *items)):
            return f"({unparse(first)} in ({', '.join(map(unparse, items))},))"
        case Apply("neg" | "pos" | "not" as operator, (operand,)):
            return f"({ {'neg': '-', 'pos': '+', 'not': 'not'}[operator] } {unparse(operand)})"
        case Apply(operator, operands) if operator.isidentifier():
            return f"{operator}({', '.join(map(unparse, operands))})"
        case Apply(operator, operands) | Logic(operator, operands):
            return f"({f' {operator} '.join(map(unparse, operands))})"
        case Chain(operators, (first, *others)):
            links = (f" {op} {unparse(other)}" for op, other in zip(operators, others, strict=True))
            return f"({unparse(first)}{''.join(links)})"
        case Choice(condition, then, otherwise):
            return f"({unparse(then)} if {unparse(condition)} else {unparse(otherwise)})"
        case _:
            raise AssertionError(node)
