"""The experiment as its author wrote it: frozen dataclasses that pydantic validates as they stand.

Owns the vocabulary of the YAML format and nothing else: reading files is :mod:`tuner.experiment.load`,
what types cannot say is :mod:`tuner.experiment.check`. Every expression is parsed here and evaluated
elsewhere. Field names are the YAML keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from tuner.device import Backend
from tuner.experiment.fields import FunctionName, OneOrMany, Seeds, SourceFile
from tuner.experiment.redaction import Address, ModelId, RoleModelId
from tuner.expressions import Expression
from tuner.trial import Value

STRICT = ConfigDict(extra="forbid", strict=True)
NO_BYTES = Expression.constant(0)

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
Positive = Annotated[int, Field(ge=1)]
Axes = Annotated[tuple[Expression, ...], OneOrMany(1, 3)]

DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch: blocks per axis, threads per axis, dynamic shared memory in bytes.

    ``entry`` and ``arguments`` default to the kernel's own, and are for sequences of kernels.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    grid: Axes
    block: Axes
    shared_bytes: Expression = NO_BYTES
    cooperative: bool = False
    entry: str | None = None
    arguments: tuple[Name, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memset:
    """Fill one buffer with a byte, as a step between launches."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    memset: Name
    byte: Annotated[int, Field(ge=0, le=255)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The baseline ``S``: the user's source as the application builds and launches it.

    Exactly one of ``launch`` and ``launches`` is given; :attr:`steps` is either as a sequence.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    language: Backend
    source: SourceFile
    entry: str
    include_dirs: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = field(default=())
    options: tuple[str, ...] = ()
    launch: Launch | None = None
    launches: tuple[Launch | Memset, ...] = ()

    @property
    def steps(self) -> tuple[Launch | Memset, ...]:
        """The launches in order."""
        return self.launches or ((self.launch,) if self.launch else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """An element passes if ``|x - r| <= atol + rtol * |r|``."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    rtol: Annotated[float, Field(ge=0)]
    atol: Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ulp:
    """Compare within ``ulp`` units in the last place of the element type."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    ulp: Annotated[int, Field(ge=0)]


Compare = Literal["close", "exact", "unordered"] | Ulp


@dataclass(frozen=True, slots=True, kw_only=True)
class Integers:
    """Uniform integers from ``lo`` to ``hi``, both included."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    integers: tuple[Expression, Expression]


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFile:
    """The contents of a ``.npy`` file beside the spec; its shape and type must match."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FromPython:
    """``function(shape: dict, argument: str, seed: int) -> ndarray``, in a file by the spec."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    python: FunctionName


Fill = (
    Literal["normal", "uniform", "zeros", "permutation", "offsets"]
    | Integers
    | FromFile
    | FromPython
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One kernel argument, in the kernel's order.

    ``dtype`` is an element type or a type symbol; only a ``null`` has none. ``shape`` (and
    ``strides``, in elements) are over the symbols. ``align`` is the alignment in bytes that the
    kernel may assume, the element size by default: buffers are offset to exactly it. ``values``
    fills ``in`` and ``constant`` arguments, ``initial`` an ``inout``; ``value`` is a scalar's.
    ``symbol`` names the module's constant.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Name
    kind: Literal["in", "out", "inout", "scalar", "scratch", "constant", "null"]
    dtype: Name = ""
    shape: Annotated[tuple[Expression, ...], OneOrMany(0, 8)] = ()
    strides: Annotated[tuple[Expression, ...], OneOrMany(0, 8)] = ()
    align: Positive | None = None
    values: Fill = "normal"
    initial: Fill = "normal"
    range: tuple[float, float] | None = None
    specials: tuple[Literal["inf", "-inf", "nan"], ...] = ()
    tolerance: Tolerance | None = None
    compare: Compare = "close"
    value: Expression | float | None = None
    symbol: Name | None = None

    @property
    def is_buffer(self) -> bool:
        """Whether it occupies device memory of its own."""
        return self.kind in ("in", "out", "inout", "scratch", "constant")

    @property
    def is_output(self) -> bool:
        """Whether its contents are compared."""
        return self.kind in ("out", "inout")


@dataclass(frozen=True, slots=True)
class ShapeBinding:
    """One binding of the symbols, and its weight in the objective.

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
    """Where the kernel's promise holds (``domain``), what is searched, and what only judges."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    domain: tuple[Expression, ...] = ()
    tune: Annotated[tuple[Binding, ...], Field(min_length=1)]
    held_out: tuple[Binding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Bytes moved and operations done per run of the kernel, over the symbols."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    bytes: Expression | None = None
    flops: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerFlag:
    """A whitelisted option: with a parameter as ``value``, or present only ``when`` one holds."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    flag: str
    value: Expression | None = None
    when: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchArgument:
    """A work buffer appended after the kernel's own arguments."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Name
    dtype: Name
    shape: Annotated[tuple[Expression, ...], OneOrMany(1, 8)]
    align: Positive | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Parameterised source: a family of implementations with parameters, constraints and launches.

    ``parameters`` maps each name to its values in order: all integers, all bools, or all names (an
    enum). ``defines`` are derived values over parameters, symbols and device.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    source: SourceFile
    entry: str
    parameters: dict[Name, Annotated[tuple[Value, ...], Field(min_length=1)]]
    constraints: tuple[Expression, ...] = ()
    launch: Launch | None = None
    launches: tuple[Launch | Memset, ...] = ()
    defines: dict[Name, Expression] = field(default_factory=dict)
    options: tuple[str | CompilerFlag, ...] | None = None
    scratch: tuple[ScratchArgument, ...] = ()
    rationale: str = ""

    @property
    def steps(self) -> tuple[Launch | Memset, ...]:
        """The launches in order."""
        return self.launches or ((self.launch,) if self.launch else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How configurations are proposed, and the budget of the whole run.

    ``seconds`` are of searching; ``device_seconds`` of all devices together. The rounds of a run
    with agents share all three.
    ``seeds`` are values of parameters that are tried first, as nearly as the space allows; or the
    path of an earlier run's ``results.jsonl``, whose best configurations they become.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    strategy: Literal["auto", "exhaustive", "random", "anneal", "tpe", "gp"] = "auto"
    trials: Positive = 300
    seconds: Annotated[float, Field(gt=0)] = 600.0
    device_seconds: Annotated[float, Field(gt=0)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    seeds: Seeds = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmSettings:
    """How many leaders are tested again, and in how many fresh processes each."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    top: Positive = 5
    processes: Annotated[int, Field(ge=2, le=100)] = 5


Cache = Literal["cold", "hot"]
"""Whether launches find their data in the last-level cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Launches before and while timing; ``cold`` rotates buffers past the last-level cache.

    With ``until``, timing goes on after ``repeats`` launches until the interval of the median is no
    wider than this share of it, for ``at_most`` launches.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    warmup: Annotated[int, Field(ge=0, le=10_000)] = 20
    repeats: Annotated[int, Field(ge=3, le=100_000)] = 100
    cache: Cache = "cold"
    until: Annotated[float, Field(gt=0, lt=1)] | None = None
    at_most: Annotated[int, Field(ge=3, le=1_000_000)] = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """Who writes templates, and what that may cost over the whole run.

    ``model`` is ``auto`` (a recorded transcript of this very kernel if one lies beside the spec,
    else ``none``), ``replay``, ``none``, ``mailbox:DIR``, or the id of a model that LiteLLM knows.
    ``fallbacks``, such ids too, are asked in order where it gives no reply; ``planner`` and
    ``generator``, likewise, replace it for their role. ``base_url`` is of a server of one's own. A
    run ends after ``patience`` rounds in a row without a gain. ``max_tokens`` counts those read and
    written, ``seconds`` the time of all steps. Each round asks for ``width`` drafts: templates, or
    whole kernels where ``mode`` is ``direct``. With ``overlap`` the devices go on searching the
    best template while a model is asked; those trials are beside the search's budget.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    model: ModelId = "auto"
    fallbacks: Annotated[tuple[RoleModelId, ...], OneOrMany(0, 8)] = ()
    planner: RoleModelId | None = None
    generator: RoleModelId | None = None
    base_url: Address | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**31)] | None = None
    rounds: Annotated[int, Field(ge=1, le=100)] = 5
    patience: Annotated[int, Field(ge=1, le=100)] = 2
    max_cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0
    max_calls: Annotated[int, Field(ge=0)] = 40
    max_tokens: Positive | None = None
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    width: Annotated[int, Field(ge=1, le=8)] = 1
    mode: Literal["template", "direct"] = "template"
    overlap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment: a kernel, its arguments and shapes, and how to tune it."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
    kernel: Kernel
    arguments: Annotated[tuple[Argument, ...], Field(min_length=1)]
    shapes: Shapes
    reference: FunctionName | None = None
    cost: Cost | None = None
    template: Template | None = None
    search: SearchSettings = SearchSettings()
    confirm: ConfirmSettings = ConfirmSettings()
    agents: Agents | None = None
    measure: Measure = Measure()
