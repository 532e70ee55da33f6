"""The C header that carries tuned kernels into an application: which one, launched how.

One self-contained C99 header per experiment: the shape's domain, which variant serves a shape, and
for a variant its file, build options, launches, scratch memory and alignment. It starts nothing
itself, so that it fits every runtime. Sizes that the run's device allows are checked against the
limits it had. See :mod:`tuner.expressions.c` for what C does differently from the original.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tuner.device import Device
from tuner.expressions import C_HELPERS, Expression
from tuner.plan import Shape
from tuner.space.lower import parameter_defines
from tuner.spec.experiment import (
    CompilerFlag,
    Experiment,
    Kernel,
    Launch,
    Memset,
    ShapeBinding,
    Template,
)
from tuner.spec.resolve import item_bytes, kernel_arguments, type_name
from tuner.trial import Configuration

HELPERS = f"""\
#ifndef KERNELWRIGHT_HELPERS
#define KERNELWRIGHT_HELPERS
{C_HELPERS}\
static inline int kw_append(char *text, size_t size, int length, const char *format, ...)
{{
    size_t used = (size_t)length < size ? (size_t)length : size;
    va_list values;
    int added;
    va_start(values, format);
    added = vsnprintf(size ? text + used : NULL, size - used, format, values);
    va_end(values);
    return length + added;
}}
#endif
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One exported kernel: the baseline (``template`` is ``None``) or a tuned configuration.

    ``only`` is the one shape that it is built for; ``note`` says how it did, for people.
    """

    name: str
    file: str
    template: Template | None
    configuration: Configuration
    only: ShapeBinding | None
    note: str

    def subject(self, experiment: Experiment) -> Kernel | Template:
        """What is launched."""
        return self.template or experiment.kernel

    def derived(self, device: Device) -> dict[str, Expression]:
        """The template's derived defines with everything known filled in."""
        defines = self.template.defines if self.template else {}
        known = self.configuration.as_dict() | (self.only.symbols if self.only else {})
        return {name: expression.bind(known, device) for name, expression in defines.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """On exactly this shape, take this variant."""

    binding: ShapeBinding
    variant: Variant


def render_header(
    experiment: Experiment,
    device: Device,
    variants: Sequence[Variant],
    routes: Sequence[Route],
    otherwise: Variant,
) -> str:
    """The header's text.

    Args:
        experiment: what was tuned.
        device: where; its limits are those that launches are checked against.
        variants: the baseline first.
        routes: which variant serves each tune shape.
        otherwise: what serves the rest of the domain, where it is feasible.
    """
    return _Header(experiment, device, variants).text(routes, otherwise)


def identifier(text: str) -> str:
    """The text as a C identifier."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII)
    return f"k_{name}" if name[:1].isdigit() else name


class _Header:
    def __init__(self, experiment: Experiment, device: Device, variants: Sequence[Variant]) -> None:
        self.experiment = experiment
        self.device = device
        self.variants = variants
        self.prefix = identifier(experiment.name)
        bindings = (*experiment.shapes.tune, *experiment.shapes.held_out)
        self.symbols = list(bindings[0].symbols)
        types = [{n: v for n, v in b.symbols.items() if isinstance(v, str)} for b in bindings]
        self.types: list[Shape] = [
            dict(items) for items in dict.fromkeys(tuple(one.items()) for one in types)
        ]

    def text(self, routes: Sequence[Route], otherwise: Variant) -> str:
        p = self.prefix
        return "\n".join(
            [
                *self.comment(),
                f"#ifndef KERNELWRIGHT_{p.upper()}_H",
                f"#define KERNELWRIGHT_{p.upper()}_H",
                "",
                "#include <stdarg.h>",
                "#include <stddef.h>",
                "#include <stdint.h>",
                "#include <stdio.h>",
                "",
                HELPERS,
                *self.declarations(),
                *self.function("int", "in_domain", self.domain(), "const {p}_shape *s"),
                *self.function("const char *", "file", self.each(lambda v: _quoted(v.file), '""')),
                *self.function("int", "steps", self.each(self.count_steps, "0")),
                *self.fits(),
                *self.function(
                    "int", "step_of", self.steps(), "int step, const {p}_shape *s, {p}_step *out"
                ),
                *self.function("int", "feasible", self.feasible(), "const {p}_shape *s"),
                *self.function("int", "select", self.select(routes, otherwise), "@"),
                *self.function(
                    "int", "options", self.options(), "const {p}_shape *s, char *text, size_t size"
                ),
                *self.function("int", "scratches", self.each(self.count_scratch, "0")),
                *self.function(
                    "long long", "scratch_bytes", self.scratch(), "int index, const {p}_shape *s"
                ),
                *self.aligned(),
                "#endif",
                "",
            ]
        )

    def comment(self) -> Iterator[str]:
        yield f"/* {self.experiment.name}: kernels tuned for {_plain(self.device.name)}."
        yield " *"
        yield f" * {self.prefix}_select() names the variant for a shape, {self.prefix}_file() its"
        yield f" * source, {self.prefix}_options() how to build it (values that depend on the shape"
        yield " * are macros there; all others stand in the source), and"
        yield f" * {self.prefix}_step_of() each of its launches: grid in blocks, block in threads."
        yield " *"
        for variant in self.variants:
            yield f" * {variant.name}: {_plain(variant.note)}"
        yield " */"

    def declarations(self) -> Iterator[str]:
        p = self.prefix
        for name in self.types[0]:
            values = list(dict.fromkeys(str(one[name]) for one in self.types))
            listed = ", ".join(f"{p.upper()}_{name}_{value}" for value in values)
            yield f"enum {{ {listed} }};"
        listed = ", ".join(self.constant(variant) for variant in self.variants)
        yield f"enum {{ {listed} }};"
        fields = " ".join(f"long long {name};" for name in self.symbols)
        yield f"typedef struct {{ {fields} }} {p}_shape;"
        yield "/* A launch of `entry`; or, if `memset`, a fill of `arguments` with `byte`. */"
        yield "typedef struct {"
        yield "    int memset, byte, cooperative;"
        yield "    char entry[512];"
        yield "    const char *arguments;"
        yield "    long long grid[3], block[3], shared_bytes;"
        yield f"}} {p}_step;"
        yield ""

    def constant(self, variant: Variant) -> str:
        return f"{self.prefix}_{variant.name}".upper()

    def function(
        self, kind: str, name: str, body: Iterator[str], parameters: str | None = None
    ) -> Iterator[str]:
        """A function of the variant and ``parameters``; of the shape alone for ``@``."""
        p = self.prefix
        shape_only = parameters == "@" or name == "in_domain"
        rest = f"const {p}_shape *s" if parameters == "@" else (parameters or "").format(p=p)
        listed = rest if shape_only else ", ".join(filter(None, ["int variant", rest]))
        space = "" if kind.endswith("*") else " "
        yield f"static inline {kind}{space}{p}_{name}({listed})"
        yield "{"
        yield from (f"    {line}" for line in body)
        yield "}"
        yield ""

    def each(self, value: Callable[[Variant], str], otherwise: str) -> Iterator[str]:
        yield "switch (variant) {"
        for variant in self.variants:
            yield f"case {self.constant(variant)}: return {value(variant)};"
        yield "}"
        yield f"return {otherwise};"

    def cases(
        self, body: Callable[[Variant, Shape], Iterator[str]], only: Sequence[Variant] | None = None
    ) -> Iterator[str]:
        """``body`` for each variant and each binding of the type symbols."""
        for variant in self.variants if only is None else only:
            for types in self.types:
                lines = list(body(variant, types))
                if lines:
                    conditions = [f"variant == {self.constant(variant)}", *self.typed(types)]
                    yield f"if ({' && '.join(conditions)}) {{"
                    yield from (f"    {line}" for line in lines)
                    yield "}"

    def typed(self, types: Shape) -> list[str]:
        return [f"s->{name} == {self.prefix.upper()}_{name}_{v}" for name, v in types.items()]

    def c(self, expression: Expression, types: Shape, variant: Variant | None = None) -> str:
        known = types | (variant.configuration.as_dict() if variant else {})
        return expression.bind(known, self.device).to_c(lambda name: f"s->{name}")

    def domain(self) -> Iterator[str]:
        for types in self.types:
            conditions = self.typed(types)
            conditions += [self.c(e, types) for e in self.experiment.shapes.domain]
            conditions += [f"s->{name} > 0" for name in self.symbols if name not in types]
            yield f"if ({' && '.join(conditions)})"
            yield "    return 1;"
        yield "return 0;"

    def count_steps(self, variant: Variant) -> str:
        return str(len(variant.subject(self.experiment).steps))

    def count_scratch(self, variant: Variant) -> str:
        return str(len(variant.template.scratch) if variant.template else 0)

    def fits(self) -> Iterator[str]:
        device = self.device
        limits = [f"t->shared_bytes >= 0 && t->shared_bytes <= {device.max_shared_bytes_per_block}"]
        for axis in range(3):
            limits += [
                f"t->grid[{axis}] >= 1 && t->grid[{axis}] <= {device.max_grid[axis]}",
                f"t->block[{axis}] >= 1 && t->block[{axis}] <= {device.max_block[axis]}",
            ]
        product = "t->block[0] * t->block[1] * t->block[2]"
        limits.append(f"{product} <= {device.max_threads_per_block}")
        yield f"static inline int {self.prefix}_fits(const {self.prefix}_step *t)"
        yield "{"
        yield "    return " + "\n        && ".join(limits) + ";"
        yield "}"
        yield ""

    def steps(self) -> Iterator[str]:
        def one(variant: Variant, types: Shape) -> Iterator[str]:
            for number, step in enumerate(variant.subject(self.experiment).steps):
                yield f"if (step == {number}) {{"
                lines = (
                    self.memset(step)
                    if isinstance(step, Memset)
                    else self.launch(step, variant, types)
                )
                yield from (f"    {line}" for line in lines)
                yield "}"

        yield "out->memset = 0; out->byte = 0;"
        yield from self.cases(one)
        yield "return 0;"

    def memset(self, step: Memset) -> Iterator[str]:
        yield "out->memset = 1;"
        yield f"out->byte = {step.byte};"
        yield f"out->arguments = {_quoted(step.memset)};"
        yield "return 1;"

    def launch(self, step: Launch, variant: Variant, types: Shape) -> Iterator[str]:
        entry = step.entry or variant.subject(self.experiment).entry
        form, values = self.entry(entry, variant, types)
        listed = "".join(f", {value}" for value in values)
        names = step.arguments or kernel_arguments(self.experiment, variant.template)
        yield f"snprintf(out->entry, sizeof out->entry, {_quoted(form)}{listed});"
        yield f"out->arguments = {_quoted(', '.join(names))};"
        for what, axes in (("grid", step.grid), ("block", step.block)):
            sizes = [self.c(e, types, variant) for e in axes]
            for axis, size in enumerate([*sizes, "1", "1"][:3]):
                yield f"out->{what}[{axis}] = {size};"
        yield f"out->shared_bytes = {self.c(step.shared_bytes, types, variant)};"
        yield f"out->cooperative = {int(step.cooperative)};"
        yield f"return {self.prefix}_fits(out);"

    def entry(self, entry: str, variant: Variant, types: Shape) -> tuple[str, list[str]]:
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
        def constraints(variant: Variant, types: Shape) -> Iterator[str]:
            for constraint in variant.template.constraints if variant.template else ():
                condition = self.c(constraint, types, variant)
                if condition != "1LL":
                    yield f"if (!({condition}))"
                    yield "    return 0;"

        yield f"{self.prefix}_step step;"
        yield "int i;"
        yield f"if (!{self.prefix}_in_domain(s))"
        yield "    return 0;"
        yield from self.cases(constraints)
        yield f"for (i = 0; i < {self.prefix}_steps(variant); ++i)"
        yield f"    if (!{self.prefix}_step_of(variant, i, s, &step))"
        yield "        return 0;"
        yield "return 1;"

    def select(self, routes: Sequence[Route], otherwise: Variant) -> Iterator[str]:
        for route in routes:
            symbols = route.binding.symbols
            conditions = [
                f"s->{name} == {self.prefix.upper()}_{name}_{value}"
                if isinstance(value, str)
                else f"s->{name} == {int(value)}"
                for name, value in symbols.items()
            ]
            yield f"if ({' && '.join(conditions)})"
            yield f"    return {self.constant(route.variant)};"
        baseline = self.constant(self.variants[0])
        if otherwise is self.variants[0]:
            yield f"return {baseline};"
        else:
            chosen = self.constant(otherwise)
            yield f"return {self.prefix}_feasible({chosen}, s) ? {chosen} : {baseline};"

    def options(self) -> Iterator[str]:
        def one(variant: Variant, types: Shape) -> Iterator[str]:
            given = variant.template.options if variant.template else None
            for option in self.experiment.kernel.options if given is None else given:
                if isinstance(option, str):
                    yield _append('" %s"', _quoted(option))
                else:
                    yield from self.flag(option, variant, types)
            for name, expression in variant.derived(self.device).items():
                if expression.names:
                    value = self.c(expression, types, variant)
                    yield _append(f'" -D{name}=%lld"', f"(long long){value}")

        yield "int n = 0;"
        yield "if (size)"
        yield "    text[0] = 0;"
        yield from self.cases(one)
        yield "return n;"

    def flag(self, option: CompilerFlag, variant: Variant, types: Shape) -> Iterator[str]:
        if option.when is not None:
            yield f"if ({self.c(option.when, types, variant)})"
        if option.value is None:
            yield _append('" %s"', _quoted(option.flag))
        else:
            value = self.c(option.value, types, variant)
            yield _append('" %s=%lld"', _quoted(option.flag), f"(long long){value}")

    def scratch(self) -> Iterator[str]:
        def one(variant: Variant, types: Shape) -> Iterator[str]:
            for number, scratch in enumerate(variant.template.scratch if variant.template else ()):
                size = item_bytes(str(types.get(scratch.dtype, scratch.dtype)))
                extents = [self.c(e, types, variant) for e in scratch.shape]
                yield f"if (index == {number})"
                yield f"    return {' * '.join([f'{size}LL', *extents])};"

        yield from self.cases(one)
        yield "return 0;"

    def aligned(self) -> Iterator[str]:
        buffers = [a for a in self.experiment.arguments if a.is_buffer and a.align]
        listed = ", ".join(f"const void *{a.name}" for a in buffers) or "void"
        checks = [f"(uintptr_t){a.name} % {a.align} == 0" for a in buffers] or ["1"]
        yield "/* Whether buffers start where the kernels expect them to. */"
        yield f"static inline int {self.prefix}_aligned({listed})"
        yield "{"
        yield f"    return {' && '.join(checks)};"
        yield "}"
        yield ""


def _append(form: str, *values: str) -> str:
    return f"n = kw_append(text, size, n, {', '.join((form, *values))});"


def _quoted(text: str) -> str:
    """A C string literal."""
    return json.dumps(text)


def _plain(text: str) -> str:
    """Text that cannot end a comment."""
    ascii_text = re.sub(r"[^ -~]", "?", text.replace("×", "x"))
    return ascii_text.replace("*/", "* /").replace("/*", "/ *")
