"""The export of a run: tuned sources with fixed parameter values, and a C header.

The header dispatches by the portfolio's rule (:mod:`tuner.results.portfolio`). It selects the
baseline outside the domain, and where nothing is confirmed faster or feasible.
"""

from typing import Self

from tuner.backends.registry import traits_of
from tuner.candidate import BASELINE, INCUMBENT
from tuner.device import Device
from tuner.errors import NothingValid
from tuner.experiment.model import Template
from tuner.export import example, manifest, record
from tuner.export.header import render_header
from tuner.export.manifest import ManifestRule
from tuner.export.record import render_record
from tuner.export.variant import ExportVariant, identifier
from tuner.journal.history import History
from tuner.results.result import DispatchRule, Portfolio, Result
from tuner.results.summary import summarise
from tuner.space.lower import parameter_defines
from tuner.trial import Configuration


def export_files(history: History, result: Result | None = None) -> dict[str, str]:
    """The files of a run's export: text by file name.

    - ``NAME.h``: the header, see :mod:`tuner.export.header`;
    - ``example.c``: a program that uses it, see :mod:`tuner.export.example`;
    - a source for each variant that the header selects, and the headers that sources include;
    - ``export.json``: variants, rule, arguments and launches, see :mod:`tuner.export.manifest`;
    - ``record.json``: what ``verify`` needs, see :mod:`tuner.export.record`.

    Args:
        history: the run.
        result: its summary, if already made.

    Raises:
        NothingValid: no configuration was confirmed.
    """
    return Export.of(history, result).files()


class Export:
    """What a run exports.

    ``variants`` holds each exported kernel by trial, the baseline among them; ``rule`` dispatches a
    shape to a trial, and ``fallback`` serves where that trial cannot.
    """

    @classmethod
    def of(cls, history: History, result: Result | None = None) -> Self:
        """The export of a run; ``result`` is its summary, if already made.

        Raises:
            NothingValid: no configuration was confirmed.
        """
        device = history.device
        result = result or summarise(history)
        confirmed = result.confirmed or any(s and s.cell.comparison for s in result.specialised)
        if device is None or not confirmed:
            raise NothingValid(
                "there is nothing to export: no configuration was confirmed against the baseline; "
                "continue an interrupted run with `kernelwright resume`"
            )
        return cls(history, device, result)

    def __init__(self, history: History, device: Device, result: Result) -> None:
        self.history = history
        self.experiment = experiment = history.experiment
        self.device = device
        self.result = result
        self.stem = identifier(experiment.name)
        self.suffix = traits_of(experiment.kernel.language).suffixes[0].removeprefix(".")
        portfolio = result.portfolio
        self.rule = portfolio.rule if portfolio else (DispatchRule(when=(), trial=BASELINE),)
        self.fallback = portfolio.fallback if portfolio else BASELINE
        binary = experiment.kernel.binary
        yours = f"your kernel, measured as in {binary.file.name}" if binary else "your kernel"
        self.variants = {BASELINE: self._variant("baseline", Configuration(()), yours, None)}
        general = result.general
        if general and general.comparison:
            comparison = general.comparison
            note = f"{general.configuration}; {comparison} {comparison.verdict}"
            if result.objective != "time":
                note += f" ({result.objective})"
            if general.serialised:
                note += f" with dependent launches, {general.serialised:.3f}× launched plainly"
            self.variants[general.trial] = self._variant(
                "general", general.configuration, note, history.template(general.trial)
            )
        if portfolio:
            self._add(portfolio)

    def _add(self, portfolio: Portfolio) -> None:
        """Add the portfolio's members."""
        for member in portfolio.members:
            if member.trial in self.variants:
                continue
            shapes = [
                shape.label
                for shape, trial in zip(self.result.shapes, portfolio.serves, strict=True)
                if trial == member.trial and not shape.held_out
            ]
            note = f"{member.configuration}; for {' | '.join(shapes)} and similar shapes"
            name = f"trial{member.trial}"
            if member.trial <= INCUMBENT:
                name = f"incumbent{INCUMBENT - member.trial or ''}"
            self.variants[member.trial] = self._variant(
                name, member.configuration, note, self.history.template(member.trial)
            )

    def files(self) -> dict[str, str]:
        """The text of each file by name, see :func:`export_files`."""
        header = render_header(
            self.experiment, self.device, self.variants, self.rule, self.fallback
        )
        program = example.render_example(self.experiment, self.device, self.variants)
        return {
            f"{self.stem}.h": header,
            **({example.NAME: program} if program else {}),
            **{variant.file: self._source(variant) for variant in self.variants.values()},
            **dict(self.experiment.kernel.headers),
            manifest.NAME: self._manifest(),
            record.NAME: render_record(self.experiment, self.device, self.variants, self.result),
        }

    def _variant(
        self, name: str, configuration: Configuration, note: str, template: Template | None
    ) -> ExportVariant:
        if template is not None and self.result.outcome == "unfinished":
            note += "; exported before the run had ended"
        return ExportVariant(
            name=name,
            file=f"{self.stem}_{name}.{self.suffix}",
            template=template,
            configuration=configuration,
            note=note,
        )

    def _source(self, variant: ExportVariant) -> str:
        """The variant's source, preceded by its parameter values as macros."""
        subject = variant.subject(self.experiment)
        if variant.template is None:
            return subject.source.text
        defines = parameter_defines(variant.template, variant.configuration)
        open_names = []
        for name, expression in variant.derived(self.device).items():
            if expression.names:
                open_names.append(name)
            else:
                defines[name] = int(expression.evaluate({}))
        lines = [f"/* {self.experiment.name}, {variant.name}: {variant.note.replace('*/', '* /')}"]
        if open_names:
            lines.append(
                f"   {', '.join(open_names)}: depend on the shape; compile with the options of "
                f"{self.stem}_options(). */"
            )
        else:
            lines[0] += " */"
        lines += [f"#define {name} {value}" for name, value in defines.items()]
        lines += [f'#line 1 "{subject.source.name}"', subject.source.text]
        return "\n".join(lines)

    def _manifest(self) -> str:
        rule = (
            ManifestRule(when=case.when, variant=self.variants[case.trial].name)
            for case in self.rule
        )
        made = manifest.make_manifest(
            self.experiment,
            self.device,
            tuple(map(manifest.manifest_variant, self.variants.values())),
            tuple(rule),
            self.variants[self.fallback].name,
        )
        return manifest.render_manifest(made)
