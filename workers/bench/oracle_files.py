"""The oracle's inputs and expected outputs as files, made once and mapped.

For a GPU they are in a folder that all benches of a run on one host share: the first bench that
needs a case makes it under a lock, the others map it. On a CPU device candidates could read any
file by name, so expected outputs have no name there and belong to this process.
"""

import hashlib
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from tuner.experiment.model import Experiment
from tuner.experiment.validation import adapter
from tuner.trial import Rejected
from workers.bench.preparation import Preparation
from workers.comparison import Expected
from workers.elements import Array, numpy_dtype
from workers.scratch import SharedFolder, file_lock


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleRecord:
    """A case on disk: ``contents`` and the paths in ``expected`` name files.

    ``rejected`` is why the baseline gives no outputs; ``notes`` are for the report.
    """

    contents: dict[str, str]
    expected: dict[str, Expected]
    notes: tuple[str, ...] = ()
    rejected: Rejected | None = None


_RECORD = TypeAdapter(OracleRecord)


class OracleFiles:
    """The cases of one baseline; ``abort`` is set to give up waiting for another process."""

    def __init__(self, prep: Preparation, folder: Path, abort: threading.Event) -> None:
        self._shared = None if prep.device.is_cpu else SharedFolder("answers", _key(prep))
        self._folder = self._shared.path if self._shared else folder
        self._abort = abort
        self._kept: dict[tuple[str, str], NDArray[Any]] = {}

    def get(self, name: str, make: Callable[[], OracleRecord]) -> OracleRecord:
        """The case of this name, made unless a process on this host already did."""
        if self._shared is None:
            return make()
        path = self._folder / f"{name}.json"
        with file_lock(path.with_suffix(".lock"), self._abort):
            if path.exists():
                return _RECORD.validate_json(path.read_bytes())
            record = make()
            whole = path.with_suffix(".new")
            whole.write_bytes(_RECORD.dump_json(record))
            whole.rename(path)
            return record

    def write(self, name: str, argument: str, data: Array) -> str:
        """Write contents; returns their path."""
        path = self._folder / f"{name}.{argument}.raw"
        path.unlink(missing_ok=True)
        data.tofile(path)
        path.chmod(0o400)
        return str(path)

    def keep(self, name: str, what: str, values: NDArray[Any]) -> str:
        """Keep what candidates must not see; returns its path, empty if it has no name."""
        if self._shared is not None:
            return self.write(name, what, values)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            values.tofile(file)
            file.flush()
            self._kept[name, what] = _mapped(file, values.dtype, values.shape)
        return ""

    def kept(self, name: str, what: str, path: str, dtype: str, shape: tuple[int, ...]) -> Array:
        """What was kept, mapped."""
        if not path:
            return cast("Array", self._kept[name, what])
        with Path(path).open("rb") as file:
            return _mapped(file, numpy_dtype(dtype), shape)

    def close(self) -> None:
        """Forget them; the last process on the host removes the files."""
        self._kept.clear()
        if self._shared:
            self._shared.leave()


def _mapped(file: Any, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    mapped: NDArray[Any] = np.memmap(file, dtype, "r", shape=shape).view(np.ndarray)
    return mapped


def _key(prep: Preparation) -> str:
    """A digest of what cases depend on: experiment, machine code, seed, device."""
    parts = (
        adapter(Experiment).dump_json(prep.setup.prepares).decode(),
        prep.setup.baseline.code_digest,
        str(prep.setup.secret),
        prep.device.model,
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
