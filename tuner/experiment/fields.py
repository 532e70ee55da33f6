"""Field types of the experiment: short forms, and files that are read during validation.

Paths are relative to the folder in pydantic's validation context, ``{"directory": Path}``. Without
a context, as for the copy in a run directory, files are refused: only inline text is accepted.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from tuner.backends.registry import backends
from tuner.experiment.recorded_results import best_recorded
from tuner.expressions import shown
from tuner.files import given_bytes, given_path, given_text, packed, unpacked
from tuner.trial import Value

MAX_FILE_BYTES = 1 << 20

MAX_BINARY_BYTES = 64 << 20
MAX_PACKED_CHARACTERS = 6 << 20
"""A binary is part of the resolved spec, which may have 8 MiB."""

MAX_STRUCT_BYTES = 32764
"""The most that a CUDA kernel takes by value."""


@dataclass(frozen=True, slots=True)
class OneOrMany:
    """Annotates a tuple of ``lo`` to ``hi`` items that may be written as a single value."""

    lo: int
    hi: int

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def check(items: tuple[Any, ...]) -> tuple[Any, ...]:
            if not self.lo <= len(items) <= self.hi:
                raise ValueError(f"takes {self.lo} to {self.hi} values, not {len(items)}")
            return items

        items = core_schema.no_info_after_validator_function(check, handler(source))
        return core_schema.no_info_before_validator_function(
            lambda given: tuple(given) if isinstance(given, tuple | list) else (given,), items
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        many = {**handler(schema), "minItems": self.lo, "maxItems": self.hi}
        return {"anyOf": [many["items"], many]}


@dataclass(frozen=True, slots=True)
class KnownBackend:
    """Annotates a string that names a backend of :mod:`tuner.backends.registry`."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def check(name: str) -> str:
            names = [traits.name for traits in backends()]
            if name not in names:
                expected = " or ".join(f"'{known}'" for known in names)
                raise PydanticCustomError(
                    "literal_error", "should be {expected}", {"expected": expected}
                )
            return name

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "enum": [traits.name for traits in backends()]}


BackendName = Annotated[str, KnownBackend()]


def read_text(path: Path) -> str:
    """The text of a regular UTF-8 file of at most 1 MiB; raises ``ValueError`` otherwise."""
    text = given_text(path, MAX_FILE_BYTES)
    if "\0" in text:
        raise ValueError(f"{path} is not a text file: it contains a zero byte")
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _place(info: ValidationInfo, given: str) -> Path:
    """A file by its path in a spec; raises ``ValueError`` where files are refused."""
    if info.context is None:
        raise ValueError(f"names the file {shown(given)}, but only inline text is accepted here")
    directory = info.context["directory"]
    assert isinstance(directory, Path)
    return given_path(directory, given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source file: its name, for messages, and its text."""

    name: str
    text: str


def _read_source(given: object, info: ValidationInfo) -> object:
    if not isinstance(given, str):
        return given
    path = _place(info, given)
    return Source(name=path.name, text=read_text(path))


SourceFile = Annotated[
    Source,
    BeforeValidator(_read_source),
    WithJsonSchema({"type": "string", "description": "path of the file, relative to this one"}),
]
"""A :class:`Source` that is written as a path."""


def _read_bytes(given: object, info: ValidationInfo) -> object:
    if not (isinstance(given, dict) and given.keys() == {"file"}):
        return given
    path = _place(info, str(given["file"]))
    return given_bytes(path, MAX_STRUCT_BYTES).hex()


def _check_bytes(given: str) -> str:
    digits = re.sub(r"[\s_]", "", given).lower()
    if not re.fullmatch(r"(?:[0-9a-f]{2})+", digits):
        raise ValueError("should be pairs of hexadecimal digits, or {file: PATH}")
    if len(digits) > 2 * MAX_STRUCT_BYTES:
        raise ValueError(f"more than {MAX_STRUCT_BYTES} bytes, the most that a kernel takes")
    return digits


HexBytes = Annotated[
    str,
    AfterValidator(_check_bytes),
    BeforeValidator(_read_bytes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "description": "hexadecimal digits"},
                {
                    "type": "object",
                    "properties": {"file": {"type": "string"}},
                    "required": ["file"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
"""Bytes as hexadecimal digits, or the path of a file that holds them raw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryContents:
    """A file of machine code: its name, the SHA-256 of its bytes in hex, and its packed bytes."""

    name: str
    sha256: str
    data: str

    def __post_init__(self) -> None:
        """Check that the digest is that of the bytes; raises ``ValueError`` otherwise."""
        if hashlib.sha256(unpacked(self.data, MAX_BINARY_BYTES)).hexdigest() != self.sha256:
            raise ValueError(f"the contents of {self.name} do not have its SHA-256")


def _read_binary(given: object, info: ValidationInfo) -> object:
    if not isinstance(given, str):
        return given
    path = _place(info, given)
    contents = given_bytes(path, MAX_BINARY_BYTES)
    data = packed(contents)
    if len(data) > MAX_PACKED_CHARACTERS:
        raise ValueError(
            f"{path} is too large (compressed it has {len(data) >> 20} MiB): give the code of one"
            " architecture alone, as `cuobjdump -xelf` extracts it"
        )
    digest = hashlib.sha256(contents).hexdigest()
    return BinaryContents(name=path.name, sha256=digest, data=data)


BinaryFile = Annotated[
    BinaryContents,
    BeforeValidator(_read_binary),
    WithJsonSchema({"type": "string", "description": "path of the file, relative to this one"}),
]
"""A :class:`BinaryContents` that is written as a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFunction:
    """A function of a Python file; only its text is read here, nothing is imported."""

    file: str
    text: str
    function: str


def _read_function(given: object, info: ValidationInfo) -> object:
    if not isinstance(given, str):
        return given
    file, separator, function = given.rpartition(":")
    if not separator or not file.endswith(".py") or not function.isidentifier():
        raise ValueError(f"{shown(given)} is not of the form file.py:function")
    path = _place(info, file)
    return PythonFunction(file=path.name, text=read_text(path), function=function)


FunctionName = Annotated[
    PythonFunction,
    BeforeValidator(_read_function),
    WithJsonSchema({"type": "string", "pattern": r"^.+\.py:[A-Za-z_]\w*$"}),
]
"""A :class:`PythonFunction` that is written as ``file.py:function``."""


def _read_seeds(given: object, info: ValidationInfo) -> object:
    if isinstance(given, list):
        return tuple(given)
    if not isinstance(given, str):
        return given
    return best_recorded(_place(info, given))


Seeds = Annotated[
    tuple[dict[str, Value], ...],
    BeforeValidator(_read_seeds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "description": "path of recorded results"},
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": {"type": ["integer", "string", "boolean"]},
                    },
                },
            ]
        }
    ),
]
"""Parameter values to try first, or the path of a file that
:mod:`tuner.experiment.recorded_results` reads."""
