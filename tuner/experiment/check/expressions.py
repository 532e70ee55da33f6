"""Expressions: each reads only names that are known at its place, and has the right kind."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.experiment.check.finding import Finding, listed
from tuner.experiment.check.names import type_symbols
from tuner.experiment.contents import Integers, Offsets
from tuner.experiment.model import DTYPES, CompilerFlag, Experiment, Kernel, Launch, Template
from tuner.experiment.yaml_document import Path
from tuner.expressions import Expression, ExpressionError, nearest
from tuner.expressions.real import RealExpression

Scope = Literal["shape", "kernel", "template"]
"""Names that may be read: symbols; symbols and device; symbols, device and parameters."""


@dataclass(frozen=True, slots=True)
class Place:
    """An expression with its path and scope."""

    path: Path
    expression: Expression | RealExpression
    scope: Scope


def places(experiment: Experiment) -> Iterator[Place]:
    """Every expression of an experiment."""
    for index, argument in enumerate(experiment.arguments):
        path: Path = ("arguments", index)
        yield from _each((*path, "shape"), argument.shape, "shape")
        yield from _each((*path, "strides"), argument.strides, "shape")
        if isinstance(argument.value, Expression | RealExpression):
            yield Place((*path, "value"), argument.value, "shape")
        for key, fill in (("values", argument.values), ("initial", argument.initial)):
            if isinstance(fill, Integers):
                yield from _each((*path, key, "integers"), fill.integers, "shape")
            if isinstance(fill, Offsets):
                yield Place((*path, key, "offsets"), fill.offsets, "shape")
        for number, field in enumerate(argument.fields):
            for at, value in enumerate(field.value):
                if isinstance(value, Expression | RealExpression):
                    yield Place((*path, "fields", number, "value", at), value, "shape")
    yield from _each(("shapes", "domain"), experiment.shapes.domain, "shape")
    if experiment.cost:
        for key in ("bytes", "flops"):
            if (cost := getattr(experiment.cost, key)) is not None:
                yield Place(("cost", key), cost, "shape")
    yield from _launches(("kernel",), experiment.kernel, "kernel")
    if experiment.template:
        yield from _of_template(experiment.template)


def _of_template(template: Template) -> Iterator[Place]:
    yield from _launches(("template",), template, "template")
    yield from _each(("template", "constraints"), template.constraints, "template")
    for name, expression in template.defines.items():
        yield Place(("template", "defines", name), expression, "template")
    for index, scratch in enumerate(template.scratch):
        yield from _each(("template", "scratch", index, "shape"), scratch.shape, "template")
    for index, option in enumerate(template.options or ()):
        if isinstance(option, CompilerFlag):
            for key in ("value", "when"):
                if (expression := getattr(option, key)) is not None:
                    yield Place(("template", "options", index, key), expression, "template")


def launches(root: Path, subject: Kernel | Template) -> Iterator[tuple[Path, Launch]]:
    """Every launch of the kernel or template at ``root``, with its path."""
    if subject.launch:
        yield (*root, "launch"), subject.launch
    for index, step in enumerate(subject.launches):
        if isinstance(step, Launch):
            yield (*root, "launches", index), step


def _launches(root: Path, subject: Kernel | Template, scope: Scope) -> Iterator[Place]:
    for path, launch in launches(root, subject):
        yield from _each((*path, "grid"), launch.grid, scope)
        yield from _each((*path, "block"), launch.block, scope)
        yield Place((*path, "shared_bytes"), launch.shared_bytes, scope)
        yield Place((*path, "dependent"), launch.dependent, scope)
        yield from _each((*path, "cluster"), launch.cluster, scope)


def _each(path: Path, expressions: Sequence[Expression], scope: Scope) -> Iterator[Place]:
    for index, expression in enumerate(expressions):
        yield Place((*path, index), expression, scope)


def check_expressions(experiment: Experiment) -> Iterator[Finding]:
    """Names are known where they are read, kinds fit, and quoted names are existing values."""
    symbols = frozenset(experiment.shapes.tune[0].symbols)
    types = type_symbols(experiment)
    parameters = experiment.template.parameters if experiment.template else {}
    enums = {
        name: tuple(map(str, values))
        for name, values in parameters.items()
        if all(isinstance(value, str) for value in values)
    }
    strings = types | enums.keys()
    for place in places(experiment):
        expression = place.expression
        known = symbols | (parameters.keys() if place.scope == "template" else frozenset())
        unknown = sorted(expression.names - known)
        for name in unknown:
            if name in parameters:
                message = f"'{name}' is a parameter of the template, which cannot be read here"
            elif name in ("true", "false"):
                message = f"write {name.title()} in an expression"
            else:
                there = nearest(name, known) or f"; there are: {listed(sorted(known))}"
                message = f"unknown symbol '{name}'{there}"
            yield Finding(place.path, message, name)
        exact = expression if isinstance(expression, Expression) else None
        if exact and place.scope == "shape" and exact.device_names:
            yield Finding(place.path, "the device cannot be read here")
        if unknown:
            continue
        try:
            if expression.kind(strings) == "name":
                yield Finding(place.path, f"'{expression}' is a name, not a number")
        except ExpressionError as error:
            yield Finding(place.path, f"'{expression}': {error}")
        for name, literal in sorted(exact.name_literals()) if exact else ():
            values = DTYPES if name in types else enums.get(name, (literal,))
            if literal not in values:
                there = nearest(literal, values) or f"; there are: {listed(values)}"
                yield Finding(place.path, f"{name} has no value '{literal}'{there}")
