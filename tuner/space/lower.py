"""Lowering: a configuration of a template, or the baseline, becomes a :class:`tuner.plan.Plan`.

Every expression is evaluated here, for each shape on its own; compilers and benches see integers.
What cannot run on a shape becomes an :class:`Infeasible` cell with its reason: a shape outside the
domain, a constraint that does not hold, an expression without a value there, or a launch over the
device's limits.
"""

import re
from collections.abc import Mapping, Sequence

from tuner.device import Device
from tuner.errors import SpecError
from tuner.experiment.arguments import item_bytes, kernel_arguments, type_name
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
from tuner.space.limits import launch_excess
from tuner.trial import Configuration, Infeasible, Value

INT64_MAX = 2**63 - 1


class _InfeasibleError(Exception):
    """Why one shape cannot be lowered; never leaves this module."""


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
        template: the family that ``configuration`` belongs to; ``None`` lowers the baseline.
        configuration: one value per parameter of the template; empty for the baseline.
        bindings: the shapes, in the order of the plan's cells.
        device: what ``device.<name>`` means, and the limits of a launch.

    Returns:
        A plan whose builds are distinct and in order of first use.

    Raises:
        SpecError: the configuration is not one of the template's.
    """
    parameters = _checked_parameters(template, configuration)
    builds: dict[Build, int] = {}
    cells: list[CellPlan | Infeasible] = []
    for binding in bindings:
        scope = _Scope(experiment, template or experiment.kernel, parameters, binding, device)
        try:
            scope.check()
            build, steps, scratch = scope.build(), scope.steps(), scope.scratch()
        except _InfeasibleError as problem:
            cells.append(Infeasible(reason=str(problem)))
        else:
            number = builds.setdefault(build, len(builds))
            cells.append(CellPlan(build=number, steps=steps, scratch=scratch))
    return Plan(builds=tuple(builds), cells=tuple(cells))


def parameter_defines(template: Template, configuration: Configuration) -> dict[str, int]:
    """The parameters as integer macros.

    Bools are 0 and 1. An enum is its index, and each of its members a macro ``NAME_member``, so
    that ``#if MODE == MODE_vector`` means what it says.
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
    """One candidate on one shape: the names that its expressions see, and their evaluation."""

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

    def check(self) -> None:
        """Raise unless the shape is in the domain and meets every constraint."""
        for condition in self._experiment.shapes.domain:
            self._require(condition, "the shape is outside the domain")
        for condition in self._template.constraints if self._template else ():
            self._require(condition, "a constraint does not hold")

    def build(self) -> Build:
        """The source, macros and options of this shape's binary."""
        kernel = self._experiment.kernel
        defines = {}
        if self._template:
            defines = parameter_defines(self._template, self._parameters)
            for name, expression in self._template.defines.items():
                defines[name] = self._integer(expression, f"define {name}")
        entries = dict.fromkeys(
            self._entry(step) for step in self._subject.steps if isinstance(step, Launch)
        )
        return Build(
            language=kernel.language,
            file=self._subject.source.name,
            source=self._subject.source.text,
            entries=tuple(entries),
            defines=tuple(defines.items()),
            options=self._options(),
            headers=kernel.headers,
        )

    def steps(self) -> tuple[Step, ...]:
        """The launches and memsets, every size an integer within the device's limits."""
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

    def _launch(self, launch: Launch) -> KernelStep:
        step = KernelStep(
            entry=self._entry(launch),
            grid=self._axes(launch.grid, "grid"),
            block=self._axes(launch.block, "block"),
            shared_bytes=self._integer(launch.shared_bytes, "shared_bytes", least=0),
            cooperative=launch.cooperative,
            arguments=launch.arguments or kernel_arguments(self._experiment, self._template),
        )
        if excess := launch_excess(step, self._device):
            raise _InfeasibleError(excess[1])
        return step

    def _axes(self, expressions: Sequence[Expression], what: str) -> Dim3:
        sizes = [self._integer(e, f"{what}[{axis}]", least=1) for axis, e in enumerate(expressions)]
        x, y, z = [*sizes, 1, 1][:3]
        return x, y, z

    def _scratch(self, argument: ScratchArgument) -> Scratch:
        dtype = str(self._symbols.get(argument.dtype, argument.dtype))
        elements = 1
        for extent in argument.shape:
            elements *= self._integer(extent, f"scratch {argument.name}", least=1)
        if elements * item_bytes(dtype) > INT64_MAX:
            raise _InfeasibleError(f"scratch {argument.name} is over 2**63 bytes")
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
            if isinstance(option, CompilerFlag):
                if option.when is None or self._holds(option.when, f"option {option.flag}"):
                    options.append(self._flag(option))
            else:
                options.append(option)
        return tuple(options)

    def _flag(self, option: CompilerFlag) -> str:
        if option.value is None:
            return option.flag
        return f"{option.flag}={self._integer(option.value, f'option {option.flag}')}"

    def _require(self, condition: Expression, otherwise: str) -> None:
        if not self._holds(condition, otherwise):
            raise _InfeasibleError(f"{otherwise}: {condition.text}")

    def _holds(self, condition: Expression, what: str) -> bool:
        return self._integer(condition, what) != 0

    def _integer(self, expression: Expression, what: str, *, least: int | None = None) -> int:
        value = self._evaluate(expression, what)
        if isinstance(value, str):
            raise _InfeasibleError(f"{what}: {expression.text} is {value!r}, not an integer")
        if least is not None and value < least:
            raise _InfeasibleError(f"{what}: {expression.text} is {value}, below {least}")
        return int(value)

    def _evaluate(self, expression: Expression, what: str) -> Value:
        try:
            return expression.evaluate(self._names, self._device)
        except ExpressionError as problem:
            raise _InfeasibleError(f"{what}: {problem}") from None
