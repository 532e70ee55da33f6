"""Tuning: a round's share of the search budget.

Space, strategies, seeds and the trials themselves are the domain's.
"""

from dataclasses import replace

from tuner.experiment.model import Experiment, SearchSettings


def round_experiment(
    experiment: Experiment,
    *,
    used_trials: int,
    used_seconds: float,
    used_device_seconds: float,
    rounds_left: int,
) -> Experiment | None:
    """The experiment with this round's share of what is left.

    ``rounds_left`` counts this one. ``None`` once trials, seconds or device seconds are spent.
    """
    whole = experiment.search
    trials = -(-(whole.trials - used_trials) // rounds_left)
    seconds = (whole.seconds - used_seconds) / rounds_left
    device = whole.device_seconds
    if device is not None:
        device = (device - used_device_seconds) / rounds_left
    if trials < 1 or seconds <= 0 or (device is not None and device <= 0):
        return None
    share: SearchSettings = replace(whole, trials=trials, seconds=seconds, device_seconds=device)
    return replace(experiment, search=share)
