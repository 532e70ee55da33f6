"""Makes each verification case once, several at a time, and some before they are asked for."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from tuner.errors import EnvironmentProblem
from tuner.trial import Rejected
from workers.bench.input_specs import REFERENCE_ELEMENTS, InputSpec, narrower
from workers.integrity.launch_checks import VerificationCase

AT_ONCE = 8
"""Cases made at once at most: each holds its inputs and the outputs of two runs in memory."""
LARGE_AT_ONCE = 3
"""Large cases among them that are always made at once: each may take gigabytes."""
LARGE_ELEMENTS = AT_ONCE * REFERENCE_ELEMENTS
"""Elements of large cases up to which more of them are: as many as others have at most."""
_CLOSED = "closed while test cases were made"

Case = VerificationCase | Rejected
CaseKey = tuple[int, InputSpec]
"""A shape and a spec."""


class CasePool:
    """Cases by shape and spec.

    Args:
        make: makes a case, or says why the baseline gives no outputs for it; thread-safe.
        elements: how many elements a shape's buffers have; above ``REFERENCE_ELEMENTS`` its cases
            are large.
    """

    def __init__(
        self,
        make: Callable[[int, InputSpec], Case],
        elements: Callable[[int], int],
    ) -> None:
        self._make = make
        self._elements = elements
        self._making: list[int] = []
        """Elements of each case that is being made."""
        self._pauses = 0
        self._room = threading.Condition()
        workers = min(AT_ONCE, len(os.sched_getaffinity(0)))
        self._threads = ThreadPoolExecutor(workers, "case")
        self._made: dict[CaseKey, Future[Case]] = {}
        self._begun: dict[CaseKey, Future[Case]] = {}
        self._guard = threading.Lock()
        self._closed = False

    def case(self, shape: int, spec: InputSpec) -> Case:
        """A case; made in this thread unless another one makes it already."""
        with self._guard:
            known = self._made.get((shape, spec))
            case = self._made.setdefault((shape, spec), Future())
        if known is None:
            try:
                case.set_result(self._make(shape, spec))
            except BaseException as error:
                with self._guard:
                    del self._made[shape, spec]
                case.set_exception(error)
                raise
        return case.result()

    def cases(self, wanted: Sequence[CaseKey]) -> list[Case]:
        """Several cases, in order; narrower ones where the baseline is undefined.

        Raises:
            EnvironmentProblem: closed.
        """
        begun = self._begin(wanted)
        try:
            return [begun[key].result() for key in wanted]
        except CancelledError:
            raise EnvironmentProblem(_CLOSED) from None

    def make_ahead(self, wanted: Sequence[CaseKey]) -> None:
        """Begin to make cases that :meth:`cases` will be asked for."""
        self._begin(wanted)

    def settle(self) -> None:
        """Wait for all that was begun; what failed is tried again when it is asked for."""
        wait(self._begun.values())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Begin no others meanwhile, once those that are being made are complete."""
        with self._room:
            self._pauses += 1
            self._room.wait_for(lambda: not self._making)
        try:
            yield
        finally:
            with self._room:
                self._pauses -= 1
                self._room.notify_all()

    def close(self) -> None:
        """Begin no others."""
        with self._guard:
            self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, wanted: Sequence[CaseKey]) -> dict[CaseKey, Future[Case]]:
        with self._guard:
            if self._closed:
                raise EnvironmentProblem(_CLOSED)
            for key in wanted:
                begun = self._begun.get(key)
                if begun is None or (begun.done() and begun.exception() is not None):
                    self._begun[key] = self._threads.submit(self._defined, *key)
            return {key: self._begun[key] for key in wanted}

    def _defined(self, shape: int, spec: InputSpec) -> Case:
        """The case, or the widest narrower one on which the baseline is defined."""
        with self._admitted(self._elements(shape)):
            return self._widest(shape, spec)

    @contextmanager
    def _admitted(self, size: int) -> Iterator[None]:
        """Wait for the end of a pause, and for room in memory if a case of so many is large."""

        def may_begin() -> bool:
            large = [one for one in (*self._making, size) if one > REFERENCE_ELEMENTS]
            few = size <= REFERENCE_ELEMENTS or len(large) <= LARGE_AT_ONCE
            return not self._pauses and (few or sum(large) <= LARGE_ELEMENTS)

        with self._room:
            self._room.wait_for(may_begin)
            self._making.append(size)
        try:
            yield
        finally:
            with self._room:
                self._making.remove(size)
                self._room.notify_all()

    def _widest(self, shape: int, spec: InputSpec) -> Case:
        case = self.case(shape, spec)
        while isinstance(case, Rejected) and (less := narrower(spec)) is not None:
            spec, case = less, self.case(shape, less)
        return case
