"""What travels between a compile worker and its process: builds one way, results the other."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tuner.device import Device
from tuner.plan import Binary, Build
from tuner.trial import Rejected


@dataclass(frozen=True, slots=True)
class Problem:
    """The toolchain is not there; ``detail`` names the remedy."""

    detail: str
    kind: Literal["problem"] = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Success:
    """A binary whose code travels as a blob beside it."""

    kind: Literal["binary"] = "binary"
    binary: Binary


Result = Binary | Rejected | Problem

_Opening = tuple[Device, Path | None]
_OPENING: TypeAdapter[_Opening] = TypeAdapter(_Opening)
_BUILD: TypeAdapter[Build] = TypeAdapter(Build)
_RESULT: TypeAdapter[Any] = TypeAdapter(
    Annotated[_Success | Rejected | Problem, Field(discriminator="kind")]
)


def encode_opening(device: Device, cache: Path | None) -> str:
    """Whom a process compiles for, and the folder where binaries are kept, if they are."""
    return _OPENING.dump_json((device, cache)).decode()


def decode_opening(text: str) -> _Opening:
    """Whom the text says to compile for, and where binaries are kept."""
    return _OPENING.validate_json(text)


def encode_build(build: Build) -> bytes:
    """One compile as JSON."""
    return _BUILD.dump_json(build)


def decode_build(text: bytes) -> Build:
    """The compile that a JSON text asks for."""
    return _BUILD.validate_json(text)


def encode_result(result: Result) -> tuple[bytes, list[bytes]]:
    """A result as JSON and blobs."""
    if not isinstance(result, Binary):
        return _RESULT.dump_json(result), []
    head = _Success(binary=replace(result, code=b""))
    return _RESULT.dump_json(head), [result.code]


def decode_result(text: bytes, blobs: list[bytes], build: Build) -> Result:
    """The result that came back for a build.

    Raises:
        ValueError: it is none, or one of another build.
    """
    try:
        result = _RESULT.validate_json(text)
    except ValidationError as error:
        raise ValueError(f"no valid result: {error.errors()[0]['msg']}") from None
    if not isinstance(result, _Success):
        assert isinstance(result, Rejected | Problem)
        return result
    if result.binary.build != build.digest or len(blobs) != 1:
        raise ValueError("the binary of another build")
    return replace(result.binary, code=blobs[0])
