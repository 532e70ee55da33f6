"""Lowering: a configuration of a template, or the baseline, becomes a :class:`tuner.plan.Plan`.

Every expression is evaluated here, for each shape on its own; compilers and benches see integers.
A shape on which a requirement fails becomes an :class:`Infeasible` cell with the reason.
"""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product

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
    parameters = _checked_parameters(template, configuration)
    subject = template or experiment.kernel
    builds: dict[Build, int] = {}
    cells: list[CellPlan | Infeasible] = []
    required = tuple(requirements(experiment, subject, device))
    for binding in bindings:
        names = {**binding.symbols, **parameters.as_dict()}
        reasons = (violation(requirement, names, device) for requirement in required)
        if reason := next(filter(None, reasons), None):
            cells.append(Infeasible(reason=reason))
        else:
            scope = _Scope(experiment, subject, parameters, binding, device)
            number = builds.setdefault(scope.build(), len(builds))
            cells.append(
                CellPlan(
                    build=number,
                    steps=scope.steps(),
                    scratch=scope.scratch(),
                    variables=scope.variables(),
                )
            )
    return Plan(builds=tuple(builds), cells=tuple(cells))


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


def _checked_parameters(template: Template | None, configuration: Configuration) -> Configuration:
    values = configuration.as_dict()
    expected = template.parameters if template else {}
    if unknown := sorted(values.keys() - expected.keys()):
        raise SpecError(f"{unknown[0]} is not a parameter; there are: {', '.join(expected)}")
    for name, allowed in expected.items():
        if name not in values:
            raise SpecError(f"the configuration gives no value for parameter {name}")
        if not any(type(values[name]) is type(v) and values[name] == v for v in allowed):
            listed = ", ".join(map(str, allowed))
            raise SpecError(f"{name}={values[name]} is not among the template's values: {listed}")
    return Configuration.of({name: values[name] for name in expected})


class _Scope:
    """One candidate on one shape, where every requirement is met."""

    def __init__(
        self,
        experiment: Experiment,
        subject: Kernel | Template,
        parameters: Configuration,
        binding: ShapeBinding,
        device: Device,
    ) -> None:
        self._experiment = experiment
        self._subject = subject
        self._template = subject if isinstance(subject, Template) else None
        self._parameters = parameters
        self._device = device
        self._symbols: Mapping[str, Value] = binding.symbols
        self._names: Mapping[str, Value] = {**binding.symbols, **parameters.as_dict()}
        self._constants = [a for a in experiment.arguments if a.kind == "constant"]

    def build(self) -> Build:
        """The source, macros and options of this shape's binary."""
        kernel = self._experiment.kernel
        defines = {}
        if self._template:
            defines = parameter_defines(self._template, self._parameters)
            for name, expression in self._template.defines.items():
                defines[name] = self._integer(expression)
        entries = dict.fromkeys(
            self._entry(step) for step in self._subject.steps if isinstance(step, Launch)
        )
        binary = None if self._template else kernel.binary
        return Build(
            language=kernel.language,
            file=self._subject.source.name,
            source=self._subject.source.text,
            entries=tuple(entries),
            defines=tuple(defines.items()),
            options=self._options(),
            headers=kernel.headers,
            variables=module_variables(self._experiment),
            image=binary.file.data if binary else "",
            symbols=tuple(binary.symbols.items()) if binary else (),
            compiler=kernel.compiler,
            macros=tuple(kernel.defines.items()),
        )

    def steps(self) -> tuple[Step, ...]:
        """The launches and memsets, every size an integer."""
        return tuple(
            MemsetStep(argument=step.memset, byte=step.byte)
            if isinstance(step, Memset)
            else self._launch(step)
            for step in self._subject.steps
        )

    def scratch(self) -> tuple[Scratch, ...]:
        """The work buffers that the template appends."""
        appended = self._template.scratch if self._template else ()
        return tuple(self._scratch(argument) for argument in appended)

    def variables(self) -> tuple[tuple[str, int], ...]:
        """The bytes that are copied to each variable of the module."""
        return tuple(
            (constant.symbol, resolve_argument(constant, self._symbols).size)
            for constant in self._constants
            if constant.symbol
        )

    def _launch(self, launch: Launch) -> KernelStep:
        names = launch.arguments or kernel_arguments(self._experiment, self._template)
        values = {a.name: a for a in self._experiment.arguments if not a.is_pointer}
        return KernelStep(
            entry=self._entry(launch),
            grid=self._axes(launch.grid),
            block=self._axes(launch.block),
            shared_bytes=self._integer(launch.shared_bytes),
            cooperative=launch.cooperative,
            dependent=bool(self._integer(launch.dependent)),
            cluster=self._axes(launch.cluster),
            arguments=names,
            argument_bytes=tuple(passed_bytes(values.get(name), self._symbols) for name in names),
        )

    def _axes(self, expressions: Sequence[Expression]) -> Dim3:
        x, y, z = [*map(self._integer, expressions), 1, 1, 1][:3]
        return x, y, z

    def _scratch(self, argument: ScratchArgument) -> Scratch:
        dtype = str(self._symbols.get(argument.dtype, argument.dtype))
        elements = math.prod(map(self._integer, argument.shape))
        align = argument.align or item_bytes(dtype)
        return Scratch(name=argument.name, dtype=dtype, elements=elements, align=align)

    def _entry(self, launch: Launch) -> str:
        """The entry with each ``{NAME}`` replaced: an integer, or a type symbol's name in C."""
        literals = {name: str(value) for name, value in self._symbols.items()}
        for name, value in self._symbols.items():
            if isinstance(value, str):
                literals[name] = type_name(value, self._experiment.kernel.language)
        if self._template:
            defines = parameter_defines(self._template, self._parameters)
            literals.update((name, str(value)) for name, value in defines.items())
        entry = launch.entry or self._subject.entry
        try:
            return re.sub(r"\{(\w+)\}", lambda match: literals[match[1]], entry)
        except KeyError as unknown:
            raise SpecError(f"entry {entry!r}: {unknown} is no parameter and no symbol") from None

    def _options(self) -> tuple[str, ...]:
        inherited = self._experiment.kernel.options
        given = self._template.options if self._template else None
        options = []
        for option in inherited if given is None else given:
            if not isinstance(option, CompilerFlag):
                options.append(option)
            elif option.when is None or self._integer(option.when):
                value = "" if option.value is None else f"={self._integer(option.value)}"
                options.append(f"{option.flag}{value}")
        return tuple(options)

    def _integer(self, expression: Expression) -> int:
        return _integer(expression, self._names, self._device)
