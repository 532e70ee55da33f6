"""The shapes that lie staged in one child: their buffer sets, what these hold, and who is next.

Each shape is staged twice: with one set on addresses aligned to exactly what the experiment
promises, for checks alone, and on addresses as an allocator gives them, for timing and checks,
since that is what the application runs on.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.model import Cache
from workers.bench.supervisor import Supervisor
from workers.devices.port import Rotation
from workers.devices.staging import staged
from workers.integrity.launch_checks import Contents, Question

Place = tuple[int, bool]
"""A shape, and whether on exactly aligned buffers."""


@dataclass(slots=True)
class Case:
    """``first`` are the contents it was staged with, ``contents`` what it holds now.

    ``walk`` goes on over the sets as the last timing did, so that no launch is known by its place.
    """

    handle: int
    sets: int
    first: Contents
    contents: Contents
    walk: Iterator[int]


class Cases:
    """What is staged, by place.

    Args:
        server: the child.
        arguments: resolved arguments by shape.
        base_align: how an allocator of the device aligns, in bytes.
    """

    def __init__(
        self,
        server: Supervisor,
        arguments: Mapping[int, tuple[ResolvedArgument, ...]],
        base_align: int,
    ) -> None:
        self._server = server
        self._arguments = arguments
        self._base_align = base_align
        self._cases: dict[Place, Case] = {}
        self._rotations: dict[tuple[int, Cache, int, int], Rotation] = {}

    def __getitem__(self, place: Place) -> Case:
        return self._cases[place]

    def __contains__(self, place: Place) -> bool:
        return place in self._cases

    def stage(self, question: Question, caches: Sequence[Cache], repeats: int) -> None:
        """Stage the question's shape, with as many sets as timing needs."""
        arguments, contents = self._arguments[question.shape], question.contents
        needed = max(self.rotation(question.shape, cache, 0, repeats).sets for cache in caches)
        for exact, sets in ((True, 1), (False, needed)):
            handle = self._server.stage(staged(arguments, contents, self.least_align(exact)), sets)
            self._cases[question.shape, exact] = Case(
                handle, sets, contents, contents, itertools.cycle(range(sets))
            )

    def unstage(self, shape: int) -> None:
        """Free a shape's buffers."""
        for exact in (True, False):
            self._server.release(self._cases.pop((shape, exact)).handle)

    def hold(self, place: Place, contents: Contents) -> None:
        """Have a case hold these inputs."""
        if self._cases[place].contents is not contents:
            self.refill(place, contents)

    def refill(self, place: Place, contents: Contents) -> None:
        """Write these inputs into a case, whatever it holds."""
        case = self._cases[place]
        self._server.refill(case.handle, contents)
        case.contents = contents

    def rotation(self, shape: int, cache: Cache, warmup: int, repeats: int) -> Rotation:
        """How to time a shape."""
        asked = shape, cache, warmup, repeats
        if asked not in self._rotations:
            size = sum(a.size for a in self._arguments[shape] if a.is_buffer)
            self._rotations[asked] = self._server.rotation(
                size, cache, warmup, repeats, in_place=self.in_place(shape)
            )
        return self._rotations[asked]

    def in_place(self, shape: int) -> bool:
        """Whether a launch changes what the next one reads."""
        return any(argument.kind == "inout" for argument in self._arguments[shape])

    def least_align(self, exact: bool) -> int:
        """Bytes that buffers are aligned to at least."""
        return 1 if exact else self._base_align
