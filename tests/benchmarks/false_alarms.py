"""How often the bench rejects honest kernels: every bundled experiment, many secret seeds.

``python -m tests.benchmarks.false_alarms [SEEDS [opencl|cuda]]`` takes, for each seed and each
experiment, the baseline as its own candidate, a few random configurations of the template, and for
as many templates of the recorded transcripts the first configuration that each names. All go
through every check of a first confirmation, the thousand repeats on a GPU among them, and with the
first secret through the checkers; they are timed no longer than that takes. Each seed takes some of
the experiment's shapes, but for the largest held-out ones, so that all have their turn.

The experiments are the bundled ones, kernels of the kinds that public projects hold
(``tests/data/public``, one source for both languages), and for CUDA those of unusual kinds.

Prints a line for each experiment and seed, and each rejection. Exits with 1 if there was one, or if
not all was tried.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from agents.generation.admission import usable_seeds
from agents.llm.replay import read_transcript
from agents.replies import GeneratedTemplate, read_template
from agents.settings import Mode
from tests.exploits.turns import add_options, share, tried
from tests.workers.harness import Laboratory
from tuner.candidate import Candidate
from tuner.errors import KernelwrightError
from tuner.experiment.arguments import resolve_arguments
from tuner.experiment.fields import BackendName
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment, Template
from tuner.experiment.odd_shapes import every_shape
from tuner.journal.facts import ConfirmScope
from tuner.plan import CellPlan
from tuner.results.notes import note_texts
from tuner.space.lower import lower
from tuner.trial import Configuration, Rejected
from workers.bench.deadlines import Deadlines
from workers.bench.input_specs import is_large

ROOT = Path(__file__).parents[2]
SPECS = {
    "opencl": ("tests/data/public/*.yaml", "deploy/experiments/*/opencl.yaml"),
    "cuda": (
        "tests/gpu/data/honest/*.yaml",
        "tests/data/public/*.yaml",
        "deploy/experiments/*/cuda*.yaml",
    ),
}
TUNED = 2
"""Tune shapes of one seed at most."""
LAUNCHES = 10
"""Timed launches at most."""
CHECKED = 1
"""The seed whose kernels the checkers try: what they find does not depend on the numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Honest:
    """The kernels of one experiment under one secret.

    Among them are so many random ``configurations``, and as many recorded templates.
    """

    spec: Path
    language: BackendName
    secret: int
    configurations: int

    @property
    def name(self) -> str:
        """The folder and the file of the spec."""
        return f"{self.spec.parent.name}/{self.spec.stem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms:
    """How many kernels were tried, what was rejected, and the notes of preparation and checks.

    ``unseen``: how many times as long launches took on inputs never seen, at least and at most.
    """

    unit: Honest
    kernels: int
    found: tuple[str, ...]
    notes: tuple[str, ...]
    unseen: tuple[float, float]
    seconds: float


def quick(experiment: Experiment, unit: Honest) -> Experiment:
    """In the unit's language, with short timings and few shapes.

    Left out are held-out shapes whose inputs take seconds.
    """
    measure, shapes, rng = experiment.measure, experiment.shapes, random.Random(unit.secret)
    held_out = [
        one for one in shapes.held_out if not is_large(resolve_arguments(experiment, one.symbols))
    ]
    return replace(
        experiment,
        kernel=replace(experiment.kernel, language=unit.language),
        shapes=replace(
            shapes,
            tune=tuple(rng.sample(shapes.tune, min(TUNED, len(shapes.tune)))),
            held_out=tuple(rng.sample(held_out, min(1, len(held_out)))),
        ),
        measure=replace(
            measure,
            warmup=1,
            repeats=min(measure.repeats, LAUNCHES),
            at_most=min(measure.at_most, LAUNCHES),
        ),
    )


def templates(experiment: Experiment, spec: Path) -> Iterator[tuple[Template, Configuration]]:
    """Each recorded template, and what its author would try first."""
    modes: dict[str, Mode] = {"": "template", "_direct": "direct"}
    for suffix, mode in modes.items():
        path = spec.parent / f"transcript_{spec.stem}{suffix}.jsonl"
        for exchange in read_transcript(path).exchanges if path.exists() else ():
            found = read_template(exchange.reply, experiment.kernel.source.name, mode)
            if isinstance(found, GeneratedTemplate):
                template = found.template
                values = {name: values[0] for name, values in template.parameters.items()}
                seed = next(iter(usable_seeds(template, found.seeds)), values)
                yield template, Configuration.of(seed)


def candidates(laboratory: Laboratory, unit: Honest) -> list[Candidate]:
    """The honest kernels that compile and can run on every tune shape."""
    rng = random.Random(unit.secret)
    experiment = laboratory.experiment
    bindings = every_shape(experiment)
    (build, *_) = laboratory.plan.builds
    twin = laboratory.candidate(f"{build.source}\n")
    assert isinstance(twin, Candidate), twin
    found = [twin]

    def add(template: Template, configuration: Configuration) -> None:
        plan = lower(experiment, template, configuration, bindings, laboratory.device)
        if all(isinstance(cell, CellPlan) for cell in plan.cells[: len(experiment.shapes.tune)]):
            binaries = laboratory.compiler.compile(plan.builds)
            if not isinstance(binaries, Rejected):
                found.append(replace(twin, trial=len(found), plan=plan, binaries=binaries))

    known = list(templates(experiment, unit.spec))
    for template, configuration in rng.sample(known, min(unit.configurations, len(known))):
        add(template, configuration)
    recorded = len(found)
    while (template := experiment.template) and len(found) < recorded + unit.configurations:
        values = {name: rng.choice(v) for name, v in template.parameters.items()}
        add(template, Configuration.of(values))
    return found


def try_kernels(unit: Honest, binaries: Path) -> Alarms:
    """Try the kernels; compiled ones are kept in ``binaries``."""
    began = time.monotonic()
    rejected: list[tuple[str, Rejected]] = []
    notes: set[str] = set()
    errors: list[str] = []
    kernels: list[Candidate] = []
    unseen = [1.0]
    try:
        with closing(
            Laboratory(
                quick(load_experiment(unit.spec), unit),
                secret=unit.secret,
                deadlines=Deadlines(),
                binaries=binaries,
                lasting=True,
            )
        ) as laboratory:
            notes |= {*laboratory.prepared.notes}
            if isinstance(laboratory.prepared.result, Rejected):
                rejected.append(("baseline", laboratory.prepared.result))
            else:
                kernels = candidates(laboratory, unit)
                names = {one.trial: str(one.plan.builds[0].defines) for one in kernels}
                outcomes = {one.trial: laboratory.bench.run(one).outcome for one in kernels}
                rejected += [
                    (names[n], out) for n, out in outcomes.items() if isinstance(out, Rejected)
                ]
                held_out = laboratory.experiment.shapes.held_out
                scope: ConfirmScope = "all" if held_out or unit.secret == CHECKED else "tune"
                confirmed = laboratory.confirmed(*kernels, scope=scope)
                failed = confirmed.failed
                unseen += [sample.unseen for sample in confirmed.samples if sample.unseen]
                if unit.secret == CHECKED:
                    failed += laboratory.examined(*kernels).failed
                rejected += [(names[trial], reason) for trial, reason in failed]
                notes |= {*note_texts(confirmed.notes)}
    except (AssertionError, KernelwrightError) as error:
        errors.append(f"not tried: {error}")
    return Alarms(
        unit=unit,
        kernels=len(kernels),
        found=(*(f"{name}: {r.code}: {r.detail}" for name, r in rejected), *errors),
        notes=tuple(sorted(notes)),
        unseen=(min(unseen), max(unseen)),
        seconds=time.monotonic() - began,
    )


def main() -> int:
    """Print what was rejected; fail if anything was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=20)
    parser.add_argument("language", choices=SPECS, nargs="?", default="opencl")
    parser.add_argument("specs", type=Path, nargs="*", help="instead of the bundled ones")
    parser.add_argument("--configurations", type=int, default=3, help="random ones of a template")
    add_options(parser)
    given = parser.parse_args()
    specs = given.specs or [p for each in SPECS[given.language] for p in sorted(ROOT.glob(each))]
    unit = partial(Honest, language=given.language, configurations=given.configurations)
    chosen = [
        one
        for secret in range(given.first, given.first + given.seeds)
        for one in share([unit(spec=spec, secret=secret) for spec in specs], given.part)
    ]
    tries: dict[Honest, Alarms] = {}
    with tempfile.TemporaryDirectory() as binaries:
        work = partial(try_kernels, binaries=Path(binaries))
        for result in tried(work, chosen, jobs=given.jobs, seconds=given.seconds):
            unit = result.unit
            tries[unit] = result
            low, high = result.unseen
            print(f"{unit.name}, seed {unit.secret}: {result.kernels} kernels, {len(result.found)} "
                  f"alarms, {low:.3f} to {high:.3f} times as long on inputs never seen, "
                  f"{result.seconds:.1f} s", flush=True)  # fmt: skip
            notes = result.notes if unit.secret == given.first else ()
            for text in (*result.found, *(f"note: {note}" for note in notes)):
                print(f"  {text}", flush=True)
    kernels, seeds, alarms = Counter[str](), Counter[str](), Counter[str]()
    for result in tries.values():
        name = result.unit.name
        kernels[name] += result.kernels
        seeds[name] += 1
        alarms[name] += len(result.found)
    for name in sorted(seeds):
        print(f"{name}: {kernels[name]} kernels in {seeds[name]} seeds, {alarms[name]} alarms")
    print(f"{sum(alarms.values())} false alarms")
    return int(bool(sum(alarms.values())) or len(tries) < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
