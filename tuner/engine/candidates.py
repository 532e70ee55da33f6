"""How a configuration becomes a candidate: lower, check limits, compile, check limits again.

Serves searches and requests through a fleet, and commands that compile in this process.
"""

from collections.abc import Callable, Sequence

from tuner.backends.registry import traits_of
from tuner.candidate import Candidate
from tuner.device import Device
from tuner.engine.work import CompileWork
from tuner.experiment.model import Experiment, ShapeBinding, Template
from tuner.journal.facts import TrialCompiled
from tuner.plan import Binary, Build, Plan
from tuner.space.limits import over_limit, within_limits
from tuner.space.lower import Lowering
from tuner.trial import Configuration, Rejected

Compile = Callable[[tuple[Build, ...]], tuple[Binary, ...] | Rejected]


class Candidates:
    """The candidates of one experiment on one device, on their way through the compilers."""

    def __init__(self, experiment: Experiment, device: Device) -> None:
        self._experiment = experiment
        self._device = device
        self._compiling: dict[int, CompileWork] = {}
        self._first: dict[str, int] = {}
        self._lowering: Lowering | None = None
        """The last one; a search asks for the same again and again."""

    def begin(
        self,
        trial: int,
        template: Template | None,
        configuration: Configuration,
        shapes: Sequence[ShapeBinding],
    ) -> CompileWork | Rejected:
        """Lower a configuration (the baseline, without ``template``) for these shapes.

        Returns:
            The work that compiles it, or the limit that its launches exceed.
        """
        kept = self._lowering
        if kept is None or kept.template is not template or kept.bindings is not shapes:
            kept = Lowering(self._experiment, template, shapes, self._device)
            self._lowering = kept
        return self.begin_plan(trial, configuration, kept.plan(configuration))

    def begin_plan(
        self, trial: int, configuration: Configuration, plan: Plan
    ) -> CompileWork | Rejected:
        """Begin with a plan that is lowered already."""
        if refusal := over_limit(plan, self._device):
            return refusal
        work = CompileWork(trial=trial, configuration=configuration, plan=plan)
        self._compiling[trial] = work
        return work

    def finish(self, compiled: TrialCompiled) -> Candidate | Rejected:
        """The candidate that was begun, or the rejection: not compiled, or over a limit."""
        work = self._compiling.pop(compiled.trial)
        result = within_limits(work.plan, self._device, compiled.rejected or compiled.binaries)
        if isinstance(result, Rejected):
            return result
        return Candidate(
            trial=work.trial,
            configuration=work.configuration,
            plan=work.plan,
            binaries=result,
        )

    def compile_now(self, build: Compile, begun: CompileWork | Rejected) -> Candidate | Rejected:
        """Compile what was begun by a call of ``build``, without a fleet."""
        if isinstance(begun, Rejected):
            return begun
        result = build(begun.plan.builds)
        if isinstance(result, Rejected):
            return self.finish(TrialCompiled(work=begun.id, trial=begun.trial, rejected=result))
        return self.finish(TrialCompiled(work=begun.id, trial=begun.trial, binaries=result))

    def same_as(self, candidate: Candidate) -> int | None:
        """The first trial with the same machine code and launches, if ``candidate`` is not it.

        ``None`` where a backend's binaries differ for equal kernels.
        """
        if not traits_of(self._experiment.kernel.language).equal_code_is_equal_kernel:
            return None
        first = self._first.setdefault(candidate.code_digest, candidate.trial)
        return None if first == candidate.trial else first
