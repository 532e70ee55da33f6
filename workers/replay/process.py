"""A replay in a process of its own, whose arguments are the adapter and the device's index.

A changed index or pointer crashes the launch, and with it the device context; the next launch gets
a fresh process. Requests and answers are JSON with raw blobs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from tuner.device import Backend
from tuner.errors import EnvironmentProblem
from workers.backends.registry import load, module_of, preloaded_modules
from workers.channel import Channel, ChannelClosed
from workers.confinement import device_sandbox
from workers.devices.port import DeviceFailure
from workers.forking import ChildFailed
from workers.process import Child, physical_memory
from workers.replay.port import Change, Poison, ReplayDevice, ReplayFailed, ReplayLaunch, Window
from workers.scratch import PrivateFolder

RUN_SECONDS = 30.0
_OPEN_SECONDS = 120.0
_MOST_BYTES = 1 << 36


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """Open a launch; the image and the buffers follow as blobs."""

    kind: Literal["open"] = "open"
    launch: ReplayLaunch


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Run it with these changes, and return what the windows show."""

    kind: Literal["run"] = "run"
    changes: tuple[Change | Poison, ...]
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """How it went, with what the windows show as blobs.

    ``problem``: the machine lacks something.
    """

    failed: str | None = None
    problem: str | None = None


_Request = Annotated[_Open | _Run, Field(discriminator="kind")]
_BYTES = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_REQUEST: TypeAdapter[_Open | _Run] = TypeAdapter(_Request, config=_BYTES)
_ANSWER = TypeAdapter(_Answer)


class ReplayProcess:
    """Port :class:`workers.replay.port.Replay` over a child process that holds the device."""

    def __init__(
        self,
        backend: Backend,
        index: int,
        launch: ReplayLaunch,
        image: bytes,
        buffers: Sequence[bytes],
        *,
        seconds: float = RUN_SECONDS,
    ) -> None:
        self._folder = PrivateFolder("replay")
        self._child = Child(
            "workers.replay.process",
            [module_of(backend), str(index)],
            memory_limit=physical_memory(),
            preload=preloaded_modules(backend),
            sandbox=device_sandbox(backend, self._folder.path),
        )
        self._opening = (_Open(launch=launch), [image, *buffers])
        self._whole = tuple(Window(i, 0, len(held)) for i, held in enumerate(buffers))
        self._opened = False
        self._seconds = seconds

    def run(
        self, changes: Sequence[Change | Poison] = (), windows: Sequence[Window] | None = None
    ) -> list[bytes]:
        """Run the launch, in a fresh process after a failure.

        Raises:
            ReplayFailed: it failed, crashed or hung, or the image does not load.
            EnvironmentProblem: the device cannot be opened.
        """
        if not self._opened:
            self._ask(*self._opening, _OPEN_SECONDS)
            self._opened = True
        shown = self._whole if windows is None else tuple(windows)
        return self._ask(_Run(changes=tuple(changes), windows=shown), (), self._seconds)

    def close(self) -> None:
        """End the process."""
        self._child.close()
        self._folder.remove()

    def _ask(self, request: _Open | _Run, blobs: Sequence[bytes], seconds: float) -> list[bytes]:
        try:
            text, found = self._child.request(
                _REQUEST.dump_json(request), blobs, timeout=seconds, limit=_MOST_BYTES
            )
            answer = _ANSWER.validate_json(text)
        except ChildFailed as failure:
            self._opened = False
            raise ReplayFailed(failure.detail) from None
        except ValidationError:
            self._give_up()
            raise ReplayFailed("the replay process sent an unreadable answer") from None
        if answer.problem is not None:
            raise EnvironmentProblem(answer.problem)
        if answer.failed is not None:
            self._give_up()
            raise ReplayFailed(answer.failed)
        return found

    def _give_up(self) -> None:
        self._opened = False
        self._child.kill()


class _Server:
    """One device with the launch on it, and the captured contents of its buffers."""

    def __init__(self, device: ReplayDevice) -> None:
        self._device = device
        self._buffers: list[bytes] = []

    def answer(self, request: _Open | _Run, blobs: list[bytes]) -> tuple[_Answer, list[bytes]]:
        """Carry out a request; a device's failure becomes an answer."""
        try:
            return _Answer(), self._do(request, blobs)
        except DeviceFailure as failure:
            return _Answer(failed=failure.detail), []

    def _do(self, request: _Open | _Run, blobs: list[bytes]) -> list[bytes]:
        if isinstance(request, _Open):
            image, *self._buffers = blobs
            self._device.open(request.launch, image, self._buffers)
            return []
        changes = [
            one if isinstance(one, Change) else one.change(self._buffers[one.buffer])
            for one in request.changes
        ]
        return self._device.run(changes, request.windows)


def main(channel: Channel, arguments: Sequence[str]) -> None:
    """Serve until the channel closes."""
    module, index = arguments
    channel.send(b"ready")
    server: _Server | None = None
    while True:
        try:
            text, blobs = channel.receive(_MOST_BYTES)
        except ChannelClosed:
            return
        try:
            if server is None:
                opener = load(module).open_replay
                if opener is None:
                    raise EnvironmentProblem("this backend cannot replay captured launches")
                server = _Server(opener(int(index)))
        except EnvironmentProblem as problem:
            channel.send(_ANSWER.dump_json(_Answer(problem=str(problem))))
            continue
        answer, found = server.answer(_REQUEST.validate_json(text), blobs)
        channel.send(_ANSWER.dump_json(answer), found)
