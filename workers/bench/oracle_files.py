"""An oracle's answers as files, so that they are made once and take no process's memory.

Owns where they lie. For a device with memory of its own they lie in a folder that all benches of a
run on one host share: whoever needs an answer first makes it, under a lock, and the others map it.
On a CPU device candidates could read any file by its name, so expected values have none there, and
are this process's alone.
"""

import hashlib
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from tuner.experiment.model import Experiment
from tuner.trial import Rejected
from workers.bench.preparation import Prep
from workers.comparison import Expected
from workers.elements import Array, numpy_dtype
from workers.scratch import SharedFolder, file_lock

Wants = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is kept of a question: ``contents`` and the paths in ``expected`` are files' names.

    ``rejected`` is why the baseline has no answer; ``notes`` are for the report.
    """

    contents: dict[str, str]
    expected: dict[str, Expected]
    notes: tuple[str, ...] = ()
    rejected: Rejected | None = None


_ANSWERS = TypeAdapter(Answer)
_EXPERIMENTS = TypeAdapter(Experiment)


class Answers:
    """Answers about one baseline.

    Args:
        prep: whose.
        folder: this process's own.
        abort: set to give up waiting for another process.
    """

    def __init__(self, prep: Prep, folder: Path, abort: threading.Event) -> None:
        self._shared = None if prep.device.is_cpu else SharedFolder("answers", _key(prep))
        self._folder = self._shared.path if self._shared else folder
        self._abort = abort
        self._wants: dict[tuple[str, str], NDArray[Any]] = {}

    def get(self, name: str, make: Callable[[], Answer]) -> Answer:
        """The answer of this name, made if nobody on this host did so before."""
        if self._shared is None:
            return make()
        path = self._folder / f"{name}.json"
        with file_lock(path.with_suffix(".lock"), self._abort):
            if path.exists():
                return _ANSWERS.validate_json(path.read_bytes())
            answer = make()
            whole = path.with_suffix(".new")
            whole.write_bytes(_ANSWERS.dump_json(answer))
            whole.rename(path)
            return answer

    def write(self, name: str, argument: str, data: Array) -> str:
        """Keep contents; the path where they lie."""
        path = self._folder / f"{name}.{argument}.raw"
        path.unlink(missing_ok=True)
        data.tofile(path)
        path.chmod(0o400)
        return str(path)

    def expect(self, name: str, argument: str, want: NDArray[Any]) -> str:
        """Keep expected values; their path, if they have one."""
        if self._shared is not None:
            return self.write(name, f"{argument}.want", want)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            want.tofile(file)
            file.flush()
            self._wants[name, argument] = _mapped(file, want.dtype, want.shape)
        return ""

    def want(self, name: str, argument: str, expected: Expected, shape: tuple[int, ...]) -> Array:
        """Expected values, mapped."""
        if not expected.path:
            return cast("Array", self._wants[name, argument])
        with Path(expected.path).open("rb") as file:
            return _mapped(file, numpy_dtype(expected.dtype), shape)

    def close(self) -> None:
        """Forget them; whoever leaves last removes the files."""
        self._wants.clear()
        if self._shared:
            self._shared.leave()


def _mapped(file: Any, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    mapped: NDArray[Any] = np.memmap(file, dtype, "r", shape=shape).view(np.ndarray)
    return mapped


def _key(prep: Prep) -> str:
    """What answers depend on: experiment, machine code, inputs' seed, device."""
    parts = (
        _EXPERIMENTS.dump_json(prep.setup.prepares).decode(),
        prep.setup.baseline.code_digest,
        str(prep.setup.secret),
        prep.device.model,
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
