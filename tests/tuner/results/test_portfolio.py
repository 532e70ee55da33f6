"""The portfolio: what it adds and when it stops, and a rule that is exact where it was learned."""

import json
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.results.runs import finished_run
from tuner.candidate import BASELINE, INCUMBENT
from tuner.experiment.fields import Source
from tuner.experiment.model import ShapeBinding, Shapes, Template
from tuner.journal.facts import IncumbentEntered
from tuner.report.shapes import configurations_section
from tuner.report.text import render
from tuner.results.portfolio import choose, decision_rule, other_symbols
from tuner.results.summary import summarise
from tuner.trial import Configuration

SIZES = (16, 64, 256, 1024)
HELD_OUT = (8, 4096)
SHAPES = Shapes(
    tune=tuple(ShapeBinding({"n": n}) for n in SIZES),
    held_out=tuple(ShapeBinding({"n": n}) for n in HELD_OUT),
)


def portfolio_of(*trials, **options):
    """Times against a baseline of 1000 on every shape."""
    four = replace(experiment(), shapes=SHAPES)
    rows = [({"x": number}, times) for number, times in enumerate(trials)]
    history = finished_run(four, GPU, [1000.0] * 6, rows, **options)
    result = summarise(history)
    kept = json.loads(json.dumps(result.to_json(), allow_nan=False))["portfolio"]
    if result.portfolio:
        configurations = [member["configuration"] for member in kept["members"]]
        members = result.portfolio.members
        assert configurations == [member.configuration.as_dict() for member in members]
    return result.portfolio, render(result)


def test_the_general_one_alone_where_nothing_adds_enough():
    found, text = portfolio_of([500.0] * 6, [493.0] + [900.0] * 5, noise=0.0005)
    assert [member.trial for member in found.members] == [0]
    assert found.speedup == pytest.approx(2.0, rel=0.01)
    assert len(found.rule) == 1
    assert "portfolio" not in text


def test_members_are_added_by_what_they_gain_and_the_rule_reaches_held_out_shapes():
    found, text = portfolio_of(
        [500.0] * 6,
        [250.0, 250.0, 2000.0, 2000.0, 200.0, 2000.0],
        [2000.0, 2000.0, 2000.0, 400.0, 2000.0, 1000.0],
    )
    assert [member.trial for member in found.members] == [0, 1, 2]
    assert [member.gain for member in found.members] == [
        None,
        pytest.approx(2**0.5),
        pytest.approx(1.25**0.25),
    ]
    assert found.serves == (1, 1, 0, 2, 1, 2)
    assert found.speedup == pytest.approx(2 * 2**0.5 * 1.25**0.25)
    assert found.held_out == pytest.approx(5**0.5)
    assert found.comparison.verdict == "faster"
    assert "n <= 128: trial 1: x=1 (adds 41.4 %)" in text
    assert "\n             n > 512: trial 2" in text


def test_a_rule_that_picks_a_slower_one_elsewhere_says_where():
    _, text = portfolio_of(
        [500.0] * 6,
        [250.0, 250.0, 2000.0, 2000.0, 1500.0, 2000.0],
        [2000.0, 2000.0, 2000.0, 400.0, 2000.0, 400.0],
    )
    assert "slower       than your kernel on n=8 (0.667×): add a tune shape near it" in text
    assert text.count("slower       than your kernel on") == 1


def test_one_that_serves_all_says_where_it_is_slower():
    found, text = portfolio_of([500.0, 500.0, 500.0, 500.0, 500.0, 1500.0])
    assert len(found.rule) == 1
    assert text.count("slower       than your kernel on") == 1


def test_the_incumbent_serves_where_it_is_faster():
    template = Template(source=Source(name="o.cu", text=""), entry="f", parameters={"y": (7,)})
    entered = IncumbentEntered(template=template, configuration=Configuration.of({"y": 7}))
    times = [1000.0, 1000.0, 1000.0, 400.0, 1000.0, 400.0]
    found, text = portfolio_of([500.0] * 6, incumbents=[(entered, times)])
    assert found.serves == (0, 0, 0, INCUMBENT, 0, INCUMBENT)
    assert "n > 512: incumbent: y=7 (adds" in text


def two_incumbents(*trials, **options):
    """The first serves all in half the time, the second n > 512 in a quarter of it."""
    incumbents = []
    for value, times in ((7, [500.0] * 6), (8, [900.0, 900.0, 900.0, 250.0, 900.0, 250.0])):
        template = Template(
            source=Source(name="o.cu", text=""), entry="f", parameters={"y": (value,)}
        )
        entered = IncumbentEntered(template=template, configuration=Configuration.of({"y": value}))
        incumbents.append((entered, times))
    return portfolio_of(*trials, incumbents=incumbents, **options)


def test_all_incumbents_may_serve_and_their_own_portfolio_is_what_is_to_be_beaten():
    found, text = two_incumbents([800.0, 250.0, 800.0, 800.0, 800.0, 800.0], noise=0.001)
    assert found.serves[:4] == (INCUMBENT, 0, INCUMBENT, INCUMBENT - 1)
    assert found.fallback == INCUMBENT
    assert found.gain.speedup == pytest.approx(2**0.25, rel=0.01)
    assert found.gain.surely_faster
    assert f"{found.gain.speedup:.3f}× [{found.gain.low:.3f}, " in text
    assert "incumbent: y=8 (adds" in text


def test_where_nothing_is_added_the_portfolio_gains_nothing_on_itself():
    found, _ = two_incumbents([600.0] * 6, noise=0.001)
    assert set(found.serves) == {INCUMBENT, INCUMBENT - 1}
    assert found.gain.speedup == pytest.approx(1)
    assert not found.gain.surely_faster


def test_without_incumbents_there_is_no_gain_to_speak_of():
    found, _ = portfolio_of([500.0] * 6)
    assert found.gain is None


def test_where_all_are_slower_the_baseline_serves():
    found, _ = portfolio_of([250.0, 250.0, 1000.0, 4000.0, 500.0, 4000.0])
    assert found.serves == (0, 0, 0, BASELINE, 0, BASELINE)
    assert found.speedup == pytest.approx(2)


def test_without_a_general_one_specialists_still_serve():
    found, _ = portfolio_of([None, 500.0, None, None, None, None])
    assert found.serves[1] == 0
    assert found.speedup == pytest.approx(2**0.25)
    assert found.fallback == BASELINE


def test_a_choice_that_is_infeasible_elsewhere_gives_way():
    found, _ = portfolio_of([500.0] * 6, [2000.0, 2000.0, 2000.0, 250.0, 2000.0, None])
    assert found.serves == (0, 0, 0, 1, 0, 0)


def test_nothing_faster_is_no_portfolio():
    found, _ = portfolio_of([1000.0] * 6, [1200.0] * 6, noise=0.001)
    assert found is None


shapes = st.fixed_dictionaries(
    {
        "n": st.integers(-5, 1 << 40),
        "d": st.sampled_from([1, 64, 100]),
        "T": st.sampled_from(["float16", "float32", "int8"]),
        "causal": st.booleans(),
    }
)


@given(
    rows=st.lists(st.tuples(shapes, st.integers(-1, 3)), min_size=1, max_size=12),
    other=shapes,
)
def test_a_rule_is_exact_disjoint_and_covers_everything(rows, other):
    rule = decision_rule([shape for shape, _ in rows], [wanted for _, wanted in rows])
    first = {}
    for shape, wanted in rows:
        first.setdefault(tuple(sorted(shape.items())), wanted)
        assert choose(rule, shape) == first[tuple(sorted(shape.items()))]
    matching = [case for case in rule if all(one.holds(other) for one in case.when)]
    assert len(matching) == 1
    for case in rule:
        assert not any(one.follows_from(two) for one, two in permutations(case.when, 2))


def test_a_rule_has_few_cases():
    rule = decision_rule([{"n": n, "d": d} for n in SIZES for d in SIZES], [1] * 8 + [2] * 8)
    assert [(list(map(str, case.when)), case.trial) for case in rule] == [
        (["n <= 128"], 1),
        (["n > 128"], 2),
    ]


def test_of_symbols_that_tell_as_much_the_one_that_differs_most_decides():
    rule = decision_rule([{"rows": 4096, "columns": 1024}, {"rows": 512, "columns": 32000}], [1, 2])
    assert [(list(map(str, case.when)), case.trial) for case in rule] == [
        (["columns <= 5724"], 1),
        (["columns > 5724"], 2),
    ]


def test_symbols_that_would_do_as_well_are_told():
    shapes = [{"n": 64, "m": 2, "d": 8, "k": 1}, {"n": 8, "m": 64, "d": 8, "k": 1}]
    rule = decision_rule(shapes, [0, 1])
    assert list(other_symbols(rule, shapes, [0, 1])) == ["n"]
    more = [*shapes, {"n": 64, "m": 64, "d": 8, "k": 1}]
    told_apart = decision_rule(more, [0, 1, 1])
    assert list(other_symbols(told_apart, more, [0, 1, 1])) == []


def test_the_report_says_so():
    four = replace(
        experiment(),
        shapes=Shapes(
            tune=(ShapeBinding({"n": 64, "d": 2}), ShapeBinding({"n": 8, "d": 64})), held_out=()
        ),
    )
    rows = [({"x": 0}, [500.0, 500.0]), ({"x": 1}, [800.0, 200.0])]
    text = render(summarise(finished_run(four, GPU, [1000.0] * 2, rows)))
    assert "n would separate the tune shapes as well: add a tune shape to decide" in (
        " ".join(text.split())
    )


def test_what_is_named_but_not_exported_says_so():
    trials = [500.0] * 6, [493.0] + [900.0] * 5
    _, text = portfolio_of(*trials, noise=0.0005)
    assert " ".join(text.split()).count("compared with the general one; not exported") == 1
    four = replace(experiment(), shapes=SHAPES)
    rows = [({"x": number}, times) for number, times in enumerate(trials)]
    result = summarise(finished_run(four, GPU, [1000.0] * 6, rows, noise=0.0005))
    (facts,) = configurations_section(result).parts
    assert str(facts).count("compared with the general one; not exported") == 1


def test_whose_find_an_incumbent_is_is_told():
    template = Template(source=Source(name="o.cu", text=""), entry="f", parameters={"y": (7,)})
    entered = IncumbentEntered(
        template=template, configuration=Configuration.of({"y": 7}), origin="round 1, trial 4"
    )
    _, text = portfolio_of([500.0] * 6, incumbents=[(entered, [400.0] * 6)])
    assert "general      incumbent (round 1, trial 4): y=7\n" in text
