"""The user's Python functions, in a process of their own: references and ``{python: …}`` fills.

A **reference** is a plain function in a file beside the spec. It is called with keyword arguments:
every ``in``, ``constant`` and ``inout`` argument as an array (float64 where the kernel has any
float type, the kernel's own type for integers and bools), every scalar as a Python number and every
struct as a dict of its fields (raw bytes as an array); names that its signature does not have are
left out. It returns a dict with an array for every ``out`` and
``inout`` argument, or the one array where there is one such argument.

A **fill** is ``function(shape: dict, argument: str, seed: int) -> array``.

That process runs :func:`main` of this module.
"""

import importlib.util
import inspect
import json
import math
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.fields import PythonFunction
from tuner.trial import Value
from workers.channel import Channel, ChannelClosed
from workers.confinement import Sandbox
from workers.elements import is_float, numpy_dtype, suits_float32
from workers.forking import ChildFailed
from workers.heap import keep_freed_memory
from workers.process import Child
from workers.scratch import PrivateFolder

REFERENCE_SECONDS = 300.0
"""Limit of one call of a reference or fill."""
_KINDS = "fiub"
FEW = 16
"""Fewer numbers do not show how large they usually are."""
_ROUNDED, _CHANGES = 3, 8.0
"""How often inputs are rounded, and how many times the largest change an error may be at least."""
_HALF_STEP = (2.0**-24, 2.0**-53)
"""Half a step between numbers near 1: of float32, also for narrower types, and of float64."""
_KEPT_BYTES, _HEAP_BYTES = 256 << 20, 128 << 20
"""Freed memory that a process keeps, and the largest array in it: a quarter of a call's time."""
_ENDING_REMEDY: dict[str, str] = {
    "hung": "; vectorise it with NumPy, or use smaller shapes",
    "killed": "; the machine may be out of memory: use smaller shapes",
}
"""What helps against a call's end, by the way it ended."""
_RETURN = "return an array, or from a reference a dict with an array for each output"
_SAID = 300
"""Characters shown of an exception's message, at most."""


class ReferenceFailed(SpecError):
    """The user's function raised, hung, or returned something invalid."""


class ReferenceProcess:
    """Calls functions of one experiment, in one child, with a time-out."""

    def __init__(self, seconds: float = REFERENCE_SECONDS) -> None:
        self._folder = PrivateFolder("reference")
        folder = str(self._folder.path)
        self._child = Child("workers.reference", [folder], sandbox=Sandbox(folder=folder))
        self._seconds = seconds

    def call(
        self,
        function: PythonFunction,
        arguments: Mapping[str, NDArray[Any] | Value | float | dict[str, Any]],
        narrow: Sequence[str] = (),
    ) -> dict[str, NDArray[Any]]:
        """Call with keyword arguments; a single array comes back under the empty name.

        Arrays of floats arrive as float64, for which they are sent as they are and widened there.
        Those that are called in ``narrow`` come back as float32.

        Retries once if the process was killed externally.

        Raises:
            ChildFailed: the process was lost with its fork server.
            ReferenceFailed: with the function's own message.
        """
        arrays = {n: np.ascontiguousarray(a) for n, a in arguments.items() if _is_array(a)}
        head = {
            "file": function.file,
            "text": function.text,
            "function": function.function,
            "arrays": {n: [a.dtype.str, a.shape] for n, a in arrays.items()},
            "values": {n: v for n, v in arguments.items() if n not in arrays},
            "narrow": list(narrow),
        }
        place = f"{function.file}:{function.function}"
        blobs = [a.reshape(-1).view(np.uint8).data for a in arrays.values()]
        try:
            text = json.dumps(head).encode()
            return _decode(
                *self._child.request(text, blobs, timeout=self._seconds, attempts=2), place
            )
        except ChildFailed as failure:
            if failure.how == "lost":
                raise
            remedy = _ENDING_REMEDY.get(failure.how, "")
            raise ReferenceFailed(f"{place}: {failure.detail}{remedy}") from None
        except (ValueError, KeyError, TypeError) as error:
            self._child.kill()
            raise ReferenceFailed(f"{place}: unreadable answer: {error}") from None

    def close(self) -> None:
        """End the process at once."""
        self._child.close()
        self._folder.remove()


class ReferencePool:
    """Reference processes of one experiment, one for each thread that calls at the same time."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._all: list[ReferenceProcess] = []
        self._idle: list[ReferenceProcess] = []
        self._closed = False

    @contextmanager
    def taken(self) -> Iterator[ReferenceProcess]:
        """A process that no other thread calls meanwhile.

        Raises:
            EnvironmentProblem: closed.
        """
        with self._guard:
            if self._closed:
                raise EnvironmentProblem("the reference processes are closed")
            if not self._idle:
                self._idle.append(ReferenceProcess())
                self._all.append(self._idle[-1])
            process = self._idle.pop()
        try:
            yield process
        finally:
            with self._guard:
                self._idle.append(process)

    def close(self) -> None:
        """End all of them; from another thread, to abort a call."""
        with self._guard:
            self._closed = True
        for process in self._all:
            process.close()


def rounding_errors(
    process: ReferenceProcess,
    function: PythonFunction,
    arguments: Sequence[ResolvedArgument],
    inputs: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[Any]],
) -> dict[str, float]:
    """What rounding may make of the outputs of a few floats, by output.

    A sum of many numbers may be near 0, and its own size says nothing of its error then. Each input
    is rounded up or down at random, three times; a right kernel is off by a few times the change,
    or by as many as the square root of the terms: each addition rounds what it has summed up.
    ``outputs`` are the reference's for these ``inputs``.
    """
    few = [a for a in arguments if a.is_output and a.elements < FEW and is_float(a.dtype)]
    floats = [a for a in arguments if a.name in inputs and is_float(a.dtype)]
    changes = {a.name: 0.0 for a in few if a.compare == "close"}
    rng = np.random.default_rng(0)
    for _ in range(_ROUNDED if changes and floats else 0):
        rounded = dict(inputs)
        for a in floats:
            up = rng.integers(2, size=inputs[a.name].shape, dtype=np.int8) * 2.0 - 1.0
            step = _HALF_STEP[a.dtype == "float64"]
            rounded[a.name] = inputs[a.name].astype(np.float64) * (1.0 + up * step)
        try:
            found = reference_outputs(process, function, arguments, rounded)
        except SpecError:
            return {}
        for name, most in changes.items():
            with np.errstate(all="ignore"):
                change = np.abs(found[name].astype(np.float64) - outputs[name])
            changes[name] = max(most, float(change[np.isfinite(change)].max(initial=0.0)))
    most_inputs = max((inputs[a.name].size for a in floats), default=0)
    terms = {a.name: most_inputs / max(1, a.elements) for a in few}
    return {n: max(_CHANGES, math.sqrt(terms[n])) * most for n, most in changes.items()}


def reference_outputs(
    process: ReferenceProcess,
    function: PythonFunction,
    arguments: Sequence[ResolvedArgument],
    inputs: Mapping[str, NDArray[Any]],
) -> dict[str, NDArray[Any]]:
    """What a reference makes of dense inputs, by output; as float32 where that is precise enough.

    Raises:
        SpecError: it fails, or returns other outputs than the kernel has, or of other shapes.
    """
    call: dict[str, Any] = {}
    for argument in arguments:
        if argument.name in inputs:
            values = inputs[argument.name]
            # Types that NumPy lacks are sent as the next wider one that it has.
            lacking = is_float(argument.dtype) and values.dtype.kind != "f"
            call[argument.name] = values.astype(np.float32) if lacking else values
        elif argument.kind == "struct":
            call[argument.name] = _as_mapping(argument)
        elif argument.value is not None:
            call[argument.name] = _held(argument.value, argument.dtype)
    outputs = [a for a in arguments if a.is_output]
    narrow = [a.name for a in outputs if suits_float32(a)]
    answer = process.call(function, call, [*narrow, ""] if len(outputs) == len(narrow) else narrow)
    if set(answer) == {""} and len(outputs) == 1:
        answer = {outputs[0].name: answer[""]}
    place = f"reference {function.file}:{function.function}"
    if missing := [a.name for a in outputs if a.name not in answer]:
        raise SpecError(f"{place} returns no {', '.join(missing)}; {_RETURN}")
    for a in outputs:
        if answer[a.name].shape != a.shape:
            raise SpecError(f"{place}: {a.name} has shape {answer[a.name].shape}, not {a.shape}")
    return {
        a.name: answer[a.name].astype(np.float32, copy=False)
        if a.name in narrow
        else answer[a.name]
        for a in outputs
    }


def _held(value: int | float, dtype: str) -> int | float:
    """A scalar as its type holds it: an element that equals it does so for the reference, too."""
    if not is_float(dtype):
        return value
    with np.errstate(over="ignore"):
        return float(np.array(value).astype(numpy_dtype(dtype)))


def _as_mapping(argument: ResolvedArgument) -> dict[str, Any] | NDArray[np.uint8]:
    """A struct for the reference: its fields by name, or its raw bytes."""
    if not argument.fields:
        return np.frombuffer(bytes.fromhex(argument.contents), np.uint8)
    fields = {
        field.name: [_held(value, field.dtype) for value in field.values]
        for field in argument.fields
    }
    return {name: held[0] if len(held) == 1 else held for name, held in fields.items()}


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _decode(text: bytes, blobs: list[bytes], place: str) -> dict[str, NDArray[Any]]:
    head = json.loads(text)
    if "error" in head:
        raise ReferenceFailed(f"{place}: {str(head['error'])[:2000]}")
    found = {}
    for (name, (dtype, shape)), blob in zip(head["arrays"].items(), blobs, strict=True):
        kind = np.dtype(str(dtype))
        if kind.kind not in _KINDS:
            raise ReferenceFailed(f"{place}: returned elements of type {kind}")
        found[str(name)] = np.frombuffer(blob, kind).reshape([int(extent) for extent in shape])
    return found


class _Functions:
    """Functions by (text, name), each file imported once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[tuple[str, str], Callable[..., Any]] = {}

    def get(self, file: str, text: str, name: str) -> Callable[..., Any]:
        key = (text, name)
        if key not in self._found:
            path = Path(tempfile.mkdtemp(dir=self._folder)) / Path(file).name
            path.write_text(text)
            spec = importlib.util.spec_from_file_location(f"_user_{len(self._found)}", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            function = getattr(module, name, None)
            if not callable(function):
                raise AttributeError(f"{file} has no function {name!r}")
            self._found[key] = function
        return self._found[key]


def _answer(functions: _Functions, head: dict[str, Any], blobs: list[bytes]) -> dict[str, Any]:
    function = functions.get(head["file"], head["text"], head["function"])
    arguments: dict[str, Any] = dict(head["values"])
    for (name, (dtype, shape)), blob in zip(head["arrays"].items(), blobs, strict=True):
        values = np.frombuffer(blob, np.dtype(dtype)).reshape(shape)
        arguments[name] = values.astype(np.float64 if values.dtype.kind == "f" else values.dtype)
    parameters = inspect.signature(function).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        arguments = {name: value for name, value in arguments.items() if name in parameters}
    result = function(**arguments)
    if result is None:
        raise TypeError(f"returned None; {_RETURN}")
    found = dict(result) if isinstance(result, Mapping) else {"": result}
    if any(isinstance(one, np.ma.MaskedArray) for one in found.values()):
        raise TypeError("returned a masked array, but all elements are compared; fill it")
    try:
        arrays = {str(name): np.ascontiguousarray(array) for name, array in found.items()}
    except ValueError:  # parts of several shapes
        raise TypeError(f"returned a {type(result).__name__} that is no array; {_RETURN}") from None
    for name, array in arrays.items():
        if array.dtype.kind not in _KINDS:
            raise TypeError(f"returned elements of type {array.dtype} {name}".strip())
    with np.errstate(over="ignore"):
        return {
            name: array.astype(np.float32, copy=False) if name in head["narrow"] else array
            for name, array in arrays.items()
        }


def _place(error: Exception, folder: str) -> str:
    """The last line of the user's file that an exception passed; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    return f" (line {own[-1].lineno} of {Path(own[-1].filename).name})" if own else ""


def _said(error: Exception) -> str:
    """An exception's message on one line; it may be the user's own class, whose ``str`` raises."""
    try:
        said = str(error)
    except Exception as another:
        return f"(its message raises {type(another).__name__})"
    return " ".join(said.split())[:_SAID].encode(errors="replace").decode()


def _remedy(error: Exception) -> str:
    if not isinstance(error, ModuleNotFoundError):
        return ""
    return "; the file runs alone: copy into it what it needs of files beside it"


def main(channel: Channel, arguments: Sequence[str]) -> None:
    """Serve until the channel closes."""
    (folder,) = arguments
    keep_freed_memory(_KEPT_BYTES, _HEAP_BYTES)
    channel.send(b"ready")
    functions = _Functions(Path(folder))
    while True:
        try:
            text, blobs = channel.receive(1 << 40)
        except ChannelClosed:
            return
        try:
            found = _answer(functions, json.loads(text), blobs)
        except Exception as error:
            place, remedy = _place(error, folder), _remedy(error)
            message = {"error": f"{type(error).__name__}: {_said(error)}{place}{remedy}"}
            channel.send(json.dumps(message).encode())
            continue
        heads = {name: [array.dtype.str, array.shape] for name, array in found.items()}
        views = [array.reshape(-1).view(np.uint8).data for array in found.values()]
        channel.send(json.dumps({"arrays": heads}).encode(), views)
