"""The parts of the Gaussian process: gradients, updates, tails and ranks."""

import math

import numpy as np
import pytest

from tests.conformance.proposer import small_space
from tuner.experiment.model import SearchSettings
from tuner.search.gaussian_process.acquisition import log_expected_improvement, log_ranks
from tuner.search.gaussian_process.covariance import NegativeLogPosterior, fit
from tuner.search.gaussian_process.encoding import MAX_LEVELS, Encoding
from tuner.search.gaussian_process.posterior import Posterior, Prediction
from tuner.search.select import make_proposer
from tuner.space.feasible import recorded_set

SPACE = small_space()
ENCODING = Encoding.of(SPACE)
RNG = np.random.default_rng(0)
POINTS = RNG.permutation(len(SPACE))[:20]
TARGETS = RNG.normal(size=20)


def test_the_gradient_is_that_of_the_objective():
    problem = NegativeLogPosterior(ENCODING, POINTS, TARGETS)
    at = RNG.normal(size=len(problem.median))
    _, gradient = problem(at)
    numeric = [
        (problem(at + 1e-5 * axis)[0] - problem(at - 1e-5 * axis)[0]) / 2e-5
        for axis in np.eye(len(at))
    ]
    assert gradient == pytest.approx(numeric, abs=1e-5)


def test_a_parameter_that_decides_everything_gets_the_weight():
    parameters = {"A": tuple(range(8)), "B": tuple(range(8)), "MODE": ("x", "y", "z")}
    rows = [(a, b, m) for a in range(8) for b in range(8) for m in range(3)]
    space = recorded_set(parameters, rows)
    encoding = Encoding.of(space)
    points = RNG.permutation(len(space))[:60]
    targets = np.sin(space.rows[points, 0].astype(float))
    distances = fit(encoding, points, targets).distances
    assert distances[0, 7] > 10 * distances[8, 15]
    assert distances[0, 7] > 10 * distances[16, 18]


def gaussian_process(space, seed):
    return make_proposer(SearchSettings(strategy="gp", seed=seed), space)


def dense(covariance, values, known):
    """Mean and deviation everywhere, by the textbook."""
    rows = ENCODING.one_hot(np.arange(len(SPACE)))
    everywhere = covariance.between(rows, rows).astype(float)
    seen = POINTS[: len(values)]
    noisy = everywhere[np.ix_(seen, seen)] + covariance.noise * np.eye(len(seen))
    to_all = everywhere[seen]
    told = seen[known]
    noisy_told = everywhere[np.ix_(told, told)] + covariance.noise * np.eye(len(told))
    mean = everywhere[told].T @ np.linalg.solve(noisy_told, values[known])
    variance = np.diagonal(everywhere) - np.sum(to_all * np.linalg.solve(noisy, to_all), axis=0)
    return mean, np.sqrt(variance)


@pytest.mark.parametrize("capacity", [1, 30])
def test_updates_point_by_point_agree_with_the_textbook(capacity):
    covariance = fit(ENCODING, POINTS, TARGETS)
    everything = np.arange(len(SPACE))
    posterior = Posterior(ENCODING, covariance, everything, capacity)
    posterior.observe(POINTS[:12])
    for point in POINTS[12:]:
        posterior.observe(np.array([point]))
    pending = np.zeros(20, bool)
    pending[[3, 15, 19]] = True
    mean, deviation = dense(covariance, TARGETS, ~pending)
    weights = posterior.weights(np.stack([TARGETS, -TARGETS], axis=1), pending)
    smooth = posterior.smooth(np.stack([TARGETS, -TARGETS], axis=1), weights)
    assert smooth[~pending, 0] == pytest.approx(mean[POINTS[~pending]], abs=2e-3)
    for prediction in (posterior.pool(weights), posterior.at(everything, weights)):
        assert prediction.mean == pytest.approx(np.array([mean, -mean]), abs=2e-3)
        assert prediction.deviation == pytest.approx(deviation, abs=2e-3)


def test_long_parameters_are_seen_at_few_levels():
    space = recorded_set({"A": tuple(range(1000))}, [[i] for i in range(1000)])
    encoding = Encoding.of(space)
    assert encoding.width == MAX_LEVELS
    unit = encoding.unit(np.arange(1000))[:, 0]
    assert unit[0] == 0
    assert unit[-1] == 1
    assert np.all(np.diff(unit) >= 0)
    assert np.all(encoding.one_hot(np.arange(1000)).sum(axis=1) == 1)


def test_targets_are_logarithms_of_ranks():
    losses = np.array([3.0, math.inf, 1.0, 2.0, math.inf])
    targets = log_ranks(losses, np.sort(losses))
    assert targets == pytest.approx(1 + np.log([0.5, 0.8, 0.1, 0.3, 0.8]))


def test_targets_of_many_are_standardised():
    losses = np.arange(1000.0)
    targets = log_ranks(losses, losses)
    assert targets.mean() == pytest.approx(0, abs=0.01)
    assert targets.std() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("score", [6.0, 1.0, 0.0, -0.9, -1.1, -5.0, -12.0])
def test_log_expected_improvement_is_the_log_of_the_integral(score):
    from scipy import integrate, stats  # takes a second, which other tests need not wait

    expected, _ = integrate.quad(
        lambda t: (score - t) * stats.norm.pdf(t), score - 12, score, epsabs=0, epsrel=1e-10
    )
    found = log_expected_improvement(Prediction(np.zeros((1, 1)), np.ones(1)), np.array([score]))
    assert found[0, 0] == pytest.approx(math.log(expected), abs=1e-6)


def test_log_expected_improvement_stays_finite_and_ordered_far_out():
    means = np.geomspace(1, 1e6, 200)
    found = log_expected_improvement(Prediction(means[None], np.ones(200)), np.zeros(1))[0]
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found) < 0)


def test_a_search_with_many_pending_trials_goes_on_the_same_after_a_restart():
    rows = [(a, b) for a in range(30) for b in range(30)]
    space = recorded_set({"A": tuple(range(30)), "B": tuple(range(30))}, rows)

    def tell(proposer, trial, configuration):
        a, b = (value for _, value in configuration.values)
        proposer.tell(trial, (1.0 + (a - 20) ** 2 + (b - 9) ** 2,))

    undisturbed = gaussian_process(space, seed=0)
    asked = []
    for trial in range(110):
        asked.append(undisturbed.ask(trial))
        if trial >= 90:
            tell(undisturbed, trial - 90, asked[trial - 90])
    rebuilt = gaussian_process(space, seed=0)
    for trial, configuration in enumerate(asked):
        rebuilt.record(trial, configuration)
        if trial >= 90:
            tell(rebuilt, trial - 90, asked[trial - 90])
    for trial in range(110, 120):
        assert rebuilt.ask(trial) == undisturbed.ask(trial)
    assert len(set(asked)) == len(asked)


def test_with_hundreds_pending_proposals_stay_apart_and_better_than_chance():
    rows = [(a, b) for a in range(50) for b in range(50)]
    space = recorded_set({"A": tuple(range(50)), "B": tuple(range(50))}, rows)

    def loss(configuration):
        a, b = (value for _, value in configuration.values)
        return 1.0 + ((a - 30) ** 2 + (b - 15) ** 2) / 100

    proposer = gaussian_process(space, seed=0)
    asked = [proposer.ask(trial) for trial in range(260)]
    for trial in range(60):
        proposer.tell(trial, (loss(asked[trial]),))
    asked += [proposer.ask(trial) for trial in range(260, 320)]
    assert len(set(asked)) == len(asked)
    assert np.mean([*map(loss, asked[260:])]) < 0.5 * np.mean([*map(loss, asked[:260])])


def test_points_that_look_the_same_do_no_harm():
    space = recorded_set({"A": tuple(range(640))}, [[i] for i in range(640)])
    proposer = gaussian_process(space, seed=0)
    asked = set()
    for trial in range(150):
        asked.add(proposer.ask(trial))
        proposer.tell(trial, (1.0 + trial % 2,))
    assert len(asked) == 150


def test_the_process_finds_a_narrow_optimum_sooner_than_chance():
    parameters = {"A": tuple(range(16)), "B": tuple(range(16)), "C": (0, 1, 2, 3)}
    rows = [(a, b, c) for a in range(16) for b in range(16) for c in range(4) if (a + b) % 2 == 0]
    space = recorded_set(parameters, rows)

    def loss(configuration):
        a, b, c = (value for _, value in configuration.values)
        return None if a * b > 180 else 1 + (a - 11) ** 2 + (b - 5) ** 2 + 10 * (c != 2)

    def trials_needed(seed):
        proposer = gaussian_process(space, seed)
        for trial in range(100):
            configuration = proposer.ask(trial)
            found = loss(configuration)
            if found == 1:
                return trial
            proposer.tell(trial, None if found is None else (found,))
        return 100

    assert max(trials_needed(seed) for seed in range(3)) < 60


@pytest.mark.slow
def test_told_of_each_shape_it_finds_both_specialists_beside_the_compromise():
    """The shapes' optima lie far from each other and from the mean's."""
    parameters = {"A": tuple(range(24)), "B": tuple(range(24)), "C": (0, 1), "D": (0, 1, 2, 3)}
    space = recorded_set(parameters, np.argwhere(np.ones((24, 24, 2, 4))))

    def ratios(configuration):
        a, b, c, d = (value for _, value in configuration.values)
        return tuple(
            1 + 0.02 * ((a - x) ** 2 + (b - x // 2) ** 2) + 0.3 * (c == y) + 0.2 * abs(d - z)
            for x, y, z in ((3, 0, 0), (20, 1, 3))
        )

    def best(seed, told):
        """The best found on the first shape, on the second, and in the mean."""
        proposer = gaussian_process(space, seed)
        found = np.full(3, np.inf)
        for trial in range(120):
            shapes = ratios(proposer.ask(trial))
            mean = float(np.exp(np.mean(np.log(shapes))))
            found = np.minimum(found, (*shapes, mean))
            proposer.tell(trial, (mean, *shapes)[:told])
        return found

    for seed in (2, 3):
        apart, together = best(seed, told=3), best(seed, told=1)
        assert apart[:2] == pytest.approx([1, 1])
        assert np.any(together[:2] > 1.01)
        assert apart[2] == pytest.approx(together[2])
