"""What arguments hold and how outputs are compared: fills, fields of structs, tolerances."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from tuner.experiment.fields import FunctionName, OneOrMany
from tuner.experiment.longest import LARGEST_COUNT, LONGEST_SECONDS
from tuner.expressions import Expression, ExpressionError
from tuner.expressions.real import RealExpression

_PLACE = re.compile(r"\{(\w+)\}")

STRICT = ConfigDict(extra="forbid", strict=True, defer_build=True)
"""Schemas are built when they are first used: it takes long, and most processes use few."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
VariableName = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*$", max_length=200)
]
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Seconds = Annotated[float, Field(gt=0, le=LONGEST_SECONDS)]
"""A budget of time."""

_EXACT_IN_FLOATS = 1 << 1000
"""Integers below this have a nearest float."""

MAX_STRUCT_FIELDS, MAX_FIELD_VALUES = 1000, 1024
"""Of a struct by value, and of one of its fields. Larger structs are given as bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """An element passes if ``|x - r| <= atol + rtol * |r|``."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    rtol: Annotated[float, Field(ge=0, lt=1)]
    """The relative part, less than 1."""
    atol: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """The absolute part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ulp:
    """Compare within ``ulp`` units in the last place of the element type."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    ulp: Annotated[int, Field(ge=0)]
    """Allowed distance, in units in the last place of the element type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Groups of consecutive elements of an output of one dimension."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    segments: Name
    """An integer argument: group `k` begins at its element `k` and ends before its element `k + 1`.
    Elements outside all groups keep their places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Groups of elements that have the same key, wherever they are."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    key: Name
    """An argument of the output's shape: the key of each element. If it is an output, both sides
    are grouped by their own keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unordered:
    """Compare the elements of each group within the tolerance, in any order."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    unordered: Literal["whole", "rows"] | Segments | Keys
    """The groups: the whole array, each row along the last dimension, segments, or keys. Name the
    smallest that is right: the order within a group is not checked."""


Compare = Literal["close", "exact"] | Ulp | Unordered


@dataclass(frozen=True, slots=True, kw_only=True)
class Integers:
    """Uniform integers from ``lo`` to ``hi``, both included."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    integers: tuple[Expression, Expression]
    """Lowest and highest value, both included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Integers that never decrease, from 0 to exactly ``offsets``: where segments begin."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    offsets: Expression
    """The last value, such as the number of elements in all segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFile:
    """The contents of a ``.npy`` file beside the spec; its shape and type must match."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    file: str
    """Path of the file, relative to the spec. Shape and dtype must match. `{n}` in it stands for
    the value of the symbol `n`: each tune and held-out shape has a file of its own. On other shapes
    floats are those of the first shape's file, repeated; of other types none is tested."""
    sample: str = ""

    def at(self, symbols: Mapping[str, object]) -> "FromFile":
        """The file of one shape.

        Raises:
            KeyError: the path holds another name than the shape's symbols.
        """
        path = _PLACE.sub(lambda found: str(symbols[found[1]]), self.file)
        return FromFile(file=path, sample=self.sample)

    @property
    def differs(self) -> bool:
        """Whether shapes have files of their own."""
        return _PLACE.search(self.file) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class FromPython:
    """``function(shape: dict, argument: str, seed: int) -> ndarray``, in a file by the spec.

    It is called for odd shapes of the domain, too.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    python: FunctionName
    """The function, as `FILE.py:FUNCTION`."""
    same_seed: bool = False
    """Whether all arguments with this function and `same_seed` get one seed in a test case, so that
    the arrays fit each other, such as the row pointers and the sorted columns of a sparse matrix.
    Otherwise each has a seed of its own."""


Fill = (
    Literal["normal", "uniform", "zeros", "permutation"]
    | Integers
    | Offsets
    | FromFile
    | FromPython
)


def _number(given: object) -> object:
    """Text as an expression over integers, or else over real numbers; a constant as its value."""
    if not isinstance(given, str):
        return given
    try:
        return Expression.parse(given)
    except ExpressionError:
        real = RealExpression.parse(given)
        return real if real.names else real.evaluate({})


Number = Annotated[Expression | RealExpression | float, BeforeValidator(_number)]
"""A number that a scalar or a field of a struct holds."""


def _exact(given: object) -> object:
    """An integer as a float that equals it, if there is one."""
    if type(given) is int and abs(given) < _EXACT_IN_FLOATS and float(given) == given:
        return float(given)
    return given


RangeEnd = Annotated[float | int, BeforeValidator(_exact), WithJsonSchema({"type": "number"})]
"""An end of a range; one that no float equals, such as the largest int64, stays an integer."""


def follows(value: "Number | None") -> bool:
    """Whether a number follows from the shape."""
    return isinstance(value, Expression | RealExpression) and bool(value.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class StructField:
    """One field of a struct, laid out as in C: each at the next multiple of its alignment."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Name
    """Name of the field."""
    dtype: Name
    """Its type, or the type of an array's elements."""
    value: Annotated[tuple[Number, ...], OneOrMany(1, MAX_FIELD_VALUES)]
    """Its value: an expression over the symbols, such as `n` or `1.0 / n`, or a number. A list for
    an array or a vector."""
    align: Positive | None = None
    """Alignment in bytes, the element size by default: 16 for a `float4`."""
