"""What a bench does with winners: gives a launch of each to the tools that watch one.

Tools that check all winners at once are begun while these are confirmed, and import meanwhile.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from tuner.engine.work import ConfirmWork, ExamineWork
from tuner.journal.facts import WinnersExamined
from workers.bench.input_specs import FIRST, extra_specs
from workers.bench.oracle import Oracle
from workers.bench.preparation import Preparation
from workers.checkers.examination import Site, examine, tools_for
from workers.checkers.watched import Launchers
from workers.integrity.launch_checks import VerificationCase


class Examiner:
    """The tools of one device, with their files in ``folder``; ``abort`` is set to end them."""

    def __init__(self, backend: str, index: int, folder: Path, abort: threading.Event) -> None:
        self._launchers = Launchers(backend, index, folder, abort)

    def begin(self, work: ConfirmWork, prep: Preparation) -> None:
        """Begin the tools that have something to check, if winners are confirmed.

        Not on a processor, which times meanwhile. On a GPU a busy host delays no burst.
        """
        if work.scope != "tune" and not prep.device.is_cpu:
            self._launchers.begin(partial(tools_for, work.finalists, prep.device))

    def examine(self, work: ExamineWork, prep: Preparation, oracle: Oracle) -> WinnersExamined:
        """Run winners under the memory and race checkers, and the best of them under a profiler.

        Without checkers, and without a profiler for the backend, the device is not touched.
        """

        def contents(shape: int) -> Mapping[str, str] | None:
            """Inputs of a shape, if the baseline gives outputs there."""
            spec = FIRST if shape in prep.timed else extra_specs(prep, shape)[0]
            case = oracle.case(shape, spec)
            oracle.end_children()
            return case.contents if isinstance(case, VerificationCase) else None

        site = Site(
            device=prep.device,
            arguments=prep.arguments,
            timed=prep.timed,
            contents=contents,
            launchers=self._launchers,
        )
        found = examine(work.winners, site, checkers=work.checkers, profiler=work.profiler)
        self._launchers.close()
        return replace(found, work=work.id)

    def close(self) -> None:
        """End what has launched nothing yet."""
        self._launchers.close()
