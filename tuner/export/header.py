"""The C header of an export: which variant serves a shape, and how to launch it.

One self-contained C99 header per experiment, with the domain, the selection of a variant, and for
each variant its file, build options, launches, scratch memory and alignment. It launches nothing
itself, so that it suits every runtime. Launches are checked against the limits of the run's device.
:mod:`tuner.expressions.c` lists where C expressions differ.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from tuner.candidate import BASELINE
from tuner.device import Device
from tuner.experiment.constants import fixed_scalars
from tuner.experiment.model import Experiment
from tuner.export.launch_code import LaunchCode, quoted
from tuner.export.variant import ExportVariant, identifier
from tuner.expressions import C_HELPERS
from tuner.results.result import DispatchCondition, DispatchRule
from tuner.space.requirements import served

HELPERS = f"""\
#ifndef KERNELWRIGHT_HELPERS
#define KERNELWRIGHT_HELPERS
{C_HELPERS}\
#endif
"""

APPEND = """\
#ifndef KERNELWRIGHT_APPEND
#define KERNELWRIGHT_APPEND
static inline int kw_append(char *text, size_t size, int length, const char *format, ...)
{
    size_t used = (size_t)length < size ? (size_t)length : size;
    va_list values;
    int added;
    va_start(values, format);
    added = vsnprintf(size ? text + used : NULL, size - used, format, values);
    va_end(values);
    return length + added;
}
#endif
"""


def render_header(
    experiment: Experiment,
    device: Device,
    variants: Mapping[int, ExportVariant],
    rule: Sequence[DispatchRule],
    fallback: int,
) -> str:
    """The header's text, for variants by trial; ``fallback`` serves where ``rule`` cannot."""
    return _Header(experiment, device, variants, named=True).text(rule, fallback)


def render_dispatch(
    experiment: Experiment,
    device: Device,
    variants: Mapping[int, ExportVariant],
    rule: Sequence[DispatchRule],
    fallback: int,
) -> str:
    """The part of the header that chooses a variant and sizes its launches; needs no ``#include``.

    Also C++. Steps have sizes only: no ``entry`` and no ``arguments``.
    """
    return _Header(experiment, device, variants, named=False).dispatch(rule, fallback)


class _Header:
    def __init__(
        self,
        experiment: Experiment,
        device: Device,
        variants: Mapping[int, ExportVariant],
        *,
        named: bool,
    ) -> None:
        self.experiment = experiment
        self.device = device
        self.variants = variants
        self.named = named
        self.prefix = identifier(experiment.name)
        self.launching = LaunchCode(experiment, device, list(variants.values()), named=named)

    def text(self, rule: Sequence[DispatchRule], fallback: int) -> str:
        p, launching = self.prefix, self.launching
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
                APPEND,
                self.dispatch(rule, fallback),
                *self.function(
                    "const char *", "file", launching.each(lambda v: quoted(v.file), '""')
                ),
                *self.function(
                    "int",
                    "options",
                    launching.options(),
                    "const {p}_shape *s, char *text, size_t size",
                ),
                *self.function("int", "scratches", launching.each(launching.count_scratch, "0")),
                *self.fixed(),
                "#endif",
                "",
            ]
        )

    def dispatch(self, rule: Sequence[DispatchRule], fallback: int) -> str:
        launching = self.launching
        return "\n".join(
            [
                HELPERS,
                *self.declarations(),
                *self.function("int", "in_domain", self.domain(), "const {p}_shape *s"),
                *self.function("int", "steps", launching.each(launching.count_steps, "0")),
                *launching.fits(),
                *self.function(
                    "int",
                    "step_of",
                    launching.steps(),
                    "int step, const {p}_shape *s, {p}_step *out",
                ),
                *self.function("int", "feasible", launching.feasible(), "const {p}_shape *s"),
                *self.function("int", "select", self.select(rule, fallback), "@"),
                *self.function(
                    "long long",
                    "scratch_bytes",
                    launching.scratch(),
                    "int index, const {p}_shape *s",
                ),
                *self.aligned(),
            ]
        )

    def comment(self) -> Iterator[str]:
        yield f"/* {self.experiment.name}: kernels tuned for {_plain(self.device.name)}."
        yield " *"
        yield f" * {self.prefix}_select() returns the variant for a shape, {self.prefix}_file() its"
        yield f" * source, {self.prefix}_options() its compiler options (macros whose values depend"
        yield " * on the shape; the source defines all others), and"
        yield f" * {self.prefix}_step_of() each of its launches: grid in blocks, block in threads."
        if self.launching.attributes:
            yield " * `dependent` and `cluster` are launch attributes (programmatic stream"
            yield " * serialization, cluster dimension)."
        yield f" * {self.prefix}_scratches() is the number of scratch buffers that it needs, of"
        yield f" * {self.prefix}_scratch_bytes() each; {self.prefix}_aligned() checks arguments."
        yield f" * On an empty shape (a size of 0) {self.prefix}_select() returns the baseline, and"
        yield f" * {self.prefix}_step_of() returns 0 for a step without blocks or threads: launch"
        yield " * no step of the variant then."
        if scalars := fixed_scalars(self.experiment):
            listed = ", ".join(f"{one.name} = {one.value}" for one in scalars)
            yield f" * Kernels were tested with {_plain(listed)} alone:"
            yield f" * {self.prefix}_fixed() checks that."
        yield " *"
        if not self.experiment.shapes.domain:
            yield " * The spec has no domain: only the shapes that were confirmed are served."
            yield " *"
        for variant in self.variants.values():
            yield f" * {variant.name}: {_plain(variant.note)}"
        yield " */"

    def declarations(self) -> Iterator[str]:
        p = self.prefix
        for name in self.launching.types[0]:
            values = list(dict.fromkeys(str(one[name]) for one in self.launching.types))
            listed = ", ".join(f"{p.upper()}_{name}_{value}" for value in values)
            yield f"enum {{ {listed} }};"
        listed = ", ".join(self.launching.constant(variant) for variant in self.variants.values())
        yield f"enum {{ {listed} }};"
        fields = " ".join(f"long long {name};" for name in self.launching.symbols)
        yield f"typedef struct {{ {fields} }} {p}_shape;"
        if self.named:
            yield "/* A launch of `entry`; or, if `memset`, a fill of `arguments` with `byte`. */"
        yield "typedef struct {"
        attributes = self.launching.attributes
        yield f"    int memset, byte, cooperative{', dependent' if attributes else ''};"
        if self.named:
            yield "    char entry[512];"
            yield "    const char *arguments;"
        cluster = "cluster[3], " if attributes else ""
        yield f"    long long grid[3], block[3], {cluster}shared_bytes;"
        yield f"}} {p}_step;"
        yield ""

    def function(
        self, kind: str, name: str, body: Iterator[str], parameters: str | None = None
    ) -> Iterator[str]:
        """A function of the variant and ``parameters``; for ``@`` of the shape alone."""
        p = self.prefix
        shape_only = parameters == "@" or name == "in_domain"
        rest = f"const {p}_shape *s" if parameters == "@" else (parameters or "").format(p=p)
        listed = rest if shape_only else ", ".join(filter(None, ["int variant", rest]))
        space = "" if kind.endswith("*") else " "
        lines = list(body)
        text = "\n".join(lines)
        yield f"static inline {kind}{space}{p}_{name}({listed})"
        yield "{"
        for given in re.findall(r"(\w+)(?=,|$)", listed):
            if not re.search(rf"\b{given}\b", text):
                yield f"    (void){given};"
        yield from (f"    {line}" for line in lines)
        yield "}"
        yield ""

    def domain(self) -> Iterator[str]:
        for types in self.launching.types:
            conditions = self.launching.typed(types)
            for one in served(self.experiment):
                conditions += self.launching.conditions(one, types) or ["1"]
            conditions += [f"s->{name} > 0" for name in self.launching.symbols if name not in types]
            yield f"if ({' && '.join(conditions)})"
            yield "    return 1;"
        yield "return 0;"

    def select(self, rule: Sequence[DispatchRule], fallback: int) -> Iterator[str]:
        baseline, instead = (self.constant(trial) for trial in (BASELINE, fallback))
        if any(case.trial != fallback for case in rule):
            always = next((case.trial for case in rule if not case.when), fallback)
            yield f"int chosen = {self.constant(always)};"
            for case in rule:
                if case.when:
                    yield f"if ({' && '.join(self.condition(one) for one in case.when)})"
                    yield f"    chosen = {self.constant(case.trial)};"
            yield f"if ({self.prefix}_feasible(chosen, s))"
            yield "    return chosen;"
        if fallback == BASELINE:
            yield f"return {baseline};"
        else:
            yield f"return {self.prefix}_feasible({instead}, s) ? {instead} : {baseline};"

    def condition(self, one: DispatchCondition) -> str:
        value = self.launching.value(one.symbol, one.value)
        return f"s->{one.symbol} {one.relation} {value}"

    def constant(self, trial: int) -> str:
        return self.launching.constant(self.variants[trial])

    def aligned(self) -> Iterator[str]:
        buffers = [a for a in self.experiment.arguments if a.is_buffer and a.align]
        listed = ", ".join(f"const void *{a.name}" for a in buffers) or "void"
        checks = [f"(uintptr_t){a.name} % {a.align} == 0" for a in buffers] or ["1"]
        yield "/* Whether buffers are aligned as the kernels require. */"
        yield f"static inline int {self.prefix}_aligned({listed})"
        yield "{"
        yield f"    return {' && '.join(checks)};"
        yield "}"
        yield ""

    def fixed(self) -> Iterator[str]:
        scalars = fixed_scalars(self.experiment)
        if not scalars:
            return
        parameters, checks = [], []
        for one in scalars:
            floating = one.dtype.startswith(("float", "bfloat"))
            cast = "(float)" if floating and one.dtype != "float64" else ""
            parameters.append(f"{'double' if floating else 'long long'} {one.name}")
            checks.append(f"{cast}{one.name} == {cast}{one.value}")
        yield "/* Whether scalars have the only values that the kernels were tested with. */"
        yield f"static inline int {self.prefix}_fixed({', '.join(parameters)})"
        yield "{"
        yield f"    return {' && '.join(checks)};"
        yield "}"
        yield ""


def _plain(text: str) -> str:
    """ASCII text that cannot end a C comment."""
    ascii_text = re.sub(r"[^ -~]", "?", text.replace("×", "x"))
    return ascii_text.replace("*/", "* /").replace("/*", "/ *")
