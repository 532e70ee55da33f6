"""The rounds of a run with agents, told while the run goes on: suggestion, change, verdict."""

from collections.abc import Iterator
from pathlib import Path

from agents.brief import Brief, RoundSummary, inline
from agents.llm.port import Role
from agents.loop import recorded_brief
from agents.replies import Suggestion, Unusable, read_suggestion
from agents.rounds_section import KERNEL, difference, measured, told
from agents.rounds_summary import STEPS
from agents.step_journal import recorded_exchanges
from cluster.watching.follower import RunPicture
from tuner.errors import SpecError
from tuner.report.document import Facts, Heading, Part


class RoundStories:
    """Tells the rounds of one run; reads each step once.

    Args:
        run: the run directory.
    """

    def __init__(self, run: Path) -> None:
        self._steps = run / STEPS
        self._briefs: dict[int, Brief] = {}
        self._suggestions: dict[int, Suggestion] = {}
        self._planned = 0

    def parts(self, picture: RunPicture) -> tuple[Part, ...]:
        """All rounds so far, the last one first."""
        if not self._steps.is_dir():
            return ()
        self._read(picture)
        last = max(self._briefs, default=0)
        rounds = picture.summary.rounds if picture.summary else ()
        if last and not rounds:
            rounds = self._briefs[last].rounds
        past = {one.number: one for one in rounds}
        numbers = sorted({*past, *self._suggestions, *self._briefs}, reverse=True)
        return tuple(
            part for number in numbers for part in self._round(number, past.get(number), picture)
        )

    def _read(self, picture: RunPicture) -> None:
        """Read the briefs and suggestions that are new."""
        try:
            while (number := len(self._briefs) + 1) <= max(1, picture.rounds):
                if not (self._steps / "briefs" / f"r{number}.json").is_file():
                    break
                self._briefs[number] = recorded_brief(self._steps, number)
            planned = len(list(self._steps.glob("r*-planning-*.json")))
            if planned != self._planned:
                self._planned = planned
                for exchange in recorded_exchanges(self._steps):
                    if exchange.step.role is Role.PLANNING:
                        found = read_suggestion(exchange.reply)
                        if not isinstance(found, Unusable):
                            self._suggestions[exchange.step.round] = found
        except SpecError:
            return  # a step's record is damaged: the run itself says so when it is resumed

    def _round(self, number: int, past: RoundSummary | None, picture: RunPicture) -> Iterator[Part]:
        yield Heading(text=f"Round {number}: {inline(past.verdict) if past else 'under way'}")
        said = past.suggestion if past else self._suggestions.get(number)
        pairs = [*(told(said) if said else ()), *(measured(past) if past else ())]
        if pairs:
            yield Facts(pairs=tuple(pairs))
        search = picture.searches.get(f"{number:02d}")
        template = search.history.experiment.template if search else None
        if search is None or template is None:
            return
        brief = self._briefs.get(number)
        parent = brief.incumbent if brief else None
        before = parent.source if parent else search.history.experiment.kernel.source
        against = "the best template before it" if parent else KERNEL
        yield difference("Template", before.text, template.source.text, against, f"round {number}")
