"""What one device found seeds the search on another: through the files that a user would name."""

import math

from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.experiment import specs
from tests.tuner.results.runs import finished_run
from tuner.experiment.load import load_experiment
from tuner.experiment.model import SearchSettings
from tuner.report.tables import results_jsonl
from tuner.search.select import make_proposer
from tuner.space.feasible import recorded_set

PARAMETERS = {"BLOCK": (32, 64, 128, 256, 512, 1024), "VEC": (1, 2, 4, 8, 16), "UNROLL": (1, 2, 4)}
SPACE = recorded_set(
    PARAMETERS, [(b, v, u) for b in range(6) for v in range(5) for u in range(3) if b + v < 9]
)


def ratio(configuration, device):
    """Time ÷ baseline on two devices whose optima are near each other in a narrow valley."""
    values = configuration.as_dict()
    block, vec = math.log2(values["BLOCK"]), math.log2(values["VEC"])
    return 0.5 + 0.2 * abs(block + vec - 9) + 0.1 * abs(vec - 2 - device) + 0.05 * values["UNROLL"]


def search(device, trials, seeds=()):
    """What was tried, in order."""
    settings = SearchSettings(strategy="gp", trials=trials, seed=1, seeds=seeds)
    proposer = make_proposer(settings, SPACE)
    tried = []
    for trial in range(trials):
        tried.append(proposer.ask(trial))
        proposer.tell(trial, (ratio(tried[-1], device),))
    return tried


def test_the_second_device_starts_where_the_first_one_ended(tmp_path):
    first = [(c.as_dict(), [1000 * ratio(c, 0)] * 3) for c in search(device=0, trials=40)]
    history = finished_run(experiment(), GPU, [1000.0] * 3, first)
    (tmp_path / "results.jsonl").write_text(results_jsonl(history))
    spec = specs.SPEC.replace("seconds: 5}", "seconds: 5, seeds: results.jsonl}")
    seeds = load_experiment(specs.write(tmp_path, spec)).search.seeds
    assert len(seeds) == 5
    optimum = min(ratio(SPACE.configuration(point), 1) for point in range(len(SPACE)))
    unseeded = min(ratio(c, 1) for c in search(device=1, trials=5))
    seeded = min(ratio(c, 1) for c in search(device=1, trials=5, seeds=seeds))
    assert optimum <= seeded <= optimum + 0.11 < unseeded
