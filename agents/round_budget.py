"""A round's share of the search budget."""

from dataclasses import replace

from tuner.experiment.model import Experiment


def round_experiment(
    experiment: Experiment,
    *,
    used_trials: int,
    used_seconds: float,
    used_device_seconds: float,
    rounds_left: int,
) -> Experiment | None:
    """The experiment with an equal share of the remaining budget.

    ``rounds_left`` counts this round too. ``None`` once trials, seconds or device seconds are used
    up.
    """
    whole = experiment.search
    trials = -(-(whole.trials - used_trials) // rounds_left)
    seconds = (whole.seconds - used_seconds) / rounds_left
    device = whole.device_seconds
    if device is not None:
        device = (device - used_device_seconds) / rounds_left
    if trials < 1 or seconds <= 0 or (device is not None and device <= 0):
        return None
    share = replace(whole, trials=trials, seconds=seconds, device_seconds=device)
    return replace(experiment, search=share)
