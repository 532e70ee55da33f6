"""The file of tuned CUDA kernels that an application's source includes.

It holds the dispatch of :mod:`tuner.export.header`, each tuned kernel in a namespace of its own,
and the functions of :mod:`tuner.export.tuned_launch`.

A kernel whose macros or entry depend on the shape is compiled once for each of their values among
the confirmed shapes; at other values the original is launched. Its text is there once: the file
includes itself for it, with the macros defined.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.candidate import BASELINE
from tuner.csource.device_code import device_code
from tuner.csource.renaming import with_renamed_functions
from tuner.errors import NothingValid
from tuner.experiment.arguments import type_name
from tuner.experiment.model import Launch
from tuner.export.bundle import Export
from tuner.export.embedding import Embedded, defined_macros, embedded
from tuner.export.header import render_dispatch
from tuner.export.launch_code import LaunchCode
from tuner.export.original import PLACEHOLDER, OriginalLaunch, original_launch
from tuner.export.regions import digest
from tuner.export.tuned_launch import Instance, TunedLaunch
from tuner.export.variant import ExportVariant
from tuner.plan import KernelStep
from tuner.results.portfolio import choose
from tuner.space.lower import lower
from tuner.trial import Infeasible, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedFile:
    """The file's text, and what a call of its function ``NAMESPACE::launch`` takes.

    A call passes first ``original.entry_symbols``, then ``original.missing``. ``constants`` has C++
    for a symbol of the entry and the template argument for a value that was measured. ``notes`` are
    for people.
    """

    text: str
    namespace: str
    original: OriginalLaunch
    constants: Mapping[tuple[str, str], str]
    notes: tuple[str, ...]


def render_tuned(export: Export, *, file: str, around: str, run: str) -> TunedFile:
    """The file for an export.

    Args:
        export: variants, and the rule that dispatches between them.
        file: the file's name.
        around: the application's source.
        run: the name of the run, for people.

    Raises:
        NothingValid: the original serves every shape.
        SpecError: the experiment cannot be launched from an application's source.
    """
    serving = {case.trial for case in export.rule} | {export.fallback, BASELINE}
    if serving == {BASELINE}:
        raise NothingValid("there is nothing to apply: the original kernel serves every shape")
    used = {trial: variant for trial, variant in export.variants.items() if trial in serving}
    return _TunedFile(export, used, file, around).render(run)


class _TunedFile:
    def __init__(
        self, export: Export, variants: Mapping[int, ExportVariant], file: str, around: str
    ) -> None:
        named = f"kernelwright_{file.partition('.')[0].removesuffix('_tuned')}"
        self.experiment = experiment = replace(export.experiment, name=named)
        self.device = device = export.device
        self.original = original_launch(experiment)
        self.variants, self.rule, self.fallback = variants, export.rule, export.fallback
        self.file, self.around = file, around
        self.tuned = {trial: one for trial, one in variants.items() if trial != BASELINE}
        self.code = LaunchCode(experiment, device, list(variants.values()), named=False)
        self.prefix = self.code.prefix
        self.instances = {trial: self._instances(trial) for trial in self.tuned}
        self.sources = {trial: self._source(variant) for trial, variant in self.tuned.items()}

    def render(self, run: str) -> TunedFile:
        launch = TunedLaunch(
            self.experiment, self.device, self.original, self.code, self.variants, self.instances
        )
        dispatch = render_dispatch(
            self.experiment, self.device, self.variants, self.rule, self.fallback
        )
        content = [dispatch, *(source.text for source in self.sources.values())]
        guard = f"{self.prefix.upper()}_{digest(content).upper()}"
        lines = [
            f"// Kernels that {run} tuned on {_plain(self.device.name)}.",
            f"// {self.prefix}::launch() launches them in place of the original.",
            *self._texts(),
            f"#elif !defined({guard})",
            f"#define {guard}",
            "",
            *dict.fromkeys(line for one in self.sources.values() for line in one.includes),
            "",
            *self._kernels(),
            "#ifndef __CUDACC_RTC__",
            "#include <cuda_runtime.h>",
            "#include <math.h>",
            "#include <stddef.h>",
            "#include <stdint.h>",
            "#include <string.h>",
            "",
            dispatch,
            "namespace {",
            f"namespace {self.prefix} {{",
            "",
            *launch.lines(),
            "}  // namespace",
            "}  // namespace",
            "#endif",
            "#endif",
            "",
        ]
        return TunedFile(
            text="\n".join(lines),
            namespace=self.prefix,
            original=self.original,
            constants=dict(self._constants()),
            notes=tuple(self._notes()),
        )

    @property
    def _text(self) -> str:
        """The macro whose value says which kernel's text is included."""
        return f"{self.prefix.upper()}_TEXT"

    def _texts(self) -> Iterator[str]:
        """The text of each tuned kernel, as branches of a conditional."""
        for number, (trial, source) in enumerate(self.sources.items()):
            yield f"#{'el' if number else ''}if defined({self._text}) && {self._text} == {number}"
            yield f"// {_plain(self.variants[trial].note)}"
            yield ""
            yield source.text
            yield ""

    def _kernels(self) -> Iterator[str]:
        """The namespaces of the tuned kernels.

        Macros of the file around mean nothing in them, and are restored behind them.
        """
        macros = defined_macros(self.around)
        used = [set(re.findall(r"\w+", one.text)) & macros for one in self.sources.values()]
        own = [source.macros for source in self.sources.values()]
        defined = [set(one.defines) for each in self.instances.values() for one in each]
        names = sorted(set().union(*used, *own, *defined))
        for name in names:
            yield f'#pragma push_macro("{name}")'
            yield f"#undef {name}"
        for number, (trial, instances) in enumerate(self.instances.items()):
            yield from self._instantiated(number, instances, self.sources[trial].macros)
            yield ""
        yield from (f'#pragma pop_macro("{name}")' for name in names)
        yield ""

    def _instantiated(
        self, text: int, instances: Sequence[Instance], macros: frozenset[str]
    ) -> Iterator[str]:
        """The namespaces of one tuned kernel, and the macros that differ between them."""
        common = dict(set.intersection(*(set(one.defines.items()) for one in instances)))
        first = {name: value for name, value in instances[0].defines.items() if name in common}
        yield from _defined({self._text: text} | first)
        for one in instances:
            own = {name: value for name, value in one.defines.items() if name not in common}
            yield from _defined(own)
            yield f"namespace {{ namespace {self.prefix} {{ namespace {one.namespace} {{"
            yield f'#include "{self.file}"'
            yield "} } }"
            yield from (f"#undef {name}" for name in [*own, *sorted(macros - own.keys())])
        yield from (f"#undef {name}" for name in [self._text, *first])

    def _source(self, variant: ExportVariant) -> Embedded:
        """The device code of a variant, with the headers that it reaches."""
        subject, headers = variant.subject(self.experiment), self.experiment.kernel.headers
        launches = [step for step in subject.steps if isinstance(step, Launch)]
        entries = tuple(dict.fromkeys(one.entry or subject.entry for one in launches))
        code = device_code(subject.source.name, subject.source.text, headers, entries)
        source = embedded(code.source, dict(code.headers))
        nearby = " ".join((self.around, *(text for _, text in headers)))
        words = set(re.findall(r"\w+", nearby))
        return replace(source, text=with_renamed_functions(source.text, words))

    def _instances(self, trial: int) -> tuple[Instance, ...]:
        """The builds of a variant that serve confirmed shapes."""
        experiment, variant = self.experiment, self.variants[trial]
        shapes = (*experiment.shapes.tune, *experiment.shapes.held_out)
        served = [one for one in shapes if choose(self.rule, one.symbols) == trial] or shapes
        plan = lower(experiment, variant.template, variant.configuration, served, self.device)
        derived = variant.derived(self.device)
        subject = variant.subject(experiment)
        launches = [step for step in subject.steps if isinstance(step, Launch)]
        named = {n for one in launches for n in PLACEHOLDER.findall(one.entry or subject.entry)}
        found: dict[tuple[str, ...], Instance] = {}
        for binding, cell in zip(served, plan.cells, strict=True):
            if isinstance(cell, Infeasible):
                continue
            types: dict[str, Value] = {
                name: value for name, value in binding.symbols.items() if isinstance(value, str)
            }
            fixed = {n: v for n, v in binding.symbols.items() if n in types or n in named}
            defines = dict(plan.builds[cell.build].defines)
            macros = [
                f"{self.code.c(expression, types, variant)} == {defines[name]}LL"
                for name, expression in derived.items()
                if expression.names
            ]
            instance = Instance(
                namespace=f"{variant.name}_{len(found)}",
                when=(*self.code.typed(fixed), *macros),
                defines=defines,
                entries=tuple(s.entry if isinstance(s, KernelStep) else "" for s in cell.steps),
            )
            found.setdefault(instance.when, instance)
        return tuple(found.values())

    def _constants(self) -> Iterator[tuple[tuple[str, str], str]]:
        shapes = (*self.experiment.shapes.tune, *self.experiment.shapes.held_out)
        for name in self.original.entry_symbols:
            for value in dict.fromkeys(one.symbols[name] for one in shapes):
                constant = self.code.value(name, value)
                if not isinstance(value, str):
                    yield (name, str(value)), constant
                    continue
                spelling = "".join(type_name(value, "cuda").split())
                for written in {spelling, spelling.removeprefix("__")}:
                    yield (name, written), constant

    def _notes(self) -> Iterator[str]:
        """What of the tuned kernels differs from their measurement, or is easily missed."""
        for argument in self.original.arguments:
            if argument.kind == "scalar" and isinstance(argument.value, float):
                yield (
                    f"tuned kernels serve {argument.name} = {argument.value} alone, which is what "
                    "the run passed"
                )
            if argument.kind == "struct":
                yield (
                    f"tuned kernels serve a {argument.name} with the contents that the spec gives "
                    "it alone"
                )
        if not self.experiment.shapes.domain:
            yield "the spec has no domain: tuned kernels serve the confirmed shapes alone"
        yours = [str(option) for option in self.experiment.kernel.options]
        for trial, variant in self.tuned.items():
            template = variant.template
            if any(expression.names for expression in variant.derived(self.device).values()):
                yield (
                    f"{variant.name} is compiled for {len(self.instances[trial])} sets of values "
                    "of its macros, which depend on the shape; at other values the original is "
                    "launched"
                )
            if template and template.scratch:
                yield f"{variant.name} allocates work memory from the stream's pool at each launch"
            options = yours
            if template and template.options is not None:
                options = [str(option) for option in template.options]
            if options != yours:
                yield (
                    f"{variant.name} was measured with {' '.join(options) or 'no options'}, the "
                    f"original with {' '.join(yours) or 'none'}: included in a source it is "
                    "compiled with the options of that source"
                )


def _defined(macros: Mapping[str, int]) -> Iterator[str]:
    return (f"#define {name} {value}" for name, value in macros.items())


def _plain(text: str) -> str:
    """Text that is one comment of ASCII."""
    return re.sub(r"[^ -~]", "?", text.replace("×", "x")).rstrip("\\")
