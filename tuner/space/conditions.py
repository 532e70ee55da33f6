"""The requirements of a launch as vectorised conditions on many configurations at once."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.device import Device
from tuner.experiment.arguments import item_bytes
from tuner.experiment.model import Experiment, Template
from tuner.expressions import Expression, ExpressionError
from tuner.space.requirements import Requirement, requirements
from tuner.trial import Value

Column = npt.NDArray[np.generic] | Value
Columns = Mapping[str, Column]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Condition:
    """A requirement, tested for whole columns of parameters and symbols."""

    requirement: Requirement
    device: Device | None = None

    def test(self, columns: Columns, length: int) -> tuple[Bools, Bools]:
        """Which of ``length`` points meet it, and at which it can be evaluated.

        The former agrees with :func:`tuner.space.lower.violation`.
        """
        required = self.requirement
        defined: Bools = np.ones(length, np.bool_)
        fits: Bools = np.ones(length, np.bool_)
        factors = []
        for factor in required.factors:
            values, valid = self._numbers(factor, columns, length)
            fits &= valid
            defined &= valid
            if required.true:
                fits &= values != 0
            if required.least is not None:
                fits &= values >= required.least
            factors.append(values)
        if required.most is not None:
            # Dividing the room by each factor cannot overflow, as their product can.
            item = (
                item_bytes(str(columns.get(required.item, required.item))) if required.item else 1
            )
            room: Ints = np.full(length, required.most // item, np.int64)
            zero: Bools = np.zeros(length, np.bool_)
            for values in factors:
                room //= np.where(fits & (values > 0), values, 1)
                zero |= values == 0
            fits &= zero | (room >= 1)
        if required.when is not None:
            values, valid = self._numbers(required.when, columns, length)
            fits = valid & (fits | (values == 0))
            defined = valid & (defined | (values == 0))
        return fits, defined

    def problem(self, values: Mapping[str, Value]) -> str:
        """Why it cannot be evaluated at a point; empty if it can be."""
        required = self.requirement
        read = required.factors if required.when is None else (required.when, *required.factors)
        for expression in read:
            try:
                expression.evaluate(values, self.device)
            except ExpressionError as error:
                return str(error)
        return ""

    def _numbers(self, expression: Expression, columns: Columns, length: int) -> tuple[Ints, Bools]:
        values, valid = expression.mask(columns, self.device, length)
        if values.dtype.kind == "U":
            return np.zeros(length, np.int64), np.zeros(length, np.bool_)
        return values.astype(np.int64), valid


def conditions(experiment: Experiment, template: Template, device: Device) -> tuple[Condition, ...]:
    """Every condition on a template's configurations and the experiment's shapes."""
    return tuple(Condition(one, device) for one in requirements(experiment, template, device))
