"""The feasible set: equal to brute force, to the recorded counts, and quick on big products."""

import itertools
import resource
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.space.devices import cuda_device, opencl_cpu
from tests.tuner.space.experiments import experiment, launch, parse, template
from tests.tuner.space.recorded import CONVOLUTION, DEDISPERSION, GEMM
from tuner.errors import SpecError
from tuner.experiment.model import CompilerFlag, ScratchArgument
from tuner.plan import CellPlan
from tuner.space import enumeration
from tuner.space.feasible import feasible_set, recorded_set
from tuner.space.lower import lower
from tuner.trial import Configuration

DEVICE = opencl_cpu()


@pytest.mark.parametrize(
    ("space", "count"), [(CONVOLUTION, 4362), (DEDISPERSION, 11130), (GEMM, 17956)]
)
def test_counts_of_known_spaces(space, count):
    parameters, constraints = space
    found = feasible_set(experiment(), template(parameters, constraints), DEVICE)
    assert len(found) == count
    assert found.cartesian == np.prod([len(values) for values in parameters.values()])
    rejected = sum(rejection.points for rejection in found.rejections)
    assert rejected == found.cartesian - count


def test_a_space_that_takes_too_long_to_enumerate_is_sampled(monkeypatch):
    monkeypatch.setattr(enumeration, "MAX_TESTS", 500)
    parameters = {name: tuple(range(10)) for name in "ABC"}
    found = feasible_set(experiment(), template(parameters, ["(A + B + C) % 9 == 0"]), DEVICE)
    assert len(found) == found.size == found.estimate == 112
    assert {sum(found.configuration(i).as_dict().values()) % 9 for i in range(112)} == {0}


def test_a_sample_without_any_feasible_point_is_refused_naming_the_constraint(monkeypatch):
    monkeypatch.setattr(enumeration, "MAX_TESTS", 500)
    monkeypatch.setattr(enumeration, "SAMPLE", 20)
    parameters = {name: tuple(range(10)) for name in "ABC"}
    with pytest.raises(
        SpecError, match=r"a sample of 1\d\d points none meets .*A \+ B \+ C == 27; rem"
    ):
        feasible_set(experiment(), template(parameters, ["A + B + C == 27"]), DEVICE)


INTEGERS = st.lists(st.integers(-1, 9), min_size=1, max_size=4, unique=True).map(tuple)
PARAMETERS = st.fixed_dictionaries(
    {
        "A": INTEGERS,
        "B": INTEGERS,
        "C": st.sampled_from([(False, True), (True,)]),
        "M": st.sampled_from([("x", "y", "z"), ("y",)]),
    }
)
CONSTRAINTS = st.lists(
    st.sampled_from(
        [
            "A % B == 0",
            "A * B <= n",
            "n % A != 1",
            "M == 'x' or C",
            "M != 'y' or A > 2",
            "A > B if C else B >= A",
            "1 // (A - B) == 0",
            "A == B or 8 // (A - B) > 0",
            "n > 10",
        ]
    ),
    max_size=4,
)
SHAPES = st.lists(st.sampled_from([{"n": 3}, {"n": 12}, {"n": 64}]), min_size=1, max_size=3)
EXTRAS = st.fixed_dictionaries(
    {
        "steps": st.sampled_from(
            [
                [launch()],
                [launch(grid=("ceil_div(n, A)", "B"), block=("64 * B", "A"), shared_bytes="A * n")],
                [launch(grid=("n // A",)), launch(block=("2 ** A",), shared_bytes="B * 10 ** A")],
                [launch(grid=("n % 2",)), launch(block=("1024", "A", "max(B, 1)"))],
            ]
        ),
        "defines": st.sampled_from([{}, {"D": "log2(A)"}, {"D": "n // B", "E": "C"}]),
        "options": st.sampled_from(
            [
                None,
                (CompilerFlag(flag="-r", value=parse("16 // A"), when=parse("C")),),
                (CompilerFlag(flag="-f", when=parse("16 % B == 0")),),
            ]
        ),
        "scratch": st.sampled_from(
            [(), (ScratchArgument(name="s", dtype="int16", shape=(parse("A"), parse("n * B"))),)]
        ),
    }
)


@given(PARAMETERS, CONSTRAINTS, SHAPES, EXTRAS, st.sampled_from([1, 5, 1 << 17]))
def test_the_set_is_what_lowering_finds_point_by_point(
    parameters, constraints, shapes, extras, chunk
):
    family = template(parameters, constraints, **extras)
    problem = experiment(*shapes, domain=["n != 12 or n % 3 == 0"])
    device = cuda_device(90)
    expected = {}
    for point in itertools.product(*parameters.values()):
        configuration = Configuration(tuple(zip(parameters, point, strict=True)))
        cells = lower(problem, family, configuration, problem.shapes.tune, device).cells
        mask = [isinstance(cell, CellPlan) for cell in cells]
        if any(mask):
            expected[configuration] = mask
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enumeration, "CHUNK", chunk)
        if not expected:
            with pytest.raises(SpecError, match="no configuration is feasible"):
                feasible_set(problem, family, device)
            return
        found = feasible_set(problem, family, device)
    listed = {found.configuration(i): found.mask[i].tolist() for i in range(len(found))}
    assert listed == expected
    assert sum(r.points for r in found.rejections) == found.cartesian - len(found)
    assert [found.index_of(c) for c in listed] == list(range(len(found)))
    for i in range(0, len(found), 7):
        assert sorted(found.neighbours(i).tolist()) == [
            j for j in range(len(found)) if near(found.rows[i].tolist(), found.rows[j].tolist())
        ]


def near(row, other):
    """Whether two rows of ordinals differ in one place, or in two by one each."""
    gaps = [abs(a - b) for a, b in zip(row, other, strict=True) if a != b]
    return len(gaps) == 1 or gaps == [1, 1]


@given(PARAMETERS, CONSTRAINTS, SHAPES, EXTRAS, st.integers(1, 12), st.integers(1, 40))
def test_a_sample_is_feasible_and_grows_by_what_is_looked_up(
    parameters, constraints, shapes, extras, size, drawn
):
    family, problem = template(parameters, constraints, **extras), experiment(*shapes)
    try:
        exact = feasible_set(problem, family, DEVICE)
    except SpecError:
        return
    with pytest.MonkeyPatch.context() as patch:
        for name, most in (("MAX_POINTS", 0), ("SAMPLE", size), ("DRAWN", drawn)):
            patch.setattr(enumeration, name, most)
        try:
            found, again = (feasible_set(problem, family, DEVICE) for _ in range(2))
        except SpecError:  # no sampled point was feasible
            return
    assert np.array_equal(found.rows, again.rows)
    assert found.drawn == len(found) <= size
    numbers = exact.find(found.rows)
    assert np.all(np.diff(numbers) > 0)
    assert numbers[0] >= 0
    assert np.array_equal(exact.mask[numbers], found.mask)
    for point in range(len(exact)):
        configuration = exact.configuration(point)
        number = found.index_of(configuration)
        assert found.configuration(number) == configuration
        near = [found.configuration(other) for other in found.neighbours(number)]
        assert near == [exact.configuration(other) for other in exact.neighbours(point)]
    assert len(found) == len(exact)
    assert np.array_equal(found.rows[: found.drawn], again.rows)
    infeasible = set(itertools.product(*map(range, exact.rows.max(axis=0) + 1)))
    infeasible -= set(map(tuple, exact.rows.tolist()))
    assert all(found.find(np.array([row], np.uint16))[0] == -1 for row in list(infeasible)[:20])


def test_a_hundred_million_feasible_configurations_are_sampled():
    parameters = {name: tuple(range(1, 11)) for name in "ABCDEFGHI"}
    constraints = ["C + D <= 10", "E * F <= 50", "A % B == 0 or B % A == 0"]
    found = feasible_set(experiment(), template(parameters, constraints), DEVICE)
    listed = list(itertools.product(range(1, 11), repeat=2))
    sums, products = sum(c + d <= 10 for c, d in listed), sum(e * f <= 50 for e, f in listed)
    divided = sum(a % b == 0 or b % a == 0 for a, b in listed)
    assert found.size == pytest.approx(sums * products * divided * 1000, rel=0.02)
    assert found.size > 10**8
    assert 30_000 < len(found) <= 1 << 16
    # Each value is drawn about as often as the space has it.
    shares = np.bincount(found.rows[:, 8]) / len(found)
    assert shares == pytest.approx(0.1, abs=0.01)


def test_a_big_product_with_selective_constraints_is_enumerated_quickly():
    parameters = {name: tuple(range(1, 11)) for name in "ABCDEFGH"}
    constraints = ["A * B == 12", "C % B == 0", "D + E == A", "F * G * H == 60", "A * H <= 20"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    found = feasible_set(experiment(), template(parameters, constraints), DEVICE)
    assert time.process_time() - start < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20
    assert found.cartesian == 10**8
    assert 0 < len(found) < 5000


def test_an_empty_set_names_what_emptied_it():
    family = template({"A": (1, 2, 4), "B": (8, 16)}, ["A * B <= 32", "A * B % 5 == 0", "A == B"])
    with pytest.raises(SpecError) as caught:
        feasible_set(experiment(), family, DEVICE)
    assert "none of those left meets the constraint A * B % 5 == 0" in str(caught.value)
    assert "1 by the constraint A * B <= 32" in str(caught.value)


@pytest.mark.parametrize(
    ("constraint", "problem"),
    [
        ("1 // (A - A) == 0", "division by zero at A=2"),
        ("A % 0 == 0", "division by zero at A=2"),
        ("9**9**9**9 > A", "overflow: beyond 64 bits at A=2"),
        ("2 ** (A ** 9) > 1", "overflow: beyond 64 bits at A=2"),
        ("n // (A - A) > 1", "division by zero at A=2, n=256"),
    ],
)
def test_an_empty_set_says_that_a_constraint_cannot_be_evaluated(constraint, problem):
    with pytest.raises(SpecError) as caught:
        feasible_set(experiment(), template({"A": (2, 4)}, [constraint]), DEVICE)
    assert f"; it cannot be evaluated: '{constraint}': {problem}" in str(caught.value)


def test_a_constraint_that_cannot_be_evaluated_at_some_points_is_noted():
    constraints = ["B == 1", "log2(A - 2) > 1", "A != 8"]
    found = feasible_set(
        experiment(), template({"A": (1, 2, 6, 8), "B": (1,)}, constraints), DEVICE
    )
    assert [(one.condition, one.points, one.problem) for one in found.rejections] == [
        (
            "the constraint log2(A - 2) > 1",
            2,
            "'log2(A - 2) > 1': log2() of a number below 1 at A=1",
        ),
        ("the constraint A != 8", 1, ""),
    ]


def test_an_empty_set_may_be_the_devices_doing():
    family = template({"A": (1, 2)}, steps=[launch(block=("4096 * A", 2))])
    with pytest.raises(SpecError, match="1 to 1024 threads along x"):
        feasible_set(experiment(), family, cuda_device(90))


def test_more_than_256_values_keep_their_order():
    values = tuple(range(700))
    found = feasible_set(experiment(), template({"A": values, "B": (0, 1)}, ["A % 2 == 0"]), DEVICE)
    assert len(found) == 700
    assert found.configuration(699).as_dict() == {"A": 698, "B": 1}
    assert all(found.index_of(found.configuration(i)) == i for i in range(len(found)))


def test_points_outside_are_not_found():
    found = feasible_set(experiment(), template({"A": (1, 2, 3)}, ["A != 2"]), DEVICE)
    assert found.index_of(Configuration.of({"A": 2})) is None
    assert found.index_of(Configuration.of({"A": 7})) is None
    assert found.index_of(Configuration.of({"B": 1})) is None
    assert found.neighbours(0).tolist() == [1]


def test_steps_of_two_parameters_cross_a_constraint_on_both():
    family = template({"A": (1, 2, 4, 8), "B": (1, 2, 4, 8)}, ["A * B == 8"])
    found = feasible_set(experiment(), family, DEVICE)
    assert [found.configuration(i).as_dict() for i in found.neighbours(1)] == [
        {"A": 1, "B": 8},
        {"A": 4, "B": 2},
    ]


def test_a_template_without_parameters_has_one_configuration():
    found = feasible_set(experiment(), template({}), DEVICE)
    assert len(found) == 1
    assert found.configuration(0) == Configuration(())
    assert found.index_of(Configuration(())) == 0
    assert found.neighbours(0).size == 0


def test_a_recorded_set_is_sorted_and_distinct():
    found = recorded_set({"A": (1, 2), "B": (3, 4)}, [[1, 0], [0, 1], [1, 0]])
    assert [found.configuration(i).as_dict() for i in range(len(found))] == [
        {"A": 1, "B": 4},
        {"A": 2, "B": 3},
    ]
