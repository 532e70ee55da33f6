"""The shapes staged in one child: their buffer sets and what these hold.

Each shape is staged twice: in one set at addresses aligned to exactly what the experiment promises,
for checks alone; and at addresses as an allocator gives them, for timing and checks, since the
application runs on those.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.model import Cache
from workers.bench.supervisor import Supervisor
from workers.devices.port import Rotation
from workers.devices.staging import buffer_bytes, staged
from workers.integrity.launch_checks import Contents, VerificationCase

StagingKey = tuple[int, bool]
"""A shape, and whether on exactly aligned buffers."""


@dataclass(slots=True)
class StagedShape:
    """``original`` contents were staged first, ``contents`` are there now.

    A case in which a few elements are ``changed`` is mixed into timings.
    ``order`` continues over the sets as the last timing did, so that a kernel cannot tell a checked
    launch by its set.
    """

    handle: int
    sets: int
    original: Contents
    contents: Contents
    changed: VerificationCase | None
    order: Iterator[int]


class StagedShapes:
    """What is staged, by key; an allocator of the device aligns to ``base_align`` bytes."""

    def __init__(
        self,
        server: Supervisor,
        arguments: Mapping[int, tuple[ResolvedArgument, ...]],
        base_align: int,
    ) -> None:
        self._server = server
        self._arguments = arguments
        self._base_align = base_align
        self._shapes: dict[StagingKey, StagedShape] = {}
        self._rotations: dict[tuple[int, Cache, int, int], Rotation] = {}

    def __getitem__(self, key: StagingKey) -> StagedShape:
        return self._shapes[key]

    def __contains__(self, key: StagingKey) -> bool:
        return key in self._shapes

    def stage(
        self, cases: Sequence[VerificationCase], caches: Sequence[Cache], repeats: int
    ) -> None:
        """Stage the shape of verification cases, with as many sets as timing on the first needs."""
        case, changed = cases[0], next((case for case in cases if case.keep_outputs), None)
        arguments, contents = self._arguments[case.shape], case.contents
        needed = max(self.rotation(case.shape, cache, 0, repeats).sets for cache in caches)
        for exact, sets in ((True, 1), (False, needed)):
            handle = self._server.stage(staged(arguments, contents, self.least_align(exact)), sets)
            self._shapes[case.shape, exact] = StagedShape(
                handle, sets, contents, contents, changed, itertools.cycle(range(sets))
            )

    def unstage(self, shape: int) -> None:
        """Free a shape's buffers."""
        for exact in (True, False):
            self._server.release(self._shapes.pop((shape, exact)).handle)

    def ensure(self, key: StagingKey, contents: Contents) -> None:
        """Have the sets hold these contents."""
        if self._shapes[key].contents is not contents:
            self.refill(key, contents)

    def refill(self, key: StagingKey, contents: Contents) -> None:
        """Write these contents, whatever the sets hold."""
        shape = self._shapes[key]
        self._server.refill(shape.handle, contents)
        shape.contents = contents

    def rotation(self, shape: int, cache: Cache, warmup: int, repeats: int) -> Rotation:
        """How to time a shape."""
        key = shape, cache, warmup, repeats
        if key not in self._rotations:
            size = buffer_bytes(self._arguments[shape])
            self._rotations[key] = self._server.rotation(size, cache, warmup, repeats)
        return self._rotations[key]

    def stays_in_cache(self, shape: int, warmup: int, repeats: int) -> bool:
        """Whether hot timings of a shape differ from cold ones."""
        hot, cold = (self.rotation(shape, cache, warmup, repeats) for cache in get_args(Cache))
        return hot != cold

    def least_align(self, exact: bool) -> int:
        """Bytes that buffers are aligned to at least."""
        return 1 if exact else self._base_align
