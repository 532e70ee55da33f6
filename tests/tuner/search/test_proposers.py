"""Each strategy against the conformance class, and what the one frame for them guarantees."""

import subprocess
import sys
import threading
from functools import partial

import pytest

from tests.conformance.proposer import ProposerConformance, small_losses, small_space
from tuner.experiment.model import SearchSettings
from tuner.search import hyperopt_proposer
from tuner.search.background import BackgroundProposer
from tuner.search.hyperopt_proposer import Constrained, HyperoptProposer, bounded
from tuner.search.select import make_proposer


class TestRandom(ProposerConformance):
    def make(self, space, seed):
        return make_proposer(SearchSettings(strategy="random", seed=seed), space)


class TestBackgroundProposer(ProposerConformance):
    def make(self, space, seed):
        settings = SearchSettings(strategy="random", seed=seed)
        return BackgroundProposer(lambda: make_proposer(settings, space))


def test_a_proposer_is_made_before_it_is_asked():
    made = threading.Event()

    def make():
        made.set()
        raise ValueError("no such strategy")

    proposer = BackgroundProposer(make)
    assert made.wait(60)
    with pytest.raises(ValueError, match="no such strategy"):
        proposer.ask(0)


class TestExhaustive(ProposerConformance):
    def make(self, space, seed):
        return make_proposer(SearchSettings(strategy="auto", trials=len(space), seed=seed), space)


class TestGaussianProcess(ProposerConformance):
    def make(self, space, seed):
        return make_proposer(SearchSettings(strategy="gp", seed=seed), space)


class TestTpe(ProposerConformance):
    def make(self, space, seed):
        return make_proposer(SearchSettings(strategy="tpe", seed=seed), space)

    @pytest.fixture(autouse=True)
    def few_attempts(self, monkeypatch):
        monkeypatch.setattr(hyperopt_proposer, "ATTEMPTS", 3)


class TestAnneal(TestTpe):
    def make(self, space, seed):
        return make_proposer(SearchSettings(strategy="anneal", seed=seed), space)


class TestAnyHyperoptAlgorithm(TestTpe):
    def make(self, space, seed):
        from hyperopt import rand

        return HyperoptProposer(space, seed, partial(Constrained, rand.suggest))


def proposals(**search):
    """Fifteen configurations proposed for the small space, told their losses."""
    proposer = make_proposer(SearchSettings(**search), small_space())
    asked = []
    for trial in range(15):
        asked.append(proposer.ask(trial))
        proposer.tell(trial, small_losses(asked[-1]))
    return asked


def test_auto_is_exhaustive_where_the_budget_covers_the_space_else_the_process():
    size = len(small_space())
    assert proposals(strategy="auto", trials=size) == proposals(strategy="exhaustive")
    assert proposals(strategy="auto", trials=size - 1) == proposals(strategy="gp")


def test_random_search_is_an_exhaustive_one_cut_short():
    assert proposals(strategy="random") == proposals(strategy="exhaustive")


def test_the_strategies_differ():
    named = ("random", "gp", "tpe", "anneal")
    assert len({tuple(proposals(strategy=name)) for name in named}) == len(named)


def test_a_template_without_parameters_has_one_point():
    from tuner.space.feasible import recorded_set

    for name in ("random", "gp", "tpe", "anneal", "auto"):
        proposer = make_proposer(SearchSettings(strategy=name, trials=3), recorded_set({}, [[]]))
        assert proposer.ask(0).values == ()
        proposer.tell(0, (1.0,))
        assert proposer.ask(1) is None


def test_the_view_given_to_hyperopts_algorithms_is_bounded(monkeypatch):
    monkeypatch.setattr(hyperopt_proposer, "VIEW", 10)
    results = [
        {"status": "fail"} if i % 3 == 0 else {"status": "ok", "loss": float(i)} for i in range(40)
    ]
    documents = [{"tid": i, "result": result} for i, result in enumerate(results)]
    assert [d["tid"] for d in bounded(documents)] == [1, 2, 4, 5, 7, 35, 36, 37, 38, 39]
    assert bounded(documents[:10]) == documents[:10]


def test_hyperopt_is_imported_with_the_first_proposer_and_scipys_statistics_when_they_are_used():
    code = """\
import sys
import threading
from tuner.search.select import make_proposer
from tuner.space.feasible import recorded_set
from tuner.experiment.model import SearchSettings
assert "hyperopt" not in sys.modules
make_proposer(SearchSettings(), recorded_set({}, [[]]))
assert "scipy.stats" not in sys.modules
from hyperopt import atpe
assert atpe.scipy.stats.skew([1, 2, 3]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)
