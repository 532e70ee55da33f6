"""Substitution rules: which launches of an application a run's kernels replace, and how.

A rule is about one kernel of the application: the baseline, with one binding of the type symbols.
It says how symbols are read from a launch, checks that the launch is as the spec has it, and has
the variants and the dispatch of the export as postfix programs
(:mod:`tuner.expressions.postfix`) over the symbols, written ``$0``, ``$1`` and so on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.candidate import BASELINE
from tuner.errors import SpecError
from tuner.experiment.arguments import item_bytes, kernel_arguments, passed_bytes, passed_numbers
from tuner.experiment.contents import Compare, Ulp, Unordered
from tuner.experiment.model import Argument, CompilerFlag, Launch, ShapeBinding
from tuner.experiment.tolerances import default_tolerance
from tuner.export.bundle import Export
from tuner.export.variant import ExportVariant
from tuner.expressions import Expression
from tuner.expressions.tree import Apply, Const, Name
from tuner.plan import Build, CellPlan, KernelStep, Shape
from tuner.results.result import DispatchCondition
from tuner.space.lower import lower
from tuner.space.requirements import constraints, served

Program = str
"""The words of a postfix program, separated by spaces."""

ALWAYS: Program = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A number of a launch: an axis, the shared bytes (index 0), or an integer in a parameter.

    The integer has ``size`` bytes from byte ``at`` of the parameter on.
    """

    kind: Literal["parameter", "grid", "block", "shared"]
    index: int
    at: int = 0
    size: int = 0
    unsigned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolSource:
    """A symbol's value is the source's, divided by ``divisor`` without a rest."""

    source: Source
    divisor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRule:
    """A buffer: its parameter, alignment and size in bytes; how it is compared if it is written."""

    parameter: int
    align: int
    kind: Literal["in", "out", "inout", "scratch"]
    element: str
    mode: Literal["close", "exact", "unordered", "ulp"]
    rtol: float
    atol: float
    ulp: int
    scaled: bool
    bytes: Program


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedLaunch:
    """A variant's launch: entry of a build, the parameters that it takes, conditions, geometry."""

    build: Build
    entry: str
    arguments: tuple[int, ...]
    conditions: tuple[Program, ...]
    grid: tuple[Program, Program, Program]
    block: tuple[Program, Program, Program]
    shared_bytes: Program


@dataclass(frozen=True, slots=True, kw_only=True)
class SubstitutionRule:
    """One kernel of the application: ``entry`` of ``build``, which compiles the baseline.

    ``sizes`` are its parameters' in bytes; ``nulls`` those that must be null. ``same`` are sources
    with the value that they must have. In ``uses``, the first whose condition holds and whose
    variant is feasible serves a launch; ``None`` is the original.
    """

    build: Build
    entry: str
    sizes: tuple[int, ...]
    symbols: tuple[SymbolSource, ...]
    same: tuple[tuple[Source, Program], ...]
    nulls: tuple[int, ...]
    buffers: tuple[BufferRule, ...]
    domain: tuple[Program, ...]
    variants: tuple[TunedLaunch, ...]
    uses: tuple[tuple[int | None, Program], ...]


def substitution_rules(export: Export) -> tuple[tuple[SubstitutionRule, ...], tuple[str, ...]]:
    """The rules of an export, and notes on variants that cannot be substituted, with the reason.

    Raises:
        SpecError: the baseline's launch cannot be recognised in an application; says why.
    """
    shapes = export.experiment.shapes
    types: dict[tuple[tuple[str, str], ...], list[ShapeBinding]] = {}
    for binding in (*shapes.tune, *shapes.held_out):
        named = tuple((n, v) for n, v in binding.symbols.items() if isinstance(v, str))
        types.setdefault(named, []).append(binding)
    makers = [_RuleMaker(export, dict(named), found) for named, found in types.items()]
    rules = tuple(maker.rule() for maker in makers)
    return rules, tuple(dict.fromkeys(note for maker in makers for note in maker.notes))


class _RuleMaker:
    """Makes the rule for one binding of the type symbols; ``bindings`` are the shapes with it."""

    def __init__(
        self, export: Export, types: Mapping[str, str], bindings: Sequence[ShapeBinding]
    ) -> None:
        self._export = export
        self._experiment = export.experiment
        self._types: Shape = dict(types)
        self._bindings = bindings
        self._names = [name for name in bindings[0].symbols if name not in types]
        self._arguments = {argument.name: argument for argument in self._experiment.arguments}
        self._launch = self._only_launch()
        self._parameters = self._launch.arguments or kernel_arguments(self._experiment)
        self.notes: list[str] = []

    def rule(self) -> SubstitutionRule:
        """The rule; raises ``SpecError`` if launches cannot be recognised."""
        experiment = self._experiment
        variants, uses = self._dispatch()
        unchanged = self._export.variants[BASELINE].configuration
        baseline = lower(experiment, None, unchanged, self._bindings, self._export.device)
        cell = next((c for c in baseline.cells if isinstance(c, CellPlan)), None)
        if cell is None or len(baseline.builds) != 1 or not isinstance(cell.steps[0], KernelStep):
            raise SpecError("the baseline is compiled differently for different shapes")
        return SubstitutionRule(
            build=baseline.builds[0],
            entry=cell.steps[0].entry,
            sizes=tuple(self._size(name) for name in self._parameters),
            symbols=tuple(self._symbol(name) for name in self._names),
            same=tuple(self._same()),
            nulls=tuple(
                index
                for index, name in enumerate(self._parameters)
                if self._arguments[name].kind == "null"
            ),
            buffers=tuple(self._buffers()),
            domain=tuple(self._program(one) for one in served(experiment)),
            variants=tuple(variants),
            uses=tuple(uses),
        )

    def _only_launch(self) -> Launch:
        steps = self._experiment.kernel.steps
        if len(steps) != 1 or not isinstance(steps[0], Launch):
            raise SpecError(
                f"the baseline is launched in {len(steps)} steps; only a kernel that is launched "
                "once can be substituted in an application"
            )
        if any(argument.kind == "constant" for argument in self._experiment.arguments):
            raise SpecError("the baseline reads a __constant__ variable, which only it can reach")
        return steps[0]

    def _program(self, expression: Expression, known: Shape | None = None) -> Program:
        """An expression over a shape, with types, ``known`` names and the device filled in."""
        bound = expression.bind(self._types | (known or {}), self._export.device)
        return " ".join(bound.to_postfix(lambda name: f"${self._names.index(name)}"))

    def _size(self, name: str) -> int:
        argument = self._arguments[name]
        return passed_bytes(None if argument.is_pointer else argument, self._bindings[0].symbols)

    def _dtype(self, argument: Argument) -> str:
        return str(self._types.get(argument.dtype, argument.dtype))

    def _sources(self) -> Iterator[tuple[Source, Expression]]:
        """Every number of a launch that the spec gives an expression."""
        for index, name in enumerate(self._parameters):
            symbols = self._bindings[0].symbols
            for dtype, at, value in passed_numbers(self._arguments[name], symbols):
                if isinstance(value, Expression) and ("int" in dtype or dtype == "bool"):
                    source = Source(
                        kind="parameter",
                        index=index,
                        at=at,
                        size=item_bytes(dtype),
                        unsigned=not dtype.startswith("int"),
                    )
                    yield source, value
        one = Expression.constant(1)
        for axis, expression in enumerate([*self._launch.grid, one, one][:3]):
            yield Source(kind="grid", index=axis), expression
        for axis, expression in enumerate([*self._launch.block, one, one][:3]):
            yield Source(kind="block", index=axis), expression
        yield Source(kind="shared", index=0), self._launch.shared_bytes

    def _symbol(self, name: str) -> SymbolSource:
        for source, expression in self._sources():
            match expression.bind(self._types, self._export.device).root:
                case Name(found) if found == name:
                    return SymbolSource(source=source, divisor=1)
                case Apply("*", (Name(found), Const(int(factor)))) | Apply(
                    "*", (Const(int(factor)), Name(found))
                ) if found == name and factor > 0:
                    return SymbolSource(source=source, divisor=int(factor))
        raise SpecError(
            f"the symbol {name} cannot be read from a launch: no integer argument and no extent of "
            f"grid or block is {name}, or {name} times a number"
        )

    def _same(self) -> Iterator[tuple[Source, Program]]:
        for source, expression in self._sources():
            yield source, self._program(expression)

    def _buffers(self) -> Iterator[BufferRule]:
        for index, name in enumerate(self._parameters):
            argument = self._arguments[name]
            if argument.kind not in ("in", "out", "inout", "scratch"):
                continue
            element = self._dtype(argument)
            tolerance = argument.tolerance or default_tolerance(element)
            compare = argument.compare
            yield BufferRule(
                parameter=index,
                align=argument.align or item_bytes(element),
                kind=argument.kind,
                element=element,
                mode=_mode(compare),
                rtol=tolerance.rtol,
                atol=tolerance.atol,
                ulp=compare.ulp if isinstance(compare, Ulp) else 0,
                scaled=argument.tolerance is None,
                bytes=self._bytes(argument, item_bytes(element)),
            )

    def _bytes(self, argument: Argument, item: int) -> Program:
        """The bytes from the first element to the end of the last one."""
        extents = [self._program(extent) for extent in argument.shape]
        if not argument.strides:
            return " ".join([str(item), *(f"{extent} *" for extent in extents)])
        steps = [self._program(step) for step in argument.strides]
        reach = " ".join(f"{n} 1 - {step} * +" for n, step in zip(extents, steps, strict=True))
        return f"1 {reach} {item} *"

    def _dispatch(self) -> tuple[list[TunedLaunch], list[tuple[int | None, Program]]]:
        """The variants' launches, and which serves when."""
        launches: list[TunedLaunch] = []
        uses: list[tuple[int | None, Program]] = []
        served: dict[int, list[tuple[int, Program]]] = {}
        for trial, variant in self._export.variants.items():
            served[trial] = []
            for launch, condition in () if trial == BASELINE else self._launches(variant):
                served[trial].append((len(launches), condition))
                launches.append(launch)
        for case in self._export.rule:
            when = self._all([self._condition(one) for one in case.when])
            uses += [(index, f"{when} {shape} and") for index, shape in served[case.trial]]
            if case.trial == BASELINE:
                uses.append((None, when))
        uses += served[self._export.fallback]
        return launches, [*uses, (None, ALWAYS)]

    def _condition(self, one: DispatchCondition) -> Program:
        if one.symbol in self._types:
            return str(int(one.holds(self._types)))
        return f"${self._names.index(one.symbol)} {int(one.value)} {one.relation}"

    @staticmethod
    def _all(conditions: Sequence[Program]) -> Program:
        """The programs joined by ``and``."""
        return " ".join([ALWAYS, *(f"{condition} and" for condition in conditions)])

    def _launches(self, variant: ExportVariant) -> list[tuple[TunedLaunch, Program]]:
        """A variant's launches: one for all shapes, or one for each build, with its shapes."""
        template = variant.template
        assert template is not None
        problem = self._unsupported(variant)
        if problem:
            self.notes.append(f"{variant.name} is not substituted: {problem}")
            return []
        plan = lower(
            self._experiment, template, variant.configuration, self._bindings, self._export.device
        )
        found: dict[tuple[int, str], list[ShapeBinding]] = {}
        for cell, binding in zip(plan.cells, self._bindings, strict=True):
            if isinstance(cell, CellPlan) and isinstance(cell.steps[0], KernelStep):
                found.setdefault((cell.build, cell.steps[0].entry), []).append(binding)
        return [
            (
                self._tuned(variant, plan.builds[build], entry),
                self._any_of(bindings) if self._depends_on_shape(variant) else ALWAYS,
            )
            for (build, entry), bindings in found.items()
        ]

    def _unsupported(self, variant: ExportVariant) -> str:
        template = variant.template
        assert template is not None
        if len(template.steps) != 1 or not isinstance(template.steps[0], Launch):
            return f"it is launched in {len(template.steps)} steps"
        if template.scratch:
            return "it needs scratch memory"
        if template.steps[0].cooperative:
            return "it is launched cooperatively"
        if template.dependent:
            return "it may be launched dependently"
        if template.steps[0].cluster:
            return "it is launched in clusters"
        return ""

    def _depends_on_shape(self, variant: ExportVariant) -> bool:
        """Whether what is compiled depends on the symbols' values."""
        template = variant.template
        assert template is not None
        entry = next((s.entry for s in template.steps if isinstance(s, Launch)), None)
        entry = entry or template.entry
        macros = variant.derived(self._export.device).values()
        return (
            any(expression.names - self._types.keys() for expression in macros)
            or any(isinstance(option, CompilerFlag) for option in template.options or ())
            or any(f"{{{name}}}" in entry for name in self._names)
        )

    def _any_of(self, bindings: Sequence[ShapeBinding]) -> Program:
        """The shape is one of these."""
        shapes = [
            self._all(
                [
                    f"${index} {int(binding.symbols[name])} =="
                    for index, name in enumerate(self._names)
                ]
            )
            for binding in bindings
        ]
        return " ".join(["0", *(f"{shape} or" for shape in shapes)])

    def _tuned(self, variant: ExportVariant, build: Build, entry: str) -> TunedLaunch:
        template = variant.template
        assert template is not None
        [launch] = (step for step in template.steps if isinstance(step, Launch))
        known = variant.configuration.as_dict()
        names = launch.arguments or kernel_arguments(self._experiment, template)
        gx, gy, gz = ([self._program(e, known) for e in launch.grid] + ["1", "1"])[:3]
        bx, by, bz = ([self._program(e, known) for e in launch.block] + ["1", "1"])[:3]
        return TunedLaunch(
            build=build,
            entry=entry,
            arguments=tuple(self._parameters.index(name) for name in names),
            conditions=tuple(
                self._program(required.factors[0], known) for required in constraints(template)
            ),
            grid=(gx, gy, gz),
            block=(bx, by, bz),
            shared_bytes=self._program(launch.shared_bytes, known),
        )


def _mode(compare: Compare) -> Literal["close", "exact", "unordered", "ulp"]:
    """How a buffer is compared beside a running application: without groups."""
    match compare:
        case Ulp():
            return "ulp"
        case Unordered():
            return "unordered"
        case mode:
            return mode
