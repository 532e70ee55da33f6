"""Buffer sets on a CUDA device: a shape's arguments in a slab, restored before launches.

A launch can write to the slab's image as well, so a digest tells whether one did.
"""

from collections.abc import Mapping, Sequence

from tuner.experiment.arguments import item_bytes
from tuner.plan import Scratch
from tuner.trial import Code
from workers.backends.cuda.checks import MODES, Checks
from workers.backends.cuda.driver import Cuda
from workers.backends.cuda.pinned import PinnedFiles
from workers.backends.cuda.slab import Slab, laid_out
from workers.comparison import Expected
from workers.devices.port import (
    WHOLE,
    Damage,
    DeviceFailure,
    Inspection,
    OtherContents,
    OwnInputs,
    Parts,
    Staged,
    StagedBuffer,
    StagedValue,
)
from workers.elements import is_row_major

_IMAGE_CHANGED = "writes outside its buffers: what other launches are to find has changed"


class CudaBufferSets:
    """The arguments of one shape in a slab, and the scratch slabs of its launchables."""

    def __init__(
        self,
        cuda: Cuda,
        checks: Checks,
        pinned: PinnedFiles,
        arguments: Sequence[Staged],
        sets: int,
    ) -> None:
        self._cuda, self._checks, self._pinned, self._sets = cuda, checks, pinned, sets
        self.buffers = {a.name: a for a in arguments if isinstance(a, StagedBuffer)}
        self.values = {a.name: a.packed for a in arguments if isinstance(a, StagedValue)}
        self._scratch: list[Slab] = []
        self._poison: int | None = None
        self._contents: dict[str, str] = {}
        self._paths: set[str] = set()
        self._digest: int | None = None
        self._mixed = False
        with cuda.translated():
            layout = laid_out([(b.name, b.size, b.align) for b in self.buffers.values()])
            self._slab = Slab(cuda, checks, pinned, layout, sets)
        self.refill({b.name: b.contents for b in self.buffers.values() if b.contents is not None})

    @property
    def sets(self) -> int:
        """How many buffer sets there are."""
        return self._sets

    @property
    def bytes_per_set(self) -> int:
        """Bytes that a set takes, guards included."""
        return self._slab.layout.stride

    def address(self, set_index: int, name: str) -> int:
        """The address of a buffer of a set."""
        return self._slab.address(set_index, name)

    def attach(self, scratch: Sequence[Scratch]) -> Slab:
        """Allocate scratch buffers for every set, restored and guarded like the others."""
        sizes = [(s.name, s.elements * item_bytes(s.dtype), s.align) for s in scratch]
        slab = Slab(self._cuda, self._checks, self._pinned, laid_out(sizes), self._sets)
        if self._poison is not None:
            _poison(slab, self._poison)
        self._scratch.append(slab)
        return slab

    def copy(self, name: str, to: int) -> None:
        """Copy an argument's contents to another place on the device; in stream order."""
        self._slab.copy(name, to)

    def make_aside(self, scratch: Slab) -> None:
        """Allocate what :meth:`write_late` needs."""
        self._slab.make_aside()
        scratch.make_aside()

    def write_late(self, set_index: int, scratch: Slab, stale: str, stream: int) -> None:
        """Make a set stale, and have a kernel that lets the next one begin write it late."""
        settled = {b.name for b in self.buffers.values() if b.kind == "constant"}
        names = [name for name in self.buffers if name not in settled]
        copies = [
            self._slab.outdate(set_index, names, stale, stream),
            scratch.outdate(set_index, list(scratch.layout.offsets), stale, stream),
        ]
        self._checks.write_late(copies, stream)

    def detach(self, slab: Slab) -> None:
        """Undo :meth:`attach`."""
        self._scratch.remove(slab)
        slab.release()

    def refill(self, contents: Mapping[str, str]) -> None:
        """Write contents (argument → path) and guards to the image, unless it holds them.

        Raises:
            DeviceFailure: a launch changed the image, which is mended.
        """
        wanted = self._contents | dict(contents)
        self._paths.update(wanted.values())
        with self._cuda.translated():
            known = self._digest is not None and not self._mixed
            changed = known and self._slab.digest(list(self._contents)) != self._digest
            if wanted != self._contents or changed or not known:
                self._slab.mend()
                for name, path in wanted.items():
                    self._slab.write(name, path)
                self._contents, self._digest = wanted, self._slab.digest(list(wanted))
        self._mixed = False
        if changed:
            raise DeviceFailure(Code.OUT_OF_BOUNDS, _IMAGE_CHANGED)

    def restore(
        self,
        sets: Sequence[int],
        poison: int | None,
        other: OtherContents | OwnInputs | None = None,
    ) -> None:
        """Restore these sets, with outputs and scratch poisoned.

        The image holds what the set that is inspected does until the next time, if that is other
        than the rest.

        Raises:
            DeviceFailure: as for :meth:`refill`, if there are ``other`` contents.
        """
        if self._mixed:
            self.refill({})
        with self._cuda.translated():
            self._checks.spoil()
            if poison is None:
                self._restore_around_outputs(sets[0])
                return
            if poison != self._poison:
                self._poison = poison
                for buffer in self.buffers.values():
                    if buffer.kind in ("out", "scratch"):
                        self._slab.fill(buffer.name, poison)
                for slab in self._scratch:
                    _poison(slab, poison)
            for slab in (self._slab, *self._scratch):
                slab.restore(sets)
            if other is not None:
                self.refill({})
                self._mixed = True
            if isinstance(other, OtherContents):
                for name, path in other.contents.items():
                    self._slab.write(name, path)
                self._slab.restore([other.set_index])
            elif other is not None:
                for buffer in self.buffers.values():
                    if buffer.varies:
                        self._slab.vary(sets, buffer, other)

    def inspect(
        self, set_index: int, expected: Mapping[str, Expected], parts: Parts = WHOLE
    ) -> Inspection:
        """Check for damage, compare expected outputs, return those that cannot be compared here."""
        inputs = [b.name for b in self.buffers.values() if b.kind == "in"]
        outputs, comparisons = {}, {}
        with self._cuda.translated():
            damage = self._slab.damage(set_index, inputs)
            for slab in self._scratch:
                damage = damage or slab.damage(set_index, ())
            for buffer in self.buffers.values():
                if buffer.kind not in ("out", "inout"):
                    continue
                wanted = expected.get(buffer.name)
                elsewhere = wanted is None or wanted.mode not in MODES or wanted.returned
                if wanted is None or elsewhere or not is_row_major(buffer.shape, buffer.strides):
                    part = parts.get(buffer.name)
                    outputs[buffer.name] = self._slab.read(set_index, buffer.name, part)
                    continue
                self._paths.update(filter(None, (wanted.path, wanted.bounds)))
                comparisons[buffer.name] = self._checks.compare(
                    self.address(set_index, buffer.name),
                    buffer,
                    wanted,
                    self._poison if buffer.kind == "out" else None,
                )
        return Inspection(damage=damage, outputs=outputs, comparisons=comparisons)

    def touched(self, sets: Sequence[int]) -> Damage | None:
        """The first change to these sets, or to their scratch, since they were restored."""
        with self._cuda.translated():
            return next(filter(None, (s.touched(sets) for s in (self._slab, *self._scratch))), None)

    def release(self) -> None:
        """Free every buffer, and the pinned memory of what it held and was compared with."""
        with self._cuda.translated():
            self._slab.release()
        self._pinned.forget(self._paths)

    def _restore_around_outputs(self, set_index: int) -> None:
        """Restore a set except its outputs, which the image keeps until the next poison."""
        self._poison = None
        for buffer in self.buffers.values():
            if buffer.kind in ("out", "scratch"):
                self._slab.keep(set_index, buffer.name)
        self._slab.restore([set_index])


def _poison(slab: Slab, byte: int) -> None:
    for name in slab.layout.offsets:
        slab.fill(name, byte)
