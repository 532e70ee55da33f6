"""The process as anybody's ``hyperopt.fmin(algo=…)`` would use it."""

import pickle
from functools import partial

import numpy as np
import pytest

from kernelwright import suggest
from tests.conformance.proposer import small_loss, small_space
from tuner.errors import SpecError
from tuner.search.hyperopt_proposer import import_hyperopt
from tuner.search.hyperopt_space import hyperopt_space
from tuner.trial import Configuration

hyperopt = import_hyperopt()
hp = hyperopt.hp

BLOCKS, VECTORS, MODES = (32, 64, 128, 256, 512), (1, 2, 4, 8), ("plain", "cached")
SPACE = {
    "BLOCK": hp.choice("BLOCK", BLOCKS),
    "VEC": hp.choice("VEC", VECTORS),
    "MODE": hp.pchoice("MODE", [(0.5, mode) for mode in MODES]),
    "UNROLL": hp.randint("UNROLL", 1, 5),
    "STAGES": hp.quniform("STAGES", 2, 6, 2),
}
CONSTRAINTS = ("BLOCK * VEC <= 1024", "MODE != 'cached' or STAGES > 2")
FEASIBLE = [
    (block, vec, mode, unroll, stages)
    for block in BLOCKS
    for vec in VECTORS
    for mode in MODES
    for unroll in range(1, 5)
    for stages in (2, 4, 6)
    if block * vec <= 1024 and (mode != "cached" or stages > 2)
]


def time_of(point):
    """Milliseconds that a kernel takes; fails for the largest unrolled blocks."""
    if point["BLOCK"] == 512 and point["UNROLL"] == 4:
        return {"status": hyperopt.STATUS_FAIL}
    took = 1 + abs(np.log2(point["BLOCK"]) - 7) + abs(np.log2(point["VEC"]) - 2)
    took += (
        0.5 * (point["MODE"] == "plain") + 0.1 * point["UNROLL"] + 0.2 * abs(point["STAGES"] - 4)
    )
    return {"status": hyperopt.STATUS_OK, "loss": took}


def minimise(objective=time_of, evaluations=40, trials=None, space=SPACE, seed=0, **options):
    """The trials of one ``fmin``."""
    trials = hyperopt.Trials() if trials is None else trials
    options.setdefault("algo", partial(suggest, constraints=CONSTRAINTS))
    hyperopt.fmin(
        objective,
        space,
        max_evals=evaluations,
        trials=trials,
        rstate=np.random.default_rng(seed),
        show_progressbar=False,
        **options,
    )
    return trials


def points(trials):
    """What was evaluated, in order."""
    return [hyperopt.space_eval(SPACE, values_of(trial)) for trial in trials.trials]


def values_of(trial):
    return {name: values[0] for name, values in trial["misc"]["vals"].items()}


def as_tuples(trials):
    return [tuple(point[name] for name in SPACE) for point in points(trials)]


def test_it_finds_the_optimum_within_the_constraints_and_repeats_nothing():
    trials = minimise()
    seen = as_tuples(trials)
    assert len(set(seen)) == 40
    assert set(seen) <= set(FEASIBLE)
    assert trials.argmin == {"BLOCK": 2, "VEC": 2, "MODE": 1, "UNROLL": 1, "STAGES": 4}


def test_the_same_random_state_gives_the_same_trials():
    first = as_tuples(minimise(evaluations=20, seed=3))
    assert as_tuples(minimise(evaluations=20, seed=3)) == first
    assert as_tuples(minimise(evaluations=20, seed=4)) != first


def test_pending_trials_are_not_proposed_again():
    seen = as_tuples(minimise(evaluations=48, max_queue_len=8))
    assert len(set(seen)) == 48


@pytest.mark.parametrize("reload", [False, True])
def test_a_search_goes_on_with_the_trials_it_had(reload):
    trials = minimise(evaluations=15)
    if reload:
        trials = pickle.loads(pickle.dumps(trials))
    first = as_tuples(trials)
    seen = as_tuples(minimise(evaluations=30, trials=trials))
    assert seen[:15] == first
    assert len(set(seen)) == 30


def test_it_takes_over_from_another_algorithm():
    trials = minimise(evaluations=15, algo=hyperopt.rand.suggest)
    before = set(as_tuples(trials))
    seen = as_tuples(minimise(evaluations=30, trials=trials))
    assert not set(seen[15:]) & before
    assert set(seen[15:]) <= set(FEASIBLE)


def test_an_evaluation_that_raises_counts_as_failed():
    raised = []

    def objective(point):
        if point["MODE"] == "plain":
            raised.append(tuple(point[name] for name in SPACE))
            raise RuntimeError("does not compile")
        return time_of(point)

    trials = minimise(objective, evaluations=30, catch_eval_exceptions=True)
    assert raised
    assert len(set(raised)) == len(raised)
    assert not set(raised) & set(as_tuples(trials))


def test_it_ends_once_every_feasible_point_was_tried():
    small = {name: SPACE[name] for name in ("BLOCK", "VEC")}
    trials = minimise(
        lambda point: float(point["BLOCK"]),
        space=small,
        evaluations=100,
        algo=partial(suggest, constraints=["BLOCK * VEC <= 64"]),
    )
    assert len(trials) == 3


def test_without_constraints_every_point_is_feasible():
    space = {"N": hp.uniformint("N", 3, 6)}
    trials = minimise(lambda p: (p["N"] - 5) ** 2, space=space, evaluations=50, algo=suggest)
    assert sorted(trials.vals["N"]) == [3, 4, 5, 6]
    assert trials.argmin == {"N": 5}


def test_options_that_are_no_plain_values_are_categories():
    space = hp.choice("layout", [("row", 1), ("column", 2), None])
    trials = minimise(lambda p: 0.0 if p is None else 1.0, space=space, algo=suggest)
    assert len(trials) == 3
    assert trials.argmin == {"layout": 2}


def test_it_searches_for_specialists_among_several_losses():
    def objective(point):
        losses = [abs(np.log2(point["BLOCK"]) - optimum) for optimum in (5, 9)]
        mean = sum(losses) / 2
        return {"status": "ok", "loss": mean, "losses": (mean, *losses)}

    trials = minimise(objective, evaluations=80)
    best = np.min([result["losses"] for result in trials.results], axis=0)
    assert best == pytest.approx([2, 0, 0])


def test_the_feasible_set_of_a_template_is_a_hyperopt_space():
    space = small_space()

    def objective(point):
        configuration = Configuration.of({name: point[name] for name in space.parameters})
        loss = small_loss(configuration)
        return {"status": "fail"} if loss is None else {"status": "ok", "loss": loss}

    trials = minimise(
        objective, space=hyperopt_space(space.parameters), evaluations=100, algo=suggest
    )
    assert len(trials) == space.cartesian
    assert min(loss for loss in trials.losses() if loss is not None) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("space", "constraints", "message"),
    [
        ({"X": hp.uniform("X", 0, 1)}, (), "X: uniform is not supported; use hp.choice"),
        ({"X": hp.quniform("X", 0, 1, 0.25)}, (), "X: quniform is not supported"),
        (
            hp.choice("X", [{"kind": "a", "Y": hp.randint("Y", 3)}, {"kind": "b"}]),
            (),
            "X: parameters inside an option",
        ),
        ({"X": hp.randint("X", 10**20)}, (), "parameter X has 1(0+) values; at most 65536"),
        ({"X": hp.uniformint("X", 0, 65536)}, (), "parameter X has 65537 values; at most 65536"),
        ({"X": hp.randint("X", 0)}, (), "X has no values"),
        ({"X": hp.choice("X", [])}, (), "X has no values"),
        ({"X": hp.quniform("X", 10, 0, 1)}, (), "X has no values; .* bounds in ascending order"),
        ({"X": hp.quniform("X", 0, 10, 0)}, (), "X: q is 0; it must be positive"),
        ({"X": 1}, (), "the search space has no parameters"),
        ({"X": hp.choice("X", [1, 1, 2])}, (), "X: 1 is listed 2 times"),
        ({"X": hp.pchoice("X", [(0.5, 0.1), (0.5, 0.1)])}, (), "X: 0.1 is listed 2 times"),
        (SPACE, "BLOCK < 64", r"constraints must be a list of expressions: \['BLOCK < 64'\]"),
        (SPACE, ["BLOK < 64"], "unknown name 'BLOK'; did you mean 'BLOCK'"),
        (SPACE, ["BLOCK / 2 < 64"], "'/' has no integer meaning"),
        (SPACE, ["BLOCK < 32"], "none of those left meets the constraint BLOCK < 32"),
    ],
)
def test_what_it_cannot_search_is_refused_by_name(space, constraints, message):
    with pytest.raises(SpecError, match=message):
        minimise(space=space, algo=partial(suggest, constraints=constraints))


def test_equal_options_of_different_types_are_different_options():
    space = hp.choice("X", [1, True, 1.0, "1"])
    assert len(minimise(lambda value: 0.0, space=space, algo=suggest)) == 4


@pytest.mark.parametrize("losses", [(), None, "12", 1.0, (1.0, "fast"), (1.0, None), (np.nan, 1.0)])
def test_losses_that_are_no_numbers_are_refused(losses):
    with pytest.raises(SpecError, match=r"trial 0: losses is .*; return a list of numbers"):
        minimise(lambda point: {"status": "ok", "loss": 1.0, "losses": losses})


@pytest.mark.parametrize("counts", [(3, 2), (3, 4), (1, 3), (2, 1)])
def test_losses_that_vary_in_number_are_refused(counts):
    left = list(counts)

    def objective(point):
        return {"status": "ok", "loss": 1.0, "losses": (1.0,) * left.pop(0)}

    message = f"trial 1 has {counts[1]} losses, earlier ones {counts[0]}; return the same number"
    with pytest.raises(SpecError, match=message):
        minimise(objective)
