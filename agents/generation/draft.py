"""The draft of a template that each mechanical rule takes and returns."""

import re
from dataclasses import dataclass, replace

from tuner.csource.kernels import KernelSource, find_kernel
from tuner.device import Backend
from tuner.experiment.model import CompilerFlag, Experiment, Launch
from tuner.expressions import Expression
from tuner.trial import Value


@dataclass(frozen=True, slots=True)
class RuleNote:
    """What a rule looked at or introduced, and why it acted or did not."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A template in the making. ``launch`` is ``None`` if the kernel has a sequence of launches.

    ``bounded``: the kernel has launch bounds, so compilers ignore a register cap.
    """

    source: str
    language: Backend
    entry: str
    launch: Launch | None
    parameters: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    constraints: tuple[Expression, ...] = ()
    flags: tuple[CompilerFlag, ...] = ()
    notes: tuple[RuleNote, ...] = ()
    bounded: bool = False

    @classmethod
    def of(cls, experiment: Experiment) -> "Draft":
        """The kernel as it stands."""
        kernel = experiment.kernel
        launch = kernel.steps[0] if len(kernel.steps) == 1 else None
        found = find_kernel(kernel.source.text, kernel.entry, kernel.language)
        return cls(
            source=kernel.source.text,
            language=kernel.language,
            entry=kernel.entry,
            launch=launch if isinstance(launch, Launch) else None,
            bounded=found is not None and "__launch_bounds__" in found.text(found.head),
        )

    @property
    def kernel(self) -> KernelSource | None:
        """The kernel's parts in the source as it is now."""
        return find_kernel(self.source, self.entry, self.language)

    def fresh(self, wanted: str, experiment: Experiment) -> str:
        """``wanted``, or a variant of it that nothing else is called."""
        taken = set(re.findall(r"\w+", self.source)) | {name for name, _ in self.parameters}
        taken |= set(experiment.shapes.tune[0].symbols)
        taken |= {argument.name for argument in experiment.arguments}
        name = wanted
        while name in taken:
            name = f"KW_{name}"
        return name

    def with_parameter(self, name: str, values: tuple[Value, ...]) -> "Draft":
        """The draft with one more parameter."""
        return replace(self, parameters=(*self.parameters, (name, values)))

    def with_constraint(self, text: str) -> "Draft":
        """The draft with one more constraint."""
        return replace(self, constraints=(*self.constraints, Expression.parse(text)))

    def noted(self, what: str, why: str) -> "Draft":
        """The draft with one more note."""
        return replace(self, notes=(*self.notes, RuleNote(what, why)))
