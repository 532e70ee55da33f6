"""What an application takes away: tuned sources with their values baked in, and a C header.

The header chooses by shape. On a tune shape: the specialised variant where it is confirmed faster
than the general one, else the general one unless the baseline is faster there. Elsewhere in the
domain: the general one, if it is confirmed faster overall and feasible. Else the baseline.
"""

import json

from tuner.device import Device
from tuner.errors import NothingValid
from tuner.report.header import Route, Variant, identifier, render_header
from tuner.report.result import General, Result, Specialised
from tuner.report.summary import summarise
from tuner.report.text import speedup_text
from tuner.session.history import History
from tuner.space.lower import parameter_defines
from tuner.spec.experiment import Experiment, ShapeBinding, Template
from tuner.trial import Configuration


def export_files(history: History) -> dict[str, str]:
    """The export of a run, as text by file name.

    ``NAME.h`` (see :mod:`tuner.report.header`), one source for each variant that the header can
    choose, the files that the sources include, and ``export.json``, which says what each variant
    is and how it did.

    Raises:
        NothingValid: no configuration was confirmed.
    """
    experiment, device = history.experiment, history.device
    result = summarise(history)
    confirmed = result.confirmed or any(s and s.cell.comparison for s in result.specialised)
    if device is None or experiment.template is None or not confirmed:
        raise NothingValid(
            "there is nothing to export: no configuration was confirmed against the baseline"
        )
    export = _Export(experiment, experiment.template, device, result)
    return export.files()


class _Export:
    def __init__(
        self, experiment: Experiment, template: Template, device: Device, result: Result
    ) -> None:
        self.experiment = experiment
        self.template = template
        self.device = device
        self.result = result
        self.stem = identifier(experiment.name)
        self.suffix = "cu" if experiment.kernel.language == "cuda" else "cl"
        self.baseline = self.variant(
            "baseline", Configuration(()), None, "the kernel as it was", tuned=False
        )
        self.general: Variant | None = None
        if general := _confirmed(result.general):
            said = f"{general.configuration}; {speedup_text(general.speedup, general.comparison)}"
            self.general = self.variant("general", general.configuration, None, said)

    def files(self) -> dict[str, str]:
        routes = [
            Route(binding=binding, variant=self.route(index, binding))
            for index, binding in enumerate(self.experiment.shapes.tune)
        ]
        variants = list(
            {
                variant.name: variant
                for variant in (self.baseline, self.general, *(r.variant for r in routes))
                if variant
            }.values()
        )
        general = _confirmed(self.result.general)
        trusted = general and general.comparison and general.comparison.verdict == "faster"
        otherwise = self.general if self.general and trusted else self.baseline
        header = render_header(self.experiment, self.device, variants, routes, otherwise)
        return {
            f"{self.stem}.h": header,
            **{variant.file: self.source(variant) for variant in variants},
            **dict(self.experiment.kernel.headers),
            "export.json": self.manifest(variants, routes, otherwise),
        }

    def variant(
        self,
        name: str,
        configuration: Configuration,
        only: ShapeBinding | None,
        note: str,
        *,
        tuned: bool = True,
    ) -> Variant:
        return Variant(
            name=name,
            file=f"{self.stem}_{name}.{self.suffix}",
            template=self.template if tuned else None,
            configuration=configuration,
            only=only,
            note=note,
        )

    def route(self, index: int, binding: ShapeBinding) -> Variant:
        """What serves a tune shape."""
        best = self.result.specialised[index]
        general = _confirmed(self.result.general)
        if best and self.preferred(best, general):
            said = f"{best.configuration}; {speedup_text(best.cell.speedup, best.cell.comparison)}"
            name = identifier("_".join(f"{n}{v}" for n, v in binding.symbols.items()))
            return self.variant(name, best.configuration, binding, f"only {binding}: {said}")
        if self.general and general and general.comparison:
            here = general.cells[index].comparison
            verdict = here.verdict if here else "unclear"
            over_all = general.comparison.verdict == "faster"
            if verdict == "faster" or (over_all and verdict != "slower"):
                return self.general
        return self.baseline

    @staticmethod
    def preferred(best: Specialised, general: General | None) -> bool:
        """Whether a specialised variant is confirmed faster than what would serve otherwise."""
        beats_baseline = best.cell.comparison and best.cell.comparison.verdict == "faster"
        return bool(beats_baseline) and (best.preferred or general is None)

    def source(self, variant: Variant) -> str:
        """The variant's source, its values as macros in front."""
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
                f"   {', '.join(open_names)}: depend on the shape; give the compiler what "
                f"{self.stem}_options() says. */"
            )
        else:
            lines[0] += " */"
        lines += [f"#define {name} {value}" for name, value in defines.items()]
        lines += [f'#line 1 "{subject.source.name}"', subject.source.text]
        return "\n".join(lines)

    def manifest(self, variants: list[Variant], routes: list[Route], otherwise: Variant) -> str:
        data = {
            "experiment": self.experiment.name,
            "device": {
                "name": self.device.name,
                "arch": self.device.arch,
                "driver": self.device.driver,
            },
            "variants": [
                {
                    "name": variant.name,
                    "file": variant.file,
                    "configuration": variant.configuration.as_dict(),
                    "note": variant.note,
                }
                for variant in variants
            ],
            "shapes": [
                {"symbols": route.binding.symbols, "variant": route.variant.name}
                for route in routes
            ],
            "otherwise": otherwise.name,
        }
        return json.dumps(data, indent=2) + "\n"


def _confirmed(general: General | None) -> General | None:
    """The general configuration, if fresh processes saw it."""
    return general if general and general.comparison else None
