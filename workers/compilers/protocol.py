"""The messages between a compile worker and its process: builds one way, results the other."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tuner.device import Device
from tuner.plan import Binary, Build
from tuner.trial import Rejected


@dataclass(frozen=True, slots=True)
class CompilerUnavailable:
    """The toolchain is missing; ``detail`` names the remedy."""

    detail: str
    kind: Literal["problem"] = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Success:
    """A binary whose code follows as a blob."""

    kind: Literal["binary"] = "binary"
    binary: Binary


Result = Binary | Rejected | CompilerUnavailable

OPENING: TypeAdapter[tuple[Device, Path | None]] = TypeAdapter(tuple[Device, Path | None])
"""What a process is opened with: the device to compile for, and the folder of kept binaries."""
BUILD: TypeAdapter[Build] = TypeAdapter(Build)
_RESULT: TypeAdapter[Any] = TypeAdapter(
    Annotated[_Success | Rejected | CompilerUnavailable, Field(discriminator="kind")]
)


def encode_result(result: Result) -> tuple[bytes, list[bytes]]:
    """A result as JSON and blobs."""
    if not isinstance(result, Binary):
        return _RESULT.dump_json(result), []
    head = _Success(binary=replace(result, code=b""))
    return _RESULT.dump_json(head), [result.code]


def decode_result(text: bytes, blobs: list[bytes], build: Build) -> Result:
    """The result of a build.

    Raises:
        ValueError: it is invalid, or of another build.
    """
    try:
        result = _RESULT.validate_json(text)
    except ValidationError as error:
        raise ValueError(f"no valid result: {error.errors()[0]['msg']}") from None
    if not isinstance(result, _Success):
        assert isinstance(result, Rejected | CompilerUnavailable)
        return result
    if result.binary.build != build.digest or len(blobs) != 1:
        raise ValueError("the binary of another build")
    return replace(result.binary, code=blobs[0])
