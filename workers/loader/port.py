"""The port of the loader: how a backend sees an application's arrays, and launches on its stream.

Unlike the bench it runs in the application's own process, on buffers that it does not own.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tuner.device import Device
from tuner.plan import Binary, CellPlan


class ArrayView(NamedTuple):
    """One array or buffer of the application: a tuple, since every call makes some.

    Attributes:
        given: the object itself, or what stands for it on the device; keeps the memory.
        base: tells memories apart in which addresses begin anew.
        address: of the first element, in bytes.
        size: bytes from the first element to the end of the last one.
        dtype: element type in the format's words; empty for a bare buffer.
        shape: extents; empty for a bare buffer.
        strides: in elements.
        writable: whether it may be an output.
        home: the number of its device, if the array tells that.
    """

    given: Any
    base: int
    address: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    writable: bool = True
    home: int | None = None

    @property
    def layout(self) -> Hashable:
        """All but the object and where it lies."""
        return self[3:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCell:
    """The launches of one shape, and what all calls for it have in common.

    Attributes:
        cell: the launches.
        widths: the number of bytes of each argument that is passed by value.
        sizes: the bytes of each array that the kernel may use.
        scratch: the bytes of each work buffer, to be allocated.
        constants: the module's variable that each constant argument fills.
    """

    cell: CellPlan
    widths: Mapping[str, int]
    sizes: Mapping[str, int]
    scratch: Mapping[str, int]
    constants: Mapping[str, str]


class Place(Protocol):
    """A device of the application, and a stream (queue) on it."""

    @property
    def device(self) -> Device:
        """The device's model and limits."""

    @property
    def key(self) -> Hashable:
        """Equal for places that can share loaded code."""

    def load(self, binary: Binary) -> Any:
        """Load code; the result is only passed to :meth:`bind` of a place of the same key."""

    def bind(self, code: Any, bound: BoundCell) -> Any:
        """Prepare launches; the result is only passed to :meth:`launch` of such a place."""

    def launch(
        self, launches: Any, arrays: Mapping[str, ArrayView], values: Mapping[str, bytes]
    ) -> None:
        """Put the launches into the stream, without waiting for them.

        Args:
            launches: what :meth:`bind` returned.
            arrays: by argument.
            values: the bytes of each argument that is passed by value.
        """


class Runtime(Protocol):
    """A backend in the application's process."""

    def view(self, given: object) -> ArrayView | None:
        """An array or buffer; ``None`` for anything else."""

    def place(self, arrays: Mapping[str, ArrayView], stream: object) -> Place:
        """Where to launch on these arrays: on ``stream``, or the caller's current one if ``None``.

        Raises:
            SpecError: the arrays are on several devices, or tell no stream.
        """
