"""Lowering: a configuration of a template, or the baseline, becomes a :class:`tuner.plan.Plan`.

Every expression is evaluated here, for each shape on its own; compilers and benches see integers.
A shape on which a requirement fails becomes an :class:`Infeasible` cell with the reason.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import product
from typing import TypeVar

from tuner.device import Device
from tuner.errors import SpecError
from tuner.experiment.arguments import (
    item_bytes,
    kernel_arguments,
    module_variables,
    passed_bytes,
    resolve_argument,
    type_name,
)
from tuner.experiment.model import (
    CompilerFlag,
    Experiment,
    Kernel,
    Launch,
    Memset,
    ScratchArgument,
    ShapeBinding,
    Template,
)
from tuner.expressions import Expression, ExpressionError
from tuner.plan import Build, CellPlan, Dim3, KernelStep, MemsetStep, Plan, Scratch, Step
from tuner.space.requirements import Requirement, requirements
from tuner.trial import Configuration, Infeasible, Value

T = TypeVar("T")

Values = Mapping[str, Value]
"""Values by the name of their parameter or symbol."""

KEPT = 256
"""For how many values of its parameters a part of a plan is kept: enough for two or three of them,
and few enough for a long search over many shapes."""


def lower(
    experiment: Experiment,
    template: Template | None,
    configuration: Configuration,
    bindings: Sequence[ShapeBinding],
    device: Device,
) -> Plan:
    """Evaluate everything that one candidate needs to be compiled and launched.

    Args:
        experiment: the kernel, its arguments and domain.
        template: the template of ``configuration``; ``None`` lowers the baseline.
        configuration: one value per parameter of the template; empty for the baseline.
        bindings: the shapes, in the order of the plan's cells.
        device: the values of ``device.<name>``, and the limits of a launch.

    Returns:
        A plan whose builds are distinct and in order of first use.

    Raises:
        SpecError: the configuration is not one of the template's.
    """
    return Lowering(experiment, template, bindings, device).plan(configuration)


class Lowering:
    """Lowers configurations of one template, or the baseline, for the same shapes.

    Works out once what no parameter changes, since a search lowers every trial. For the arguments
    see :func:`lower`.
    """

    def __init__(
        self,
        experiment: Experiment,
        template: Template | None,
        bindings: Sequence[ShapeBinding],
        device: Device,
    ) -> None:
        self.template = template
        self.bindings = bindings
        self._values = {
            name: {(type(value), value) for value in values}
            for name, values in (template.parameters if template else {}).items()
        }
        self._shapes = [_Shape(experiment, template, binding, device) for binding in bindings]

    def plan(self, configuration: Configuration) -> Plan:
        """The plan of a configuration; raises as :func:`lower`."""
        values = self._checked(configuration)
        builds: dict[Build, int] = {}
        cells: list[CellPlan | Infeasible] = []
        for shape in self._shapes:
            if reason := shape.violation(values):
                cells.append(Infeasible(reason=reason))
            else:
                build = builds.setdefault(shape.build(values), len(builds))
                cells.append(shape.cell(build, values))
        return Plan(builds=tuple(builds), cells=tuple(cells))

    def _checked(self, configuration: Configuration) -> dict[str, Value]:
        """The values in the order of the template's parameters."""
        values = configuration.as_dict()
        if unknown := sorted(values.keys() - self._values.keys()):
            listed = ", ".join(self._values)
            raise SpecError(f"{unknown[0]} is not a parameter; there are: {listed}")
        for name, allowed in self._values.items():
            if name not in values:
                raise SpecError(f"the configuration gives no value for parameter {name}")
            if (type(values[name]), values[name]) not in allowed:
                assert self.template is not None
                listed = ", ".join(map(str, self.template.parameters[name]))
                raise SpecError(
                    f"{name}={values[name]} is not among the template's values: {listed}"
                )
        return {name: values[name] for name in self._values}


def launches_dependently(
    subject: Kernel | Template,
    configuration: Configuration,
    bindings: Sequence[ShapeBinding],
    device: Device | None,
) -> bool:
    """Whether a configuration, or the baseline, has a dependent launch on one of the shapes."""
    launches = [step for step in subject.steps if isinstance(step, Launch)]
    for launch, binding in product(launches, bindings):
        names = {**binding.symbols, **configuration.as_dict()}
        with suppress(ExpressionError):
            if _integer(launch.dependent, names, device):
                return True
    return False


def violation(
    requirement: Requirement, names: Mapping[str, Value], device: Device | None
) -> str | None:
    """Why a point fails a requirement, ``None`` if it meets it.

    ``names`` holds the value of every parameter and symbol.
    """
    subject = requirement.subject
    sizes = []
    try:
        if requirement.when is not None and not _integer(requirement.when, names, device):
            return None
        for factor in requirement.factors:
            value = _integer(factor, names, device)
            if requirement.true and not value:
                return f"{subject}: {factor.text}"
            if requirement.least is not None and value < requirement.least:
                return f"{subject}: {factor.text} is {value}, below {requirement.least}"
            sizes.append(value)
    except ExpressionError as problem:
        return f"{subject}: {problem}"
    size = math.prod(sizes)
    if requirement.item is not None:
        size *= item_bytes(str(names.get(requirement.item, requirement.item)))
    if requirement.most is not None and size > requirement.most:
        text = " * ".join(factor.text for factor in requirement.factors)
        return f"{subject}: {text} is {size}, above {requirement.most}"
    return None


def _integer(expression: Expression, names: Mapping[str, Value], device: Device | None) -> int:
    value = expression.evaluate(names, device)
    if isinstance(value, str):
        raise ExpressionError(f"{expression.text} is {value!r}, not an integer")
    return int(value)


def parameter_defines(template: Template, configuration: Configuration) -> dict[str, int]:
    """The parameters as integer macros.

    Bools are 0 and 1. An enum is its index, and each of its members a macro ``NAME_member``, so
    that a kernel can write ``#if MODE == MODE_vector``.
    """
    defines: dict[str, int] = {}
    for name, value in configuration.values:
        if isinstance(value, str):
            members = [str(member) for member in template.parameters[name]]
            defines[name] = members.index(value)
            defines.update((f"{name}_{member}", index) for index, member in enumerate(members))
        else:
            defines[name] = int(value)
    return defines


class _Shape:
    """One shape: the parts of a plan, each a function of the parameters that it reads.

    In a search most of their values come up again and again, so each part keeps what it gave last.
    """

    def __init__(
        self,
        experiment: Experiment,
        template: Template | None,
        binding: ShapeBinding,
        device: Device,
    ) -> None:
        self._experiment = experiment
        self._template = template
        self._subject = subject = template or experiment.kernel
        self._parameters = template.parameters if template else {}
        self._symbols = binding.symbols
        self._device = device
        alike: dict[frozenset[str], list[tuple[int, Requirement]]] = {}
        for numbered in enumerate(self._undecided()):
            alike.setdefault(numbered[1].names.intersection(self._parameters), []).append(numbered)
        self._required = [
            self._part(names, partial(self._first_violation, required))
            for names, required in alike.items()
        ]
        self._steps = [self._part(self._read(s), partial(self._step, s)) for s in subject.steps]
        self._defines = {
            name: self._part(expression.names, partial(self._integer, expression))
            for name, expression in (template.defines if template else {}).items()
        }
        given = template.options if template else None
        options = self._experiment.kernel.options if given is None else given
        self._options = self._part(_option_names(options), partial(self._chosen, options))
        self._scratch = [
            self._part(_names(one.shape), partial(self._buffer, one))
            for one in (template.scratch if template else ())
        ]
        self._variables = self._part((), self._variable_bytes)

    def violation(self, parameters: Values) -> str | None:
        """The first requirement that is not met; the other methods need them all."""
        found = [first for part in self._required if (first := part(parameters))]
        return min(found)[1] if found else None

    def build(self, parameters: Values) -> Build:
        """The source, macros and options of this shape's binary."""
        kernel, template = self._experiment.kernel, self._template
        defines = {}
        if template:
            defines = parameter_defines(template, Configuration.of(parameters))
            defines |= {name: value(parameters) for name, value in self._defines.items()}
        steps = (step(parameters) for step in self._steps)
        entries = dict.fromkeys(step.entry for step in steps if isinstance(step, KernelStep))
        binary = None if template else kernel.binary
        return Build(
            language=kernel.language,
            file=self._subject.source.name,
            source=self._subject.source.text,
            entries=tuple(entries),
            defines=tuple(defines.items()),
            options=self._options(parameters),
            headers=kernel.headers,
            variables=module_variables(self._experiment),
            image=binary.file.data if binary else "",
            symbols=tuple(binary.symbols.items()) if binary else (),
            compiler=kernel.compiler,
            macros=tuple(kernel.defines.items()),
        )

    def cell(self, build: int, parameters: Values) -> CellPlan:
        """What is launched, with the binary of this number."""
        return CellPlan(
            build=build,
            steps=tuple(step(parameters) for step in self._steps),
            scratch=tuple(buffer(parameters) for buffer in self._scratch),
            variables=self._variables(parameters),
        )

    def _part(
        self, names: Collection[str], function: Callable[[Values], T]
    ) -> Callable[[Values], T]:
        """A function of the parameters, given what it makes of symbols and parameters ``names``."""
        read = [name for name in self._parameters if name in names]

        @lru_cache(maxsize=KEPT, typed=True)
        def kept(*values: Value) -> T:
            return function({**self._symbols, **dict(zip(read, values, strict=True))})

        return lambda parameters: kept(*[parameters[name] for name in read])

    def _undecided(self) -> Iterator[Requirement]:
        """What depends on parameters, up to a requirement that no candidate meets here."""
        for requirement in requirements(self._experiment, self._subject, self._device):
            decided = requirement.names.isdisjoint(self._parameters)
            failed = decided and violation(requirement, self._symbols, self._device)
            if failed or not decided:
                yield requirement
            if failed:
                return

    def _first_violation(
        self, required: Sequence[tuple[int, Requirement]], names: Values
    ) -> tuple[int, str] | None:
        reasons = ((n, violation(one, names, self._device)) for n, one in required)
        return next(((number, reason) for number, reason in reasons if reason), None)

    def _read(self, step: Launch | Memset) -> Collection[str]:
        if isinstance(step, Memset):
            return ()
        if "{" in (step.entry or self._subject.entry):
            return self._parameters
        sizes = (*step.grid, *step.block, *step.cluster, step.shared_bytes, step.dependent)
        return _names(sizes)

    def _step(self, step: Launch | Memset, names: Values) -> Step:
        if isinstance(step, Memset):
            return MemsetStep(argument=step.memset, byte=step.byte)
        arguments = step.arguments or kernel_arguments(self._experiment, self._template)
        values = {a.name: a for a in self._experiment.arguments if not a.is_pointer}
        return KernelStep(
            entry=self._entry(step, names),
            grid=self._axes(step.grid, names),
            block=self._axes(step.block, names),
            shared_bytes=self._integer(step.shared_bytes, names),
            cooperative=step.cooperative,
            dependent=bool(self._integer(step.dependent, names)),
            cluster=self._axes(step.cluster, names),
            arguments=arguments,
            argument_bytes=tuple(passed_bytes(values.get(n), self._symbols) for n in arguments),
        )

    def _axes(self, expressions: Sequence[Expression], names: Values) -> Dim3:
        x, y, z = [*(self._integer(each, names) for each in expressions), 1, 1, 1][:3]
        return x, y, z

    def _entry(self, launch: Launch, names: Values) -> str:
        """The entry with each ``{NAME}`` replaced: an integer, or a type symbol's name in C."""
        entry = launch.entry or self._subject.entry
        if "{" not in entry:
            return entry
        literals = {name: str(value) for name, value in self._symbols.items()}
        for name, value in self._symbols.items():
            if isinstance(value, str):
                literals[name] = type_name(value, self._experiment.kernel.language)
        if self._template:
            values = Configuration.of({name: names[name] for name in self._parameters})
            defines = parameter_defines(self._template, values)
            literals.update((name, str(value)) for name, value in defines.items())
        try:
            return re.sub(r"\{(\w+)\}", lambda match: literals[match[1]], entry)
        except KeyError as unknown:
            raise SpecError(f"entry {entry!r}: {unknown} is no parameter and no symbol") from None

    def _chosen(self, options: Sequence[str | CompilerFlag], names: Values) -> tuple[str, ...]:
        chosen = []
        for option in options:
            if not isinstance(option, CompilerFlag):
                chosen.append(option)
            elif option.when is None or self._integer(option.when, names):
                value = "" if option.value is None else f"={self._integer(option.value, names)}"
                chosen.append(f"{option.flag}{value}")
        return tuple(chosen)

    def _buffer(self, argument: ScratchArgument, names: Values) -> Scratch:
        dtype = str(self._symbols.get(argument.dtype, argument.dtype))
        elements = math.prod(self._integer(extent, names) for extent in argument.shape)
        align = argument.align or item_bytes(dtype)
        return Scratch(name=argument.name, dtype=dtype, elements=elements, align=align)

    def _variable_bytes(self, _: Values) -> tuple[tuple[str, int], ...]:
        """The bytes that are copied to each variable of the module."""
        return tuple(
            (constant.symbol, resolve_argument(constant, self._symbols).size)
            for constant in self._experiment.arguments
            if constant.kind == "constant" and constant.symbol
        )

    def _integer(self, expression: Expression, names: Values) -> int:
        return _integer(expression, names, self._device)


def _names(expressions: Iterable[Expression]) -> frozenset[str]:
    return frozenset().union(*(expression.names for expression in expressions))


def _option_names(options: Iterable[str | CompilerFlag]) -> frozenset[str]:
    flags = [option for option in options if isinstance(option, CompilerFlag)]
    return _names(e for flag in flags for e in (flag.when, flag.value) if e is not None)
