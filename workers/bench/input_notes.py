"""Notes on what the test cases leave untested."""

import filecmp
from pathlib import Path

import numpy as np

from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.constants import fixed_scalars
from tuner.experiment.odd_shapes import unchecked_sizes
from tuner.experiment.tolerances import default_tolerance
from workers.bench.input_specs import InputSpec
from workers.bench.oracle import Oracle
from workers.bench.preparation import Preparation
from workers.elements import is_float
from workers.inputs import is_foreign
from workers.integrity.launch_checks import VerificationCase
from workers.integrity.trivial_answers import unnoticed_omissions
from workers.variations import variation


def note_untested(prep: Preparation, oracle: Oracle) -> None:
    """Note what passes all test cases of the first shape, and what none of them holds."""
    if alone := unchecked_sizes(prep.setup.experiment):
        oracle.note(alone)
    for note in unnoticed_omissions(prep.arguments[0], prep.cases[0][0]):
        oracle.note(note)
    _note_tolerances(prep, oracle)
    _note_values(prep, oracle)
    _note_unchanged_inputs(prep, oracle)


def changed_inputs(prep: Preparation) -> list[tuple[int, InputSpec]]:
    """The cases of the first shape with each input drawn anew, which show whether it matters."""
    return [
        (0, InputSpec(label=f"{argument.name} drawn anew", redraw=argument.name))
        for argument in prep.arguments[0]
        if argument.is_input
    ]


def _note_unchanged_inputs(prep: Preparation, oracle: Oracle) -> None:
    """Note each input that does not change the first shape's outputs, or never changes itself."""
    first = prep.cases[0][0]
    inputs = [argument for argument in prep.arguments[0] if argument.is_input]
    constant: list[ResolvedArgument] = []
    for argument, key in zip(inputs, changed_inputs(prep), strict=True):
        other = oracle.case(*key)
        if not isinstance(other, VerificationCase):
            continue
        was, now = (Path(one.contents[argument.name]) for one in (first, other))
        if filecmp.cmp(was, now, shallow=False):
            constant.append(argument)
        elif all(
            np.array_equal(want, other.wants[name], equal_nan=True)
            for name, want in first.wants.items()
        ):
            oracle.note(f"input {argument.name} does not change the result")
    if len(constant) == len(inputs):
        oracle.note("no input ever changes: a kernel that kept its first answer would be right")
        return
    for argument in constant:
        if is_foreign(argument) and variation(argument) is None:
            oracle.note(
                f"input {argument.name} never changes: a kernel that remembers what follows "
                "from it would not be found out"
            )


def _note_tolerances(prep: Preparation, oracle: Oracle) -> None:
    """Note the outputs of which less accuracy is asked than by default."""
    for output in prep.arguments[0]:
        usual, given = default_tolerance(output.dtype).rtol, output.tolerance.rtol
        if output.is_output and output.compare == "close" and given > usual:
            oracle.note(
                f"{output.name} may err by {given:.3g} of its value (`tolerance`); the default "
                f"for {output.dtype} is {usual:.3g}"
            )


def _note_values(prep: Preparation, oracle: Oracle) -> None:
    """Note scalars that never change, and inputs without infinity and NaN."""
    for scalar in fixed_scalars(prep.setup.experiment):
        if not scalar.fixed:
            oracle.note(
                f"{scalar.name} is {scalar.value} in every test case: give it a `range`, or say "
                "`fixed: true`"
            )
    unsaid = [
        a.name
        for a in prep.arguments[0]
        if a.fill in ("normal", "uniform")
        and is_float(a.dtype)
        and a.is_input
        and a.range is None
        and not a.specials
    ]
    if unsaid:
        oracle.note(
            f"infinity and NaN are not tested in {', '.join(unsaid)}: say in `specials` which may "
            "occur, or give a `range`"
        )
