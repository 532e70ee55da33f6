"""What ``validate`` found out about a spec: as JSON, as lines, and as the error that ends it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from cluster.commands.baseline_check import BaselineTried
from tuner.device import Device
from tuner.drafts.draft_spec import guesses_left
from tuner.errors import NothingValid, SpecError
from tuner.experiment.model import Experiment
from tuner.experiment.odd_shapes import unchecked_sizes
from tuner.printable import counted
from tuner.report.estimate import Estimate
from tuner.space.feasible import FeasibleSet

SLOW_SECONDS = 10.0
"""Expected seconds of a reference at the largest shape above which advice is given."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A configuration that was compiled, and why that failed, if it did.

    One that is over a limit of the device is none of the template's faults: a run passes it over.
    """

    configuration: str
    problem: str | None
    over_limit: bool = False


@dataclass(frozen=True, slots=True)
class ReferenceTime:
    """How long the reference took at the smallest shape, and how much larger the largest is."""

    shape: str
    seconds: float
    largest: str
    times_larger: float

    def __str__(self) -> str:
        expected = self.seconds * self.times_larger
        text = f"reference: {self.seconds:.2g} s at {self.shape}"
        if self.times_larger > 1:
            text += f", about {expected:.2g} s at {self.largest} if it grows with the elements"
        if expected > SLOW_SECONDS:
            text += (
                "; a run calls it several times for each shape: vectorise it with NumPy, or use "
                "smaller shapes"
            )
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """A spec without errors, and what came of trying it.

    ``device`` is ``None`` for the reason ``no_device``. ``rounds`` is how many rounds ``model``
    writes templates in; 0 without agents. ``guesses`` are the lines of unconfirmed guesses,
    ``tolerances`` how each output is compared. ``space``, ``estimate``, ``reference`` and
    ``baseline`` are ``None`` where they were not tried. ``nothing_to_vary`` says why a run would be
    refused, if it would.
    """

    experiment: Experiment
    device: Device | None
    no_device: str
    rounds: int
    model: str
    guesses: tuple[int, ...]
    tolerances: Mapping[str, str]
    space: FeasibleSet | None
    estimate: Estimate | None
    reference: ReferenceTime | None
    attempts: Sequence[Attempt]
    baseline: BaselineTried | None
    nothing_to_vary: str

    def document(self) -> dict[str, object]:
        """The findings as JSON data."""
        binary = self.experiment.kernel.binary
        return {
            "experiment": self.experiment.name,
            "device": self.device and self.device.name,
            "binary": binary and binary.file.sha256,
            "guesses": self.guesses,
            "tolerances": self.tolerances,
            "space": None if self.space is None else _space_report(self.space),
            "estimate": self.estimate and asdict(self.estimate),
            "reference": self.reference and asdict(self.reference),
            "compiled": [asdict(one) for one in self.attempts],
            "baseline": self.baseline and asdict(self.baseline),
        }

    def lines(self) -> Iterator[str]:
        """The findings for people, without the verdict."""
        experiment, rounds = self.experiment, self.rounds
        yield experiment.name
        if experiment.kernel.binary:
            yield f"  {_binary(experiment)}"
        for output, bound in self.tolerances.items():
            yield f"  {output}: {bound}"
        if experiment.cost is None or experiment.cost.bytes is None:
            yield "  cost.bytes is not given: the report cannot compare with the roofline"
        for advice in filter(None, (_unaligned(experiment), unchecked_sizes(experiment))):
            yield f"  {advice}"
        if self.reference is not None:
            yield f"  {self.reference}"
        if self.device is None:
            yield f"space: not counted, and nothing compiled: {self.no_device}; or pass --target"
        elif self.space is not None:
            yield from _space_lines(self.space, self.device)
        if rounds:
            aside = "; --model none searches the spec's own" if experiment.template else ""
            yield f"space of a run: unknown until {self.model} writes a template{aside}"
        if self.estimate is not None:
            agents = f", in {rounds} rounds with model {self.model}" if rounds else ""
            yield f"estimated run: {self.estimate}{agents}"
        for line in _compiled(self.attempts):
            yield f"  {line}"
        if self.baseline is not None:
            if self.baseline.problem is None:
                yield f"  {self.baseline}"
            if self.baseline.configuration and not self.baseline.configuration.problem:
                yield f"  {self.baseline.configuration}"
            for warning in self.baseline.warnings:
                yield f"  warning: {warning}"

    @property
    def verdict(self) -> str:
        """The last line: that nothing is wrong, with what was not checked."""
        tried = self.baseline
        skipped = " (nothing was compiled or run)"
        if self.attempts:
            skipped = "" if tried else " (compiled, not run)"
        count = len(tried.warnings) if tried else 0
        warned = "a warning" if count == 1 else f"{count} warnings" if count else ""
        left = guesses_left(self.guesses) if self.guesses else ""
        but = " and ".join(filter(None, (warned, left)))
        return f"{self.experiment.name}: no errors found{skipped}{f', but {but}' if but else ''}"

    def require_none_wrong(self) -> None:
        """Raise if a run would fail.

        Raises:
            NothingValid: something did not compile, or the baseline fails its checks.
            SpecError: there is nothing to vary, or the budget is too small.
        """
        failed = [one for one in self.attempts if one.problem and not one.over_limit]
        if self.attempts and self.attempts[0].problem:
            raise NothingValid("the baseline did not compile; nothing else was tried")
        if self.baseline is not None and self.baseline.problem is not None:
            look = f"; {guesses_left(self.guesses)}" if self.guesses else ""
            raise NothingValid(
                f"{self.baseline}; check kind, shape, launch and values against your kernel{look}"
            )
        if failed:
            raise NothingValid(f"{len(failed)} of {len(self.attempts)} did not compile")
        if self.nothing_to_vary:
            raise SpecError(f"`run` will refuse this spec: {self.nothing_to_vary}")
        if self.estimate is not None:
            self.estimate.require_time()


def _compiled(attempts: Sequence[Attempt]) -> Iterator[str]:
    """How much compiled, and each problem once with all configurations that have it."""
    if attempts and attempts[0].problem is None:
        well = sum(one.problem is None for one in attempts[1:])
        rest = f" and {counted(well, 'configuration')}" if well else ""
        yield f"compiled {attempts[0].configuration}{rest}: ok"
    for problem in dict.fromkeys(one.problem for one in attempts if one.problem):
        having = [one.configuration for one in attempts if one.problem == problem]
        more = f" and {len(having) - 1} more" if len(having) > 1 else ""
        limit = any(one.over_limit for one in attempts if one.problem == problem)
        yield f"{'over a limit' if limit else 'not compiled'}: {having[0]}{more}: {problem.strip()}"


def _unaligned(experiment: Experiment) -> str:
    """Advice on buffers of which the spec promises no alignment, so that no vector is loaded."""
    names = [
        one.name
        for one in experiment.arguments
        if one.kind in ("in", "out", "inout") and one.align is None
    ]
    if not names:
        return ""
    return (
        f"no align is given for {', '.join(names)}: templates cannot load or store vectors there. "
        "PyTorch, CuPy and cudaMalloc align to 16 bytes or more: write `align: 16` where your "
        "application passes whole buffers"
    )


def _binary(experiment: Experiment) -> str:
    """What is known of a binary that is the baseline, and what checks the rest."""
    assert experiment.kernel.binary
    file = experiment.kernel.binary.file
    return (
        f"baseline: {file.name} (SHA-256 {file.sha256[:16]}…); {experiment.kernel.source.name} is "
        "read, not compiled. The binary's architecture is checked, and its entries, registers and "
        "shared memory where it tells them; a run begins by loading, launching and checking it"
    )


def _space_report(space: FeasibleSet) -> dict[str, object]:
    return {
        "configurations": space.size,
        "sampled": None if space.estimate is None else len(space),
        "general": _general(space),
        "cartesian": space.cartesian,
        "rejected": {one.condition: one.points for one in space.rejections},
    }


def _general(space: FeasibleSet) -> int:
    """How many configurations are feasible on every tune shape; an estimate from a sample."""
    return round(np.count_nonzero(space.mask.all(axis=1)) / len(space.mask) * space.size)


def _space_lines(space: FeasibleSet, device: Device) -> Iterator[str]:
    about = "" if space.estimate is None else "about "
    yield (
        f"space on {device.name}: {about}{space.size:,} of {space.cartesian:,} configurations are "
        f"feasible on some tune shape, {about}{_general(space):,} on every tune shape"
    )
    if space.estimate is not None:
        yield f"  too many to list: the search begins with a sample of {len(space):,}"
    for rejection in space.rejections:
        yield f"  {rejection.points:,} rejected by {rejection.condition}"
        if rejection.problem:
            yield f"    note: it cannot be evaluated for some of them: {rejection.problem}"
