"""One exported kernel: the baseline, or a template with parameter values."""

import re
from dataclasses import dataclass

from tuner.device import Device
from tuner.experiment.model import Experiment, Kernel, Template
from tuner.expressions import Expression
from tuner.trial import Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportVariant:
    """One exported kernel: the baseline if ``template`` is ``None``; ``note`` is for people."""

    name: str
    file: str
    template: Template | None
    configuration: Configuration
    note: str

    def subject(self, experiment: Experiment) -> Kernel | Template:
        """The kernel or template that is launched."""
        return self.template or experiment.kernel

    def derived(self, device: Device) -> dict[str, Expression]:
        """The template's derived macros, with parameters and device limits filled in."""
        defines = self.template.defines if self.template else {}
        known = self.configuration.as_dict()
        return {name: expression.bind(known, device) for name, expression in defines.items()}


def identifier(text: str) -> str:
    """The text as a C identifier."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII)
    return f"k_{name}" if name[:1].isdigit() else name
