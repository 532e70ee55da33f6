"""The draft of a template that each mechanical rule takes and returns."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tuner.csource.kernels import KernelSource, find_kernel
from tuner.device import Backend
from tuner.experiment.model import CompilerFlag, Experiment, Launch, Memset
from tuner.expressions import Expression
from tuner.trial import Value


@dataclass(frozen=True, slots=True)
class RuleNote:
    """What a rule looked at or introduced, and why it acted or did not."""

    what: str
    why: str


Rule = Callable[["Draft", Experiment], "Draft"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A template in the making, seen from the launch ``at`` one of its steps, or from none.

    ``entry`` is the kernel of the launches that name none. ``bounded``: all kernels have launch
    bounds, so compilers ignore a register cap.
    """

    source: str
    language: Backend
    entry: str
    steps: tuple[Launch | Memset, ...]
    at: int = 0
    parameters: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    constraints: tuple[Expression, ...] = ()
    flags: tuple[CompilerFlag, ...] = ()
    notes: tuple[RuleNote, ...] = ()
    bounded: bool = False

    @classmethod
    def of(cls, experiment: Experiment) -> "Draft":
        """The kernel as it stands."""
        kernel = experiment.kernel
        draft = cls(
            source=kernel.source.text,
            language=kernel.language,
            entry=kernel.entry,
            steps=kernel.steps,
        )
        found = [view.kernel for view in draft.views()]
        bounded = [one is not None and "__launch_bounds__" in one.text(one.head) for one in found]
        return replace(draft, bounded=bool(bounded) and all(bounded))

    @property
    def launch(self) -> Launch | None:
        """The launch in view."""
        step = self.steps[self.at] if self.at < len(self.steps) else None
        return step if isinstance(step, Launch) else None

    @property
    def launched(self) -> str:
        """The name expression of the kernel in view."""
        return (self.launch and self.launch.entry) or self.entry

    @property
    def kernel(self) -> KernelSource | None:
        """The parts of the kernel in view, in the source as it is now."""
        return find_kernel(self.source, self.launched, self.language)

    def views(self) -> "list[Draft]":
        """The draft from each of its launches."""
        places = [at for at, step in enumerate(self.steps) if isinstance(step, Launch)]
        return [replace(self, at=at) for at in places or [0]]

    def each(self, rule: "Rule", experiment: Experiment) -> "Draft":
        """The draft after a rule was applied to each launch in turn."""
        draft = self
        for view in self.views():
            draft = rule(replace(draft, at=view.at), experiment)
        return replace(draft, at=self.at)

    @property
    def several(self) -> bool:
        """Whether there is more than one launch."""
        return len(self.views()) > 1

    @property
    def shared(self) -> bool:
        """Whether another launch is of the kernel in view."""
        own = self.launched.partition("<")[0]
        return sum(view.launched.partition("<")[0] == own for view in self.views()) > 1

    def with_launch(self, launch: Launch) -> "Draft":
        """The draft with another launch in view."""
        steps = (*self.steps[: self.at], launch, *self.steps[self.at + 1 :])
        return replace(self, steps=steps)

    def with_entry(self, entry: str) -> "Draft":
        """The draft with another name expression for the kernel in view."""
        if self.launch is not None and self.launch.entry:
            return self.with_launch(replace(self.launch, entry=entry))
        return replace(self, entry=entry)

    def fresh(self, wanted: str, experiment: Experiment, *, common: bool = False) -> str:
        """``wanted``, or a variant of it that nothing else is called.

        In a sequence it is numbered by the launch in view, unless it is ``common`` to all.
        """
        if self.several and not common:
            wanted = f"{wanted}_{1 + [view.at for view in self.views()].index(self.at)}"
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
        """The draft with one more note; in a sequence it names the kernel in view."""
        if self.several and self.launch is not None:
            what = f"{what} of {self.launched}"
        return replace(self, notes=(*self.notes, RuleNote(what, why)))
