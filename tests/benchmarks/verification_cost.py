"""What verifying costs: device seconds per candidate, with the checks and without them.

``python -m tests.benchmarks.verification_cost SPEC [CANDIDATES]`` compiles a template's
configurations, benches all of them twice in benches of their own, and prints one JSON line. Only
here can the checks be turned off, by replacing them. Wall time is of benching alone: more than of a
search, in which compiling goes on beside it, and on a shared device it holds the wait for others.
"""

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

from tests.workers.harness import Laboratory
from tuner.fleet import Candidate
from tuner.space.feasible import feasible_set
from tuner.space.lower import lower
from tuner.trial import Measured, Rejected
from workers.bench.stand import Stand
from workers.bench.supervisor import Deadlines

SHARE, WALL = 0.5, 1.3
"""Verification's largest share of device seconds, and wall time over that without checks."""


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Launch what checks would launch within a timing, and look at nothing."""

    def fire(stand: Stand, entrant, launchable, question, baseline_ns, order):
        return stand._fire(entrant, launchable, question.shape, baseline_ns, order)

    with (
        mock.patch.object(Stand, "check", return_value=None),
        mock.patch.object(Stand, "_checked", fire),
        mock.patch.object(Stand, "_cut", fire),
        mock.patch("workers.bench.working.refuse_memory", return_value=None),
    ):
        yield


def compiled(laboratory: Laboratory, most: int) -> list[Candidate]:
    """The first configurations of the template that compile."""
    experiment, template = laboratory.experiment, laboratory.experiment.template
    assert template is not None
    space = feasible_set(experiment, template, laboratory.device)
    found = []
    for index in range(min(most, len(space))):
        configuration = space.configuration(index)
        plan = lower(experiment, template, configuration, experiment.shapes.tune, laboratory.device)
        result = laboratory.compiler.compile(plan.builds)
        if not isinstance(result, Rejected):
            found.append(
                Candidate(
                    trial=index, configuration=configuration, plan=plan, binaries=tuple(result)
                )
            )
    return found


def seconds(laboratory: Laboratory, candidates: list[Candidate]) -> tuple[float, float, int]:
    """Device seconds, wall seconds and how many were measured."""
    began = time.monotonic()
    answers = [laboratory.bench.run(replace(candidate)) for candidate in candidates]
    measured = sum(isinstance(answer.outcome, Measured) for answer in answers)
    return sum(answer.seconds for answer in answers), time.monotonic() - began, measured


def compare(spec: Path, most: int) -> dict[str, float]:
    """Bench the same candidates with the checks and without."""
    laboratory = Laboratory(spec, deadlines=Deadlines())
    candidates = compiled(laboratory, most)
    device, wall, measured = seconds(laboratory, candidates)
    laboratory.close()
    laboratory = Laboratory(spec, deadlines=Deadlines())
    with unchecked():
        bare, bare_wall, _ = seconds(laboratory, candidates)
    laboratory.close()
    return {
        "candidates": len(candidates),
        "measured": measured,
        "device_seconds_per_candidate": round(device / len(candidates), 5),
        "without_checks": round(bare / len(candidates), 5),
        "verification_share": round(1 - bare / device, 3),
        "wall_to_unchecked": round(wall / bare_wall, 3),
    }


def main() -> int:
    """Print the comparison; fail where a limit is passed."""
    spec = Path(sys.argv[1])
    found = compare(spec, int(sys.argv[2]) if len(sys.argv) > 2 else 240)
    print(json.dumps(found))
    return int(found["verification_share"] > SHARE or found["wall_to_unchecked"] > WALL)


if __name__ == "__main__":
    sys.exit(main())
