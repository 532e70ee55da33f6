"""Discrete search spaces in Hyperopt's terms: parameters, constraints and trial documents."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.errors import SpecError
from tuner.expressions import Expression, ExpressionError, nearest
from tuner.space.conditions import Condition
from tuner.space.enumeration import require_few
from tuner.space.feasible import FeasibleSet
from tuner.space.requirements import constraint
from tuner.trial import Value


def hyperopt_space(parameters: Mapping[str, Sequence[Value]]) -> dict[str, Any]:
    """The parameters as a Hyperopt search space: one ``hp.choice`` each."""
    from hyperopt import hp

    return {name: hp.choice(name, list(values)) for name, values in parameters.items()}


@dataclass(frozen=True, slots=True, eq=False)
class DiscreteSpace:
    """A feasible set, and how Hyperopt's documents write its points.

    ``codes`` holds, for each parameter, the ordinal of every value that a document may hold: the
    ordinal itself for ``hp.choice``, the number for ``hp.randint`` and the quantised distributions.
    """

    feasible: FeasibleSet
    codes: Mapping[str, Mapping[float, int]]

    @classmethod
    def of(cls, feasible: FeasibleSet) -> "DiscreteSpace":
        """The space of documents for :func:`hyperopt_space` of the set's parameters."""
        parameters = feasible.parameters
        return cls(feasible, {n: {i: i for i in range(len(v))} for n, v in parameters.items()})

    def point(self, document: Any) -> int | None:
        """The point that a trial runs; ``None`` if it is not in the feasible set."""
        values = document["misc"]["vals"]
        try:
            ordinals = [code[values[name][0]] for name, code in self.codes.items()]
        except LookupError:
            return None
        point = int(self.feasible.find(np.array([ordinals], np.uint16))[0])
        return point if point >= 0 else None

    def documents(self, points: Mapping[int, int], domain: Any, trials: Any) -> list[Any]:
        """New trial documents, one for each trial id and its point."""
        miscs = []
        for number, point in points.items():
            ordinals = self.feasible.rows[point].tolist()
            chosen = zip(self.codes.items(), ordinals, strict=True)
            miscs.append(
                {
                    "tid": number,
                    "cmd": domain.cmd,
                    "workdir": domain.workdir,
                    "idxs": {name: [number] for name in self.codes},
                    "vals": {name: [list(code)[at]] for (name, code), at in chosen},
                }
            )
        results = [domain.new_result() for _ in miscs]
        return list(trials.new_trial_docs(list(points), [None] * len(miscs), results, miscs))


def read_space(domain: Any, constraints: Sequence[str] = ()) -> DiscreteSpace:
    """The points of a Hyperopt ``Domain`` that meet all constraints.

    Args:
        domain: of ``hp.choice`` and ``hp.pchoice`` without parameters inside an option,
            ``hp.randint``, ``hp.uniformint`` and whole-numbered ``hp.quniform``.
        constraints: expressions over the labels, such as ``"BLOCK * VEC <= 1024"``.

    Raises:
        SpecError: a distribution is continuous, nested, empty or too large, a value is listed
            twice, a constraint is malformed, or no point is feasible.
    """
    if isinstance(constraints, str):
        raise SpecError(f"constraints must be a list of expressions: [{constraints!r}]")
    if not domain.params:
        raise SpecError("the search space has no parameters")
    options = _options(domain)
    parameters: dict[str, tuple[Any, ...]] = {}
    codes: dict[str, dict[float, int]] = {}
    for label, distribution in domain.params.items():
        listed = options.get(label)
        numbers = range(len(listed)) if listed is not None else _numbers(label, distribution)
        if not numbers:
            raise SpecError(f"{label} has no values; give options, or bounds in ascending order")
        require_few(label, (numbers.stop - numbers.start - 1) // numbers.step + 1)
        parameters[label] = tuple(numbers if listed is None else listed)
        codes[label] = {number: ordinal for ordinal, number in enumerate(numbers)}
    conditions = [Condition(constraint(e)) for e in _parsed(constraints, parameters)]
    return DiscreteSpace(FeasibleSet.of(parameters, conditions, [{}]), codes)


def _options(domain: Any) -> dict[str, list[Value]]:
    """The values of each ``hp.choice``; an option that is no plain value becomes its position."""
    from hyperopt.pyll import Literal, dfs

    found: dict[str, list[Value]] = {}
    for node in dfs(domain.expr):
        if node.name == "switch":
            label = node.pos_args[0].arg["label"].obj
            options = node.pos_args[1:]
            if any(inner.name == "hyperopt_param" for one in options for inner in dfs(one)):
                raise SpecError(f"{label}: parameters inside an option are not supported")
            listed = [
                (type(option.obj), option.obj)
                for option in options
                if isinstance(option, Literal)
                and isinstance(option.obj, bool | int | float | str | None)
            ]
            for (_, value), count in Counter(listed).items():
                if count > 1:
                    raise SpecError(f"{label}: {value!r} is listed {count} times; list it once")
            found[label] = [
                option.obj
                if isinstance(option, Literal) and isinstance(option.obj, bool | int | str)
                else f"option {position}"
                for position, option in enumerate(options)
            ]
    return found


def _numbers(label: str, distribution: Any) -> range:
    """The integers that a quantised distribution yields, ascending."""
    from hyperopt.pyll import Literal

    nodes = distribution.arg.items()
    bounds: dict[str, Any] = {name: n.obj for name, n in nodes if isinstance(n, Literal)}
    if distribution.name == "randint":
        low, high = bounds["low"], bounds.get("high")
        return range(low) if high is None else range(low, high)
    if distribution.name == "quniform" and all(float(n).is_integer() for n in bounds.values()):
        low, high, step = (int(bounds[name]) for name in ("low", "high", "q"))
        if step <= 0:
            raise SpecError(f"{label}: q is {step}; it must be positive")
        return range(round(low / step) * step, round(high / step) * step + 1, step)
    raise SpecError(
        f"{label}: {distribution.name} is not supported; use hp.choice, hp.randint, hp.uniformint "
        "or a whole-numbered hp.quniform"
    )


def _parsed(constraints: Sequence[str], parameters: Mapping[str, object]) -> list[Expression]:
    parsed = [Expression.parse(text) for text in constraints]
    for expression in parsed:
        for name in sorted(expression.names - parameters.keys()):
            hint = nearest(name, parameters)
            raise ExpressionError(f"constraint {expression.text}: unknown name '{name}'{hint}")
    return parsed
