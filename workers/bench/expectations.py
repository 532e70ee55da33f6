"""What is expected of each output of a case, from the baseline's runs and the reference.

Owns when runs of a baseline are refused, and how its errors widen a bound; the arithmetic of bounds
is in :mod:`workers.bounds`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.tolerances import BASELINE_ERRORS
from tuner.trial import Rejected
from workers.bench.baseline_rejections import (
    differ,
    disagreement,
    no_number,
    overflow,
    unsteady,
    unwritten,
)
from workers.bench.input_specs import InputSpec
from workers.bounds import depend_on_each_other, local_bounds, widened
from workers.comparison import ArrayComparison, Expected, compare
from workers.elements import from_storage
from workers.groups import groups

SPREADS = 4.0
"""How many times the largest error of a baseline that varies a candidate may err."""
_SMALL_ERROR = 1 / SPREADS
"""An error, in bounds, that widens none."""
_NEAR = 0.5
"""An error, in bounds, that other inputs may double."""

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The oracle of an output: ``want``, and a tolerance without paths.

    ``bounds`` counts instead where elements have bounds of their own. ``varies``: the baseline
    does, from run to run. ``near``: it errs by much of the bound that the spec gives.
    """

    want: NDArray[Any]
    tolerance: Expected
    bounds: NDArray[Any] | None
    varies: bool
    near: bool


class BaselineRuns:
    """The baseline's outputs of two or more runs on one case, beside the reference's.

    Args:
        spec: the case's.
        outputs: the arguments that are written.
        runs: the bytes of each output, by run; the first two on different poisons.
        inputs: those by which outputs are grouped.
        reference: what it returns; the first run stands for outputs that it lacks.
    """

    def __init__(
        self,
        spec: InputSpec,
        outputs: Sequence[ResolvedArgument],
        runs: Sequence[Mapping[str, bytes]],
        inputs: Arrays,
        reference: Arrays,
    ) -> None:
        self._spec = spec
        self._runs = runs
        self._found = [
            {**inputs, **{a.name: from_storage(run[a.name], a) for a in outputs}} for run in runs
        ]
        self._wanted = {**self._found[0], **reference}
        for argument in outputs:
            if argument.compare == "exact":
                dtype = self._found[0][argument.name].dtype
                self._wanted[argument.name] = self._wanted[argument.name].astype(dtype)

    def want(self, argument: ResolvedArgument) -> NDArray[Any]:
        """What an output should be."""
        return self._wanted[argument.name]

    def refused(self, argument: ResolvedArgument) -> Rejected | None:
        """The rejection of an output that is not written, or holds no numbers where it should."""
        first, second = (found[argument.name] for found in self._found[:2])
        problem = unwritten(argument, first, second)
        if problem is None and self._spec.wide:
            problem = overflow(argument, first)
        if problem is None and self._spec.launches == 1 and self._spec.distribution == "default":
            problem = no_number(argument, first)
        return problem

    def expectation(
        self, argument: ResolvedArgument, own: Expected, *, given: bool
    ) -> Expectation | Rejected | None:
        """What is expected of an output, ``None`` if differences grow too fast to compare.

        Args:
            argument: the output.
            own: the bound that the spec gives it.
            given: whether its tolerance is in the spec.
        """
        want = self.want(argument)
        all_runs = list(self._different(argument))
        each = np.zeros(want.size, np.float32) if own.mode == "close" else None
        error, *noise = (self._compared(argument, one, own, each) for one in all_runs)
        if error.failures:
            return disagreement(argument, error, own)
        if self._spec.launches > 1 and any(one.failures for one in noise):
            return None
        for one in noise:
            if math.isinf(one.error):
                return unsteady(argument, one)
        errors: NDArray[Any] | float = max(one.error for one in (error, *noise))
        bounds = local_bounds(argument, own, want, given=given)
        if each is not None and bounds is not None:
            local = np.zeros_like(each)
            for run in all_runs:
                compare(run[argument.name], want, own, bounds=bounds, largest=local)
            depend = depend_on_each_other(want, local, each)
            bounds, each = (None, each) if depend else (bounds, local)
        if each is not None and (bounds is not None or errors > _SMALL_ERROR):
            errors = each.reshape(want.shape)
        times = SPREADS if noise else BASELINE_ERRORS
        own, bounds = widened(own, bounds, want, errors * times)
        near = error.error > _NEAR
        return Expectation(want=want, tolerance=own, bounds=bounds, varies=bool(noise), near=near)

    def _different(self, argument: ResolvedArgument) -> Iterator[Arrays]:
        """The first run, and those in which an output differs from it."""
        yield self._found[0]
        for found, run in zip(self._found[1:], self._runs[1:], strict=True):
            if differ(argument, run[argument.name], self._runs[0][argument.name]):
                yield found

    def _compared(
        self,
        argument: ResolvedArgument,
        found: Arrays,
        own: Expected,
        each: NDArray[np.float32] | None,
    ) -> ArrayComparison:
        """A run's output beside what is wanted; updates the largest error of each element."""
        return compare(
            found[argument.name],
            self.want(argument),
            own,
            groups=groups(argument, found.__getitem__, self._wanted.__getitem__),
            largest=each,
        )
