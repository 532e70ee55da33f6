"""C for a variant on a shape: its launches, feasibility, build options and scratch memory.

Writes function bodies, which :mod:`tuner.export.header` assembles. Launches are checked against the
limits of the device of the run.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence

from tuner.device import Device
from tuner.experiment.arguments import item_bytes, kernel_arguments, type_name
from tuner.experiment.model import CompilerFlag, Experiment, Launch, Memset
from tuner.export.variant import ExportVariant, identifier
from tuner.expressions import Expression
from tuner.plan import Shape
from tuner.space.lower import parameter_defines
from tuner.space.requirements import launch_limits, requirements_of
from tuner.trial import Value


class LaunchCode:
    """Writes the bodies; ``types`` holds each combination of type symbols in the spec's shapes.

    With ``named``, steps name their kernel or buffer; with ``attributes``, they say whether they
    are dependent, and how many blocks a cluster has.
    """

    def __init__(
        self,
        experiment: Experiment,
        device: Device,
        variants: Sequence[ExportVariant],
        *,
        named: bool = True,
    ) -> None:
        self.named = named
        self.experiment = experiment
        self.device = device
        self.variants = variants
        self.prefix = identifier(experiment.name)
        self.attributes = device.compute_capability > 0
        bindings = (*experiment.shapes.tune, *experiment.shapes.held_out)
        self.symbols = list(bindings[0].symbols)
        types = [{n: v for n, v in b.symbols.items() if isinstance(v, str)} for b in bindings]
        self.types: list[Shape] = [
            dict(items) for items in dict.fromkeys(tuple(one.items()) for one in types)
        ]

    def constant(self, variant: ExportVariant) -> str:
        """The C constant of a variant."""
        return f"{self.prefix}_{variant.name}".upper()

    def each(self, value: Callable[[ExportVariant], str], otherwise: str) -> Iterator[str]:
        """A ``return`` of each variant's value, with a ``switch`` unless all are equal."""
        values = {self.constant(variant): value(variant) for variant in self.variants}
        if len(set(values.values())) > 1:
            yield "switch (variant) {"
            for constant, result in values.items():
                yield f"case {constant}: return {result};"
            yield "}"
            yield f"return {otherwise};"
        else:
            yield f"return {next(iter(values.values()))};"

    def _cases(self, body: Callable[[ExportVariant, Shape], Iterator[str]]) -> Iterator[str]:
        """``body`` for each variant and each binding of the type symbols."""
        for variant in self.variants:
            for types in self.types:
                lines = list(body(variant, types))
                if lines:
                    conditions = [f"variant == {self.constant(variant)}", *self.typed(types)]
                    yield f"if ({' && '.join(conditions)}) {{"
                    yield from (f"    {line}" for line in lines)
                    yield "}"

    def typed(self, types: Shape) -> list[str]:
        """C conditions: the shape has these types, or other values of symbols."""
        return [f"s->{name} == {self.value(name, v)}" for name, v in types.items()]

    def value(self, name: str, value: Value) -> str:
        """The C constant of a symbol's value."""
        if isinstance(value, str):
            return f"{self.prefix.upper()}_{name}_{value}"
        return f"{int(value)}LL"

    def c(self, expression: Expression, types: Shape, variant: ExportVariant | None = None) -> str:
        """An expression over a shape, with types and the variant's parameters filled in."""
        return self._bound(expression, types, variant).to_c("s->{}".format)

    def conditions(
        self,
        expression: Expression,
        types: Shape,
        variant: ExportVariant | None = None,
        *,
        true: bool = True,
    ) -> list[str]:
        """C conditions: an expression is defined on a shape, and ``true`` if it must be."""
        defined = self._bound(expression, types, variant).to_c_defined("s->{}".format)
        found = [defined, self.c(expression, types, variant) if true else ""]
        return [condition for condition in found if condition not in ("", "1LL")]

    def _bound(
        self, expression: Expression, types: Shape, variant: ExportVariant | None
    ) -> Expression:
        known = types | (variant.configuration.as_dict() if variant else {})
        return expression.bind(known, self.device)

    def count_steps(self, variant: ExportVariant) -> str:
        """How many launches and fills."""
        return str(len(variant.subject(self.experiment).steps))

    def count_scratch(self, variant: ExportVariant) -> str:
        """How many work buffers."""
        return str(len(variant.template.scratch) if variant.template else 0)

    def fits(self) -> Iterator[str]:
        """The function ``fits``: whether a step is within the device's limits."""
        limits = []
        for limit in launch_limits(self.device):
            sizes = [f"t->{limit.field}[{axis}]" for axis in limit.axes] or [f"t->{limit.field}"]
            least = f"{sizes[0]} >= {limit.least} && " if len(sizes) == 1 else ""
            limits.append(f"{least}{' * '.join(sizes)} <= {limit.most}")
        if self.attributes:
            limits += [f"t->grid[{axis}] % t->cluster[{axis}] == 0" for axis in range(3)]
        yield f"static inline int {self.prefix}_fits(const {self.prefix}_step *t)"
        yield "{"
        yield "    return " + "\n        && ".join(limits) + ";"
        yield "}"
        yield ""

    def steps(self) -> Iterator[str]:
        """The body of ``step_of``: the sizes of a launch on a shape, or the target of a memset."""

        def one(variant: ExportVariant, types: Shape) -> Iterator[str]:
            for number, step in enumerate(variant.subject(self.experiment).steps):
                yield f"if (step == {number}) {{"
                lines = (
                    self._memset(step)
                    if isinstance(step, Memset)
                    else self._launch(step, variant, types)
                )
                yield from (f"    {line}" for line in lines)
                yield "}"

        yield "out->memset = 0; out->byte = 0;"
        yield from self._cases(one)
        yield "return 0;"

    def _memset(self, step: Memset) -> Iterator[str]:
        yield "out->memset = 1;"
        yield f"out->byte = {step.byte};"
        if self.named:
            yield f"out->arguments = {quoted(step.memset)};"
        yield "return 1;"

    def _launch(self, step: Launch, variant: ExportVariant, types: Shape) -> Iterator[str]:
        if self.named:
            entry = step.entry or variant.subject(self.experiment).entry
            form, values = self._entry(entry, variant, types)
            listed = "".join(f", {value}" for value in values)
            names = step.arguments or kernel_arguments(self.experiment, variant.template)
            yield f"snprintf(out->entry, sizeof out->entry, {quoted(form)}{listed});"
            yield f"out->arguments = {quoted(', '.join(names))};"
        cluster = [("cluster", step.cluster)] if self.attributes else []
        for what, axes in (("grid", step.grid), ("block", step.block), *cluster):
            sizes = [self.c(e, types, variant) for e in axes]
            for axis, size in enumerate([*sizes, "1", "1", "1"][:3]):
                yield f"out->{what}[{axis}] = {size};"
        yield f"out->shared_bytes = {self.c(step.shared_bytes, types, variant)};"
        yield f"out->cooperative = {int(step.cooperative)};"
        if self.attributes:
            yield f"out->dependent = {self.c(step.dependent, types, variant)};"
        yield f"return {self.prefix}_fits(out);"

    def _entry(self, entry: str, variant: ExportVariant, types: Shape) -> tuple[str, list[str]]:
        """A format and its values: the entry with its parameters and types filled in."""
        language = self.experiment.kernel.language
        known = {name: type_name(str(v), language) for name, v in types.items()}
        if variant.template:
            defines = parameter_defines(variant.template, variant.configuration)
            known |= {name: str(value) for name, value in defines.items()}
        values = []

        def fill(match: re.Match[str]) -> str:
            if match[1] in known:
                return known[match[1]].replace("%", "%%")
            values.append(f"s->{match[1]}")
            return "%lld"

        return re.sub(r"\{(\w+)\}", fill, entry.replace("%", "%%")), values

    def feasible(self) -> Iterator[str]:
        """The body of ``feasible``: domain, constraints and limits, all that they read defined."""

        def one(variant: ExportVariant, types: Shape) -> Iterator[str]:
            found: dict[str, None] = {}
            for required in requirements_of(variant.subject(self.experiment), self.device):
                for factor in required.factors:
                    conditions = self.conditions(factor, types, variant, true=required.true)
                    if conditions and required.when is not None:
                        when = self.c(required.when, types, variant)
                        conditions = [f"!({when}) || {' && '.join(conditions)}"]
                    if conditions:
                        found[" && ".join(conditions)] = None
            for condition in found:
                yield f"if (!({condition}))"
                yield "    return 0;"

        yield f"{self.prefix}_step step;"
        yield "int i;"
        yield f"if (!{self.prefix}_in_domain(s))"
        yield "    return 0;"
        yield from self._cases(one)
        yield f"for (i = 0; i < {self.prefix}_steps(variant); ++i)"
        yield f"    if (!{self.prefix}_step_of(variant, i, s, &step))"
        yield "        return 0;"
        yield "return 1;"

    def options(self) -> Iterator[str]:
        """The body of ``options``: flags, and the macros that depend on the shape."""

        def one(variant: ExportVariant, types: Shape) -> Iterator[str]:
            given = variant.template.options if variant.template else None
            for option in self.experiment.kernel.options if given is None else given:
                if isinstance(option, str):
                    yield _append('" %s"', quoted(option))
                else:
                    yield from self._flag(option, variant, types)
            for name, expression in variant.derived(self.device).items():
                if expression.names:
                    value = self.c(expression, types, variant)
                    yield _append(f'" -D{name}=%lld"', f"(long long){value}")

        yield "int n = 0;"
        yield "if (size)"
        yield "    text[0] = 0;"
        yield from self._cases(one)
        yield "return n;"

    def _flag(self, option: CompilerFlag, variant: ExportVariant, types: Shape) -> Iterator[str]:
        if option.when is not None:
            yield f"if ({self.c(option.when, types, variant)})"
        if option.value is None:
            yield _append('" %s"', quoted(option.flag))
        else:
            value = self.c(option.value, types, variant)
            yield _append('" %s=%lld"', quoted(option.flag), f"(long long){value}")

    def scratch(self) -> Iterator[str]:
        """The body of ``scratch_bytes``."""

        def one(variant: ExportVariant, types: Shape) -> Iterator[str]:
            for number, scratch in enumerate(variant.template.scratch if variant.template else ()):
                size = item_bytes(str(types.get(scratch.dtype, scratch.dtype)))
                extents = [self.c(e, types, variant) for e in scratch.shape]
                yield f"if (index == {number})"
                yield f"    return {' * '.join([f'{size}LL', *extents])};"

        yield from self._cases(one)
        yield "return 0;"


def _append(form: str, *values: str) -> str:
    return f"n = kw_append(text, size, n, {', '.join((form, *values))});"


def quoted(text: str) -> str:
    """A C string literal."""
    return json.dumps(text)
