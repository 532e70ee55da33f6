"""Notes on inputs that no check depends on."""

import filecmp
from pathlib import Path

import numpy as np

from tuner.experiment.arguments import ResolvedArgument
from workers.bench.input_specs import InputSpec
from workers.bench.oracle import Oracle
from workers.bench.preparation import Preparation
from workers.inputs import can_renew, is_foreign
from workers.integrity.launch_checks import VerificationCase


def note_unchanged_inputs(prep: Preparation, oracle: Oracle) -> None:
    """Note each input that does not change the first shape's outputs, or never changes itself."""
    first = prep.cases[0][0]
    inputs = [a for a in prep.arguments[0] if a.name in first.contents]
    constant: list[ResolvedArgument] = []
    for argument in inputs:
        spec = InputSpec(label=f"{argument.name} drawn anew", redraw=argument.name)
        other = oracle.case(0, spec)
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
        if is_foreign(argument) and not can_renew(argument):
            oracle.note(
                f"input {argument.name} never changes: a kernel that remembers what follows "
                "from it would not be found out"
            )
