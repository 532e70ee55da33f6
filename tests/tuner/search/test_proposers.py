"""Each strategy against the conformance class, and how one is selected."""

import subprocess
import sys

import numpy as np
import pytest

from tests.conformance.proposer import ProposerConformance, small_loss, small_space
from tuner.experiment.model import SearchSettings
from tuner.search import constrained, hyperopt_frame
from tuner.search.constrained import HyperoptProposer
from tuner.search.gaussian_process.suggest import GaussianProcessProposer
from tuner.search.hyperopt_frame import (
    Frame,
    Observation,
    SuggestAlgorithm,
    bounded,
    hyperopt_space,
)
from tuner.search.select import make_proposer
from tuner.search.shuffled import ShuffledProposer


class TestShuffled(ProposerConformance):
    def make(self, space, seed):
        return ShuffledProposer(space, seed)


class TestTpe(ProposerConformance):
    def make(self, space, seed):
        return HyperoptProposer(space, seed, "tpe")

    @pytest.fixture(autouse=True)
    def few_attempts(self, monkeypatch):
        monkeypatch.setattr(constrained, "ATTEMPTS", 3)


class TestAnneal(TestTpe):
    def make(self, space, seed):
        return HyperoptProposer(space, seed, "anneal")


def test_auto_is_exhaustive_where_the_budget_covers_the_space():
    space = small_space()
    covered = make_proposer(SearchSettings(trials=len(space)), space)
    assert isinstance(covered, ShuffledProposer)
    assert not isinstance(
        make_proposer(SearchSettings(trials=len(space) - 1), space), ShuffledProposer
    )


def test_a_strategy_is_taken_by_name():
    space = small_space()
    for name, kind in (
        ("random", ShuffledProposer),
        ("exhaustive", ShuffledProposer),
        ("tpe", HyperoptProposer),
        ("anneal", HyperoptProposer),
        ("gp", GaussianProcessProposer),
        ("auto", GaussianProcessProposer),
    ):
        assert isinstance(make_proposer(SearchSettings(strategy=name, trials=5), space), kind)


def test_the_view_given_to_hyperopt_is_bounded(monkeypatch):
    monkeypatch.setattr(hyperopt_frame, "VIEW", 10)
    seen = [Observation((i,), None if i % 3 == 0 else float(i)) for i in range(40)]
    view = bounded(seen)
    assert [o.ordinals[0] for o in view] == [1, 2, 4, 5, 7, 35, 36, 37, 38, 39]
    assert bounded(seen[:10]) == seen[:10]


def test_any_hyperopt_algorithm_fits_the_frame():
    from hyperopt import anneal, rand

    space = small_space()
    frame = Frame(space)
    seen = [
        Observation(tuple(space.rows[i].tolist()), small_loss(space.configuration(i)))
        for i in range(0, len(space), 3)
    ]
    for algorithm in (anneal.suggest, rand.suggest):
        ordinals = frame.suggest(algorithm, seen, seed=3)
        sizes = [len(values) for values in space.parameters.values()]
        assert all(0 <= o < size for o, size in zip(ordinals, sizes, strict=True))


def test_the_process_serves_hyperopts_fmin():
    import hyperopt

    space = small_space()
    seen = []

    def objective(ordinals):
        row = np.array([[ordinals[name] for name in space.parameters]], np.uint16)
        (point,) = space.find(row)
        assert point >= 0
        seen.append(int(point))
        loss = small_loss(space.configuration(point))
        if loss is None:
            return {"status": hyperopt.STATUS_FAIL}
        return {"status": hyperopt.STATUS_OK, "loss": loss}

    def minimise(trials, evaluations):
        proposer = GaussianProcessProposer(space, seed=1)
        hyperopt.fmin(
            objective,
            hyperopt_space(space),
            algo=SuggestAlgorithm(proposer, space),
            max_evals=evaluations,
            trials=trials,
            show_progressbar=False,
        )

    trials = hyperopt.Trials()
    minimise(trials, 12)
    minimise(trials, len(space) + 10)
    assert sorted(seen) == list(range(len(space)))
    assert min(loss for loss in trials.losses() if loss is not None) == pytest.approx(0.8)


def test_hyperopt_is_imported_only_when_it_is_asked():
    code = "import sys, tuner.search.select; sys.exit('hyperopt' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestGaussianProcess(ProposerConformance):
    def make(self, space, seed):
        return GaussianProcessProposer(space, seed)
