"""The experiment: frozen dataclasses that pydantic validates.

Field names are the YAML keys; the string below a field describes it in the JSON schema and in
``docs/spec.md``. :mod:`tuner.experiment.load` reads files, :mod:`tuner.experiment.check` makes the
checks that types cannot express. Expressions are parsed here and evaluated elsewhere.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from tuner.experiment.contents import (
    MAX_STRUCT_FIELDS,
    STRICT,
    Compare,
    Count,
    Fill,
    Name,
    Number,
    Positive,
    RangeEnd,
    Seconds,
    StructField,
    Tolerance,
    VariableName,
)
from tuner.experiment.fields import (
    FunctionName,
    HexBytes,
    OneOrMany,
    Seeds,
    SourceFile,
)
from tuner.experiment.objective import Objective
from tuner.experiment.program import NEVER as NEVER
from tuner.experiment.program import NO_BYTES as NO_BYTES
from tuner.experiment.program import Axes as Axes
from tuner.experiment.program import Kernel as Kernel
from tuner.experiment.program import KernelBinary as KernelBinary
from tuner.experiment.program import Launch as Launch
from tuner.experiment.program import Memset as Memset
from tuner.experiment.program import first_entry
from tuner.expressions import Expression
from tuner.expressions.real import RealExpression
from tuner.trial import Value

MetricName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9/%._-]{0,15}$")]

ITEM_BYTES = (
    {"bool": 1}
    | {f"{kind}{8 * size}": size for kind in ("int", "uint") for size in (1, 2, 4, 8)}
    | {"float8_e4m3": 1, "float8_e5m2": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
)
"""Element types and their sizes."""
DTYPES = tuple(ITEM_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One kernel argument."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Name
    """Name of the argument, for messages and the reference function."""
    kind: Literal["in", "out", "inout", "scalar", "struct", "scratch", "constant", "null"]
    """`in` is read. `out` is written in every element. `inout` is read too, or written in part.
    `scalar` and `struct` are passed by value. `scratch` is work space of any contents. `constant`
    is a module's `__constant__` variable. `null` passes a null pointer."""
    dtype: Name = ""
    """Element type, or a symbol that names one. A `struct` and a `null` have none."""
    shape: Annotated[tuple[Expression, ...], OneOrMany(0, 8)] = ()
    """Extents: expressions over the symbols."""
    strides: Annotated[tuple[Expression, ...], OneOrMany(0, 8)] = ()
    """Strides in elements; contiguous by default."""
    align: Positive | None = None
    """Alignment in bytes that the kernel may assume, the element size by default. Buffers are
    offset to exactly this alignment."""
    values: Fill = "normal"
    """Contents of an `in` or `constant` argument."""
    initial: Fill = "normal"
    """Contents of an `inout` argument before each launch."""
    range: tuple[RangeEnd, RangeEnd] | None = None
    """Lowest and highest value that your application passes; holds for every test case. Without it
    some test cases hold values 32 times as large, others values of the type's whole range, and a
    scalar is changed by a factor of 2 to 4, to 0, and to the other sign where the kernel is defined
    there. With it a scalar is also at either end."""
    fixed: bool = False
    """Whether your application always passes this `value` of a scalar, these floats of a struct, or
    these contents. Otherwise test cases change scalars and such floats that do not follow from the
    shape, and an input, or an integer of a struct, that is 0 or 1. The exported header checks
    scalars that were not changed."""
    specials: tuple[Literal["inf", "-inf", "nan"], ...] = ()
    """Special values that your application passes too."""
    tolerance: Tolerance | None = None
    """Largest error of an output; a default for its dtype if left out."""
    compare: Compare = "close"
    """How an output is compared: within the tolerance, bit for bit, within some units in the last
    place, or in any order within groups."""
    value: Number | None = None
    """Value of a scalar: an expression over the symbols, such as `n`, or for a float `1.0 / n` or
    `d ** -0.5`; or a number."""
    fields: Annotated[tuple[StructField, ...], Field(max_length=MAX_STRUCT_FIELDS)] = ()
    """Fields of a struct, in C's order; at most 1,000. Give these or `bytes`."""
    bytes: HexBytes | None = None
    """Contents of a struct as hexadecimal digits, or `{file: PATH}`, a file that holds them raw."""
    symbol: VariableName | None = None
    """Name of the module's variable that a `constant` fills before each launch, with its namespace
    (`ns::table`). The contents may be shorter than the variable."""

    @property
    def is_buffer(self) -> bool:
        """Whether it occupies device memory."""
        return self.kind in ("in", "out", "inout", "scratch", "constant")

    @property
    def is_pointer(self) -> bool:
        """Whether the kernel takes a pointer to it, not its value."""
        return self.kind not in ("scalar", "struct")

    @property
    def is_input(self) -> bool:
        """Whether it has contents before a launch."""
        return self.kind in ("in", "inout", "constant")

    @property
    def is_given(self) -> bool:
        """Whether the reference is called with it: with its contents, or its value."""
        return self.is_input or self.kind in ("scalar", "struct")

    @property
    def is_output(self) -> bool:
        """Whether its contents are compared."""
        return self.kind in ("out", "inout")


@dataclass(frozen=True, slots=True)
class ShapeBinding:
    """Values of the symbols, and their weight in the objective.

    Written flat, as ``{tokens: 512, d: 11008, weight: 2}``.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    symbols: Annotated[dict[Name, Value], Field(min_length=1)]
    weight: Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)] = 1.0

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.symbols.items())


def _split_binding(flat: object) -> object:
    if not isinstance(flat, Mapping):
        return flat
    weight = {key: value for key, value in flat.items() if key == "weight"}
    return {"symbols": {key: flat[key] for key in flat if key not in weight}, **weight}


def _join_binding(binding: ShapeBinding) -> dict[str, Value | float]:
    weight = {} if binding.weight == 1 else {"weight": binding.weight}
    return {**binding.symbols, **weight}


Binding = Annotated[
    ShapeBinding,
    BeforeValidator(_split_binding),
    PlainSerializer(_join_binding),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {"weight": {"type": "number", "minimum": 1e-9, "maximum": 1e9}},
            "additionalProperties": {"type": ["integer", "string", "boolean"]},
        }
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """The domain of the kernel, the shapes to tune, and shapes that are only confirmed."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    domain: tuple[Expression, ...] = ()
    """Conditions on the symbols. Outside them the kernel promises nothing, and the exported
    dispatch uses your kernel. Without a domain, only the spec's own shapes are served by tuned
    kernels."""
    tune: Annotated[tuple[Binding, ...], Field(min_length=1)]
    """Shapes that are searched: symbols by name, with an optional `weight` (default 1)."""
    held_out: tuple[Binding, ...] = ()
    """Shapes that are confirmed but never searched, and shown to no model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one run of the kernel must move and compute: expressions over the symbols."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    bytes: Expression | None = None
    """Bytes that one run must move. The roofline is drawn from it."""
    flops: Expression | None = None
    """Operations of one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerFlag:
    """A compiler option that depends on parameters."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    flag: str
    """The option, from a whitelist."""
    value: Expression | None = None
    """Its value: an expression over the parameters."""
    when: Expression | None = None
    """Pass the option only where this condition holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchArgument:
    """A work buffer appended after the kernel's own arguments."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Name
    """Name of the buffer."""
    dtype: Name
    """Element type, or a symbol that names one."""
    shape: Annotated[tuple[Expression, ...], OneOrMany(1, 8)]
    """Extents: expressions over symbols and parameters."""
    align: Positive | None = None
    """Alignment in bytes; the element size by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Parameterised source: a family of implementations of the kernel."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    source: SourceFile
    """The template's source file."""
    entry: str = ""
    """Name of the kernel in it. `{NAME}` stands for a parameter or a symbol, as in the kernel's.
    Not needed if every launch names its own."""
    parameters: dict[Name, Annotated[tuple[Value, ...], Field(min_length=1)]]
    """Each parameter's values in order: all integers, all booleans, or all names (an enum)."""
    constraints: tuple[Expression, ...] = ()
    """Conditions over parameters, symbols and device that a configuration must meet."""
    launch: Launch | None = None
    """How the launch depends on the parameters. Give this or `launches`."""
    launches: tuple[Launch | Memset, ...] = ()
    """Several launches and memsets, run in order."""
    defines: dict[Name, Expression] = field(default_factory=dict)
    """Macros computed for each configuration: expressions over parameters, symbols and device."""
    options: tuple[str | CompilerFlag, ...] | None = None
    """Compiler options; the kernel's by default. An option may depend on parameters, as `{flag:
    --maxrregcount, value: REGS}` or `{flag: --use_fast_math, when: FAST}`."""
    scratch: tuple[ScratchArgument, ...] = ()
    """Buffers of the template's own, appended to the kernel's arguments."""
    rationale: str = ""
    """Why the template should be faster: a note for readers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "entry", self.entry or first_entry(self.steps))

    @property
    def steps(self) -> tuple[Launch | Memset, ...]:
        """The launches in order."""
        return self.launches or ((self.launch,) if self.launch else ())

    @property
    def dependent(self) -> bool:
        """Whether some configuration may be launched dependently."""
        launches = (step for step in self.steps if isinstance(step, Launch))
        return any(launch.dependent != NEVER for launch in launches)

    @property
    def points(self) -> int:
        """How many configurations there are, whether they meet the constraints or not."""
        return math.prod(len(values) for values in self.parameters.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How configurations are proposed, and the budget, which all rounds of a run share."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    strategy: Literal["auto", "exhaustive", "random", "anneal", "tpe", "gp"] = "auto"
    """How configurations are proposed. `auto` tries all where the budget covers the space, and
    otherwise learns from what was measured."""
    trials: Count = 300
    """Configurations to try, in the whole run."""
    seconds: Seconds = 600.0
    """Time of the whole run, from its workers' start to its result, without waiting for models. The
    search ends early enough to confirm its best, in three processes where no time is left for more.
    A time too short for preparing and confirming is refused before anything starts; on a busy
    machine they may take longer than expected, which the report says."""
    device_seconds: Seconds | None = None
    """Busy time of all devices together."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the search's random choices."""
    seeds: Seeds = ()
    """Values to try first, as nearly as the space allows; or the path of a file whose best
    configurations are tried first: an earlier run's `results.jsonl`, or a cache file or T4 results
    of Kernel Tuner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmSettings:
    """How many leaders are confirmed, and in how many processes."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    top: Count = 5
    """Leading configurations to confirm."""
    processes: Annotated[int, Field(ge=2, le=100)] = 5
    """Fresh processes that time them beside the baseline on the tune shapes, at most; three may be
    enough. As many more may time winners on held-out shapes and in the other cache state."""
    until: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Go on until the interval of the speedup over all tune shapes is this narrow, as a share of
    the speedup, within `processes` and `search.seconds`. Without it verdicts need to be decided."""


Cache = Literal["cold", "hot"]
"""Whether the last-level cache holds a launch's data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How launches are timed."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    warmup: Annotated[int, Field(ge=0, le=10_000)] = 20
    """Launches before timing."""
    repeats: Annotated[int, Field(ge=3, le=100_000)] = 100
    """Timed launches."""
    cache: Cache = "cold"
    """`cold` rotates over buffers larger than the last-level cache; `hot` stays within half of it,
    on a CPU within one set of buffers."""
    until: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Go on after `repeats` launches until the interval of the median is this narrow, as a share of
    the median."""
    at_most: Annotated[int, Field(ge=3, le=1_000_000)] = 2_000
    """Timed launches at most, with `until`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment: a kernel, its arguments and shapes, and how to tune it."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    version: Literal[1]
    """Version of this format."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
    """Name of the experiment; names run directories."""
    kernel: Kernel
    """The baseline: your kernel as your application builds and launches it."""
    arguments: Annotated[tuple[Argument, ...], Field(min_length=1)]
    """The kernel's arguments, in its order."""
    shapes: Shapes
    """The shapes that matter."""
    reference: FunctionName | None = None
    """A NumPy function, as `FILE.py:FUNCTION`. It takes the `in`, `inout`, `constant` and `scalar`
    arguments as keywords (arrays of floats in float64, of integers in their own type) and returns
    `{name: array}` for each `out` and `inout`."""
    cost: Cost | None = None
    """What one run of the kernel must move and compute."""
    metrics: Annotated[dict[MetricName, RealExpression], Field(max_length=8)] = field(
        default_factory=dict
    )
    """Figures to show beside every time, such as `{GFLOP/s: flops / seconds / 1e9}`: real
    expressions over the symbols, `seconds` (of one run), `bytes` and `flops` of `cost`, and where
    the objective is energy `joules` (of one run)."""
    template: Template | None = None
    """A template file, or the template itself. Without it agents or mechanical rules write one."""
    search: SearchSettings = SearchSettings()
    """Strategy and budget of the search."""
    confirm: ConfirmSettings = ConfirmSettings()
    """How winners are confirmed."""
    agents: dict[str, Any] | None = None
    """Who writes templates, and their budget."""
    measure: Measure = Measure()
    """How launches are timed."""
    objective: Objective = "time"
    """What is minimised, as a launch's mean over the tune shapes: its `time`, its `energy`, or
    `energy_delay`, the geometric mean of both. Energy needs a whole GPU with an energy counter
    that no other process uses."""

    @property
    def most_trials(self) -> int:
        """No search does more trials: those of its budget, or all points of its space if fewer."""
        if self.template is None:
            return self.search.trials
        return min(self.search.trials, self.template.points)
