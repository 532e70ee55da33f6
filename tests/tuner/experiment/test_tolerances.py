"""How the comparison of outputs is described, for users and models."""

from dataclasses import replace

from tests.agents.briefs import twice
from tuner.experiment.contents import Keys, Segments, Tolerance, Ulp, Unordered
from tuner.experiment.model import ShapeBinding, Shapes
from tuner.experiment.tolerances import comparison_rules


def said(**changes):
    """Of an experiment whose outputs are such."""
    experiment = twice()
    arguments = tuple(
        replace(argument, **changes) if argument.is_output else argument
        for argument in experiment.arguments
    )
    shapes = Shapes(tune=(ShapeBinding({"tokens": 16, "d": 32, "T": "float16"}),), held_out=())
    return set(comparison_rules(replace(experiment, arguments=arguments, shapes=shapes)).values())


def test_each_way_to_compare_has_its_words():
    given = Tolerance(rtol=0.5, atol=0.25)
    grows = "; atol times the answer's median magnitude where that is above 1"
    assert said(dtype="float32") == {f"rtol 1e-05, atol 1e-05 (default for float32{grows})"}
    assert said(tolerance=given) == {"rtol 0.5, atol 0.25 (given)"}
    assert said(dtype="T") == {"the default of each shape's element type"}
    assert said(dtype="T", tolerance=given) == {"rtol 0.5, atol 0.25 (given)"}
    assert said(compare=Ulp(ulp=3)) == {"within 3 units in the last place"}
    assert said(compare=Unordered(unordered="whole")) == {"in any order"}
    assert said(compare=Unordered(unordered="rows")) == {"in any order within each row"}
    by = Unordered(unordered=Segments(segments="ends"))
    assert said(compare=by) == {"in any order within each segment of ends"}
    by = Unordered(unordered=Keys(key="ids"))
    assert said(compare=by) == {"in any order among equal keys in ids"}
