"""Which further test cases finalists have on which shape."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tuner.candidate import BASELINE, Candidate
from tuner.engine.work import BenchSetup
from tuner.experiment.load import load_experiment
from tuner.plan import Plan
from tuner.trial import Configuration
from workers.backends.cuda.architectures import device_for
from workers.bench.input_specs import extra_specs, narrower, total_elements
from workers.bench.preparation import Preparation

RMSNORM = Path("deploy/experiments/fused_add_rmsnorm/cuda.yaml")


def prepared(secret: int = 1) -> Preparation:
    baseline = Candidate(
        trial=BASELINE, configuration=Configuration(()), plan=Plan(builds=(), cells=()), binaries=()
    )
    setup = BenchSetup(experiment=load_experiment(RMSNORM), baseline=baseline, secret=secret)
    return Preparation.of(setup, device_for("sm_90"))


def test_every_case_is_made_on_half_of_the_tune_shapes_and_the_second_seed_on_all() -> None:
    prep = prepared()
    made = Counter(spec.label for shape in prep.tune for spec in extra_specs(prep, shape))
    assert len(prep.tune) == 6
    assert made.pop("ordinary inputs, drawn again") == 6
    assert set(made.values()) == {3}
    assert {"exact zeros", "ends of the range", "values of the type's whole range"} <= set(made)


def test_which_cases_a_shape_has_is_secret() -> None:
    prep = prepared()
    labels = [
        {spec.label for spec in extra_specs(replace(prep, setup=setup), prep.tune[1])}
        for setup in (replace(prep.setup, secret=secret) for secret in range(1, 9))
    ]
    everywhere = {spec.label for shape in prep.tune for spec in extra_specs(prep, shape)}
    assert set.union(*labels) == everywhere
    assert set.intersection(*labels) == {"ordinary inputs, drawn again"}


def test_an_odd_shape_has_a_second_case_of_numbers_far_from_zero_where_it_is_small() -> None:
    prep = prepared()
    odd = range(prep.timed.stop, min(prep.constants))
    assert len(odd) > 12
    seen = set()
    for shape in odd:
        first, *beside = extra_specs(prep, shape)
        for spec in (first, *beside):
            assert spec.described.startswith(f"odd shape {prep.bindings[shape]}, ")
        seen |= {spec.distribution for spec in beside}
        for less in filter(None, map(narrower, beside)):
            assert (less.odd_shape, less.distribution) == (first.odd_shape, "sides apart")
    assert seen == {"farthest apart", "far apart"}


def test_larger_odd_shapes_have_a_second_case_of_one_integer_throughout() -> None:
    prep = prepared()
    shape = prep.timed.stop
    prep.arguments[shape] = tuple(
        replace(a, dtype="int32", shape=(3, 10**6)) if a.is_buffer else a
        for a in prep.arguments[shape]
    )
    assert [spec.distribution for spec in extra_specs(prep, shape)] == ["assorted", "same"]


def test_inputs_of_one_number_vary_on_odd_shapes_unless_the_baseline_is_undefined_then() -> None:
    prep = prepared()
    odd = prep.timed.stop
    drawn, *_ = extra_specs(prep, odd)
    prep.arguments[odd] = tuple(
        replace(a, fill="zeros") if a.name == "weight" else a for a in prep.arguments[odd]
    )
    varied, *_ = extra_specs(prep, odd)
    assert (varied.varied, drawn.varied) == (True, False)
    assert varied.label == f"{drawn.label}, no input constant"
    assert narrower(varied) == drawn


def test_constants_differ_on_shapes_of_their_own_and_matter_where_inputs_are_small() -> None:
    prep = prepared()
    assert len(prep.constants) == len(prep.tune) + 2
    *others, (signed, (_, words)) = prep.constants.items()
    assert words.startswith("eps=-")
    (spec,) = extra_specs(prep, signed)
    assert spec.label == f"{words}, ordinary inputs"
    assert spec.wide
    for shape, (_, words) in others:
        assert words.startswith("eps=")
        assert words.endswith(" in place of 1e-06")
        (eps,) = (a for a in prep.arguments[shape] if a.name == "eps")
        assert eps.value != 1e-6
        specs = extra_specs(prep, shape)
        assert {spec.spare for spec in specs} == {None, "input", "residual", "weight"}
        assert all(spec.label.startswith(words) for spec in specs)
    assert words == "eps=0 in place of 1e-06"
    assert len(set(prep.constants.values())) >= 4
    assert prepared(secret=2).constants != prep.constants


def test_large_shapes_have_the_one_case_in_which_constants_matter_most() -> None:
    prep = prepared()
    last = max(shape for shape, (what, _) in prep.constants.items() if what == "scalars")
    prep.arguments[last] = tuple(
        replace(argument, shape=(4096, 8192)) if argument.is_buffer else argument
        for argument in prep.arguments[last]
    )
    (spec,) = extra_specs(prep, last)
    assert (spec.distribution, spec.spare) == ("small", "weight")


def enlarge(prep: Preparation, shapes: Iterable[int]) -> None:
    for shape in shapes:
        prep.arguments[shape] = tuple(
            replace(argument, shape=(4096, 8192)) if argument.is_buffer else argument
            for argument in prep.arguments[shape]
        )


def test_an_odd_shape_has_the_cases_of_timed_ones_where_all_of_these_are_large() -> None:
    prep = prepared()
    odd = range(prep.timed.stop, min(prep.constants))
    cases = {spec.label for shape in prep.timed for spec in extra_specs(prep, shape)}
    enlarge(prep, prep.timed)
    assert {spec.label for shape in prep.timed for spec in extra_specs(prep, shape)} == {
        "ordinary inputs, drawn again"
    }
    (stands_in,) = (shape for shape in odd if len(extra_specs(prep, shape)) > 2)
    specs = extra_specs(prep, stands_in)
    assert cases - {spec.label for spec in specs} == {"ordinary inputs, drawn again"}
    assert {spec.odd_shape for spec in specs} == {str(prep.bindings[stands_in])}
    assert total_elements(prep.arguments[stands_in]) <= 1 << 20
    assert prep.bindings[stands_in].symbols["d"] % 128 == 0, "the vectors of the tune shapes"


def test_no_odd_shape_has_the_cases_of_timed_ones_where_it_is_large_too() -> None:
    prep = prepared()
    odd = range(prep.timed.stop, min(prep.constants))
    enlarge(prep, prep.arguments)
    assert {len(extra_specs(prep, shape)) for shape in odd} == {1}


def test_where_the_widest_range_is_undefined_narrower_ones_follow() -> None:
    prep = prepared()
    specs = [spec for shape in prep.tune for spec in extra_specs(prep, shape)]
    spec = next(spec for spec in specs if spec.distribution == "whole")
    labels = [spec.label]
    while (spec := narrower(spec)) is not None:
        labels.append(spec.label)
    ends = [label.partition("values of ")[2] for label in labels]
    assert ends == [
        "the type's whole range",
        "most of the type's range",
        "half of the type's range",
    ]
    assert narrower(specs[0]) is None
