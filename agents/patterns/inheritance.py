"""Which patterns a run uses, and the one that its winner becomes."""

import re
from dataclasses import replace

from agents.patterns.features import features_of
from agents.patterns.pattern import FARTHEST, SIMILAR, Pattern, Winner, nearest, seeds
from tuner.experiment.digest import kernel_digest
from tuner.experiment.model import Experiment
from tuner.journal.history import History
from tuner.results.result import Result

_STRATEGY_LENGTH = 200


def inherited(patterns: tuple[Pattern, ...], experiment: Experiment) -> tuple[Pattern, ...]:
    """The patterns for an experiment, nearest first.

    For a template those with values of its parameters, else those of similar kernels.
    """
    kernel, farthest = kernel_digest(experiment.kernel)[:16], SIMILAR
    if (template := experiment.template) is not None:
        farthest = FARTHEST
        patterns = tuple(one for one in patterns if one.fits(template.parameters))
    return nearest(patterns, features_of(experiment), kernel, farthest)


def seeded(experiment: Experiment, patterns: tuple[Pattern, ...], device: str) -> Experiment:
    """The experiment with the patterns' values as further seeds."""
    search = experiment.search
    more = seeds(patterns, device)
    return replace(experiment, search=replace(search, seeds=(*search.seeds, *more)))


def left_by(history: History, result: Result) -> Pattern | None:
    """The pattern of a run's confirmed winner; ``None`` without a significant gain of time.

    Its strategy is the template's rationale as one line of plain words.
    """
    general = result.general
    if general is None or general.comparison is None or history.device is None:
        return None
    if result.objective != "time":
        return None
    values = general.configuration.as_dict()
    speedup, low, high = general.speedup, general.comparison.low, general.comparison.high
    if general.comparison.verdict != "faster" or low is None or high is None or not values:
        return None
    template = history.template(general.trial)
    return Pattern(
        kernel=kernel_digest(history.experiment.kernel)[:16],
        experiment=_line(history.experiment.name),
        features=features_of(history.experiment),
        strategy=_line(template.rationale if template else ""),
        winners=(
            Winner(
                device=_line(history.device.name),
                values=values,
                speedup=speedup,
                low=low,
                high=high,
            ),
        ),
    )


def _line(text: str) -> str:
    """Words and plain punctuation, on one line."""
    plain = re.sub(r"[^\w .,:;()/%+-]|[;{}]", " ", text, flags=re.ASCII)
    return " ".join(plain.split())[:_STRATEGY_LENGTH]
