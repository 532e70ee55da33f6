"""An exported kernel as a Python function: picks a variant by device and shape, checks, launches.

Compiles at the first call that needs a variant, in this process, and keeps what it compiled. The
OpenCL compiler changes the process's current folder meanwhile.
"""

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, Self

from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.arguments import holds, item_bytes, spanned
from tuner.experiment.model import ITEM_BYTES, Argument
from tuner.export.manifest import NAME, Served, check_manifest, read_manifest
from tuner.files import UnreadableFile, inside, read_bounded
from tuner.plan import Build
from tuner.trial import Rejected
from workers.backends.registry import adapter_of
from workers.devices.port import DeviceFailure
from workers.devices.staging import NULL, packed
from workers.elements import is_float
from workers.loader.port import ArrayView, BoundCell, Place, Runtime
from workers.loader.signature import (
    Given,
    Signature,
    check_number,
    checked_size,
    extents,
    own_value,
)

_MOST_BYTES = 64 << 20
"""Largest file of an export."""

_KEPT_CALLS = 4096
"""Distinct calls (sizes, types, alignments) whose checks are remembered."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What one kind of call launches; without ``launches`` that is nothing.

    ``values`` has the bytes of the scalars that such a call leaves out, ``dtypes`` the type of each
    argument.
    """

    variant: str
    launches: Any = None
    values: Mapping[str, bytes] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)


class TunedKernel:
    """An exported kernel. Call it with the kernel's own arguments, in its order or by name.

        kernel = kernelwright.load_kernel("export")
        kernel(out, x, d)

    Arrays are CuPy arrays, PyTorch tensors, and others with ``__cuda_array_interface__`` or
    ``__dlpack__`` for CUDA; ``pyopencl.array.Array`` and ``pyopencl.Buffer`` for OpenCL. Sizes
    follow from arrays and scalars; pass by name those that do not. Work space is allocated.

    A tuned variant runs where the export's rule says so: on the device model of the run, for shapes
    of the domain, with arrays that are aligned and do not overlap outputs, and with the scalars
    that were tested or lie in their ``range``. The baseline runs otherwise. If every output is
    empty, nothing is launched.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        """Read an export from its files by name.

        Raises:
            tuner.errors.EnvironmentProblem: it is incomplete or damaged.
        """
        self._files = dict(files)
        self._manifest = read_manifest(files[NAME])
        check_manifest(self._manifest, files)
        self._language = self._manifest.kernel.language
        self._signature = Signature(self._manifest.spec)
        passed = self._signature.arguments
        self._by_name = {argument.name: argument for argument in passed}
        self._outputs = frozenset(argument.name for argument in passed if argument.is_output)
        buffers = [a.name for a in passed if a.kind not in ("scalar", "struct")]
        self._arrays = tuple(buffers)
        self._aligned = tuple((a.name, a.align) for a in passed if a.name in buffers and a.align)
        self._apart = tuple(
            pair for pair in combinations(buffers, 2) if not self._outputs.isdisjoint(pair)
        )
        self._free = frozenset(
            a.name for a in passed if a.kind == "scalar" and not self._signature.may_lack(a)
        )
        self._ranges = tuple((a.name, *a.range) for a in passed if a.kind == "scalar" and a.range)
        self._nulls = {a.name: NULL for a in self._manifest.arguments if a.kind == "null"}
        self._calls: dict[Hashable, _Prepared] = {}
        self._codes: dict[tuple[Hashable, Build], Any] = {}
        self._lock = threading.Lock()

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read an export from its folder; raises as above."""
        manifest = read_manifest(_text(folder, NAME))
        return cls({name: _text(folder, name) for name in (NAME, *manifest.files)})

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self._manifest.experiment

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments that a call passes, in order."""
        return self._signature.names

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(self.arguments)}) for {self._manifest.device.name}>"

    def __call__(self, *arguments: object, stream: object = None, **by_name: object) -> None:
        """Launch on the caller's current stream; does not wait.

        Args:
            arguments: in the kernel's order; scalars that follow from the shape may be left out.
            stream: a CUDA stream (an object of CuPy or PyTorch, or its address) or an OpenCL queue,
                in place of the current one of PyTorch (if a tensor is given) or CuPy, or of the
                queue of the first array.
            by_name: arguments, and sizes that do not follow from arguments.

        Raises:
            tuner.errors.SpecError: an argument does not fit; the message names it.
            tuner.errors.EnvironmentProblem: the kernel cannot be compiled or launched here.
        """
        given, place, prepared, values = self._prepared(arguments, stream, by_name)
        if prepared.launches is None:
            return
        try:
            place.launch(prepared.launches, given.arrays, values)
        except DeviceFailure as failure:
            raise EnvironmentProblem(f"{self.name}: {prepared.variant}: {failure}") from None

    def variant(self, *arguments: object, stream: object = None, **by_name: object) -> str:
        """The name of what the same call would launch, such as ``general`` or ``baseline``.

        Compiles it, so that the next call does not wait; empty if nothing would be launched.
        """
        return self._prepared(arguments, stream, by_name)[2].variant

    def torch_op(self, name: str) -> Callable[..., None]:
        """Register the kernel as a PyTorch operator; return it. ``torch.compile`` accepts it.

        The operator takes the same arguments, writes the outputs in place and returns nothing. It
        has no derivative. Call it once before it is captured in a CUDA graph, so that it is
        compiled.

        Args:
            name: ``namespace::name``, not registered before.

        Raises:
            tuner.errors.SpecError: the name or an argument's kind cannot be registered.
            tuner.errors.EnvironmentProblem: PyTorch is missing.
        """
        from workers.loader.torch_op import register

        if self._language != "cuda":
            raise SpecError(f"a PyTorch operator needs a CUDA kernel; this one is {self._language}")
        return register(self, self._signature, name)

    @cached_property
    def _runtime(self) -> Runtime:
        make = adapter_of(self._language).open_runtime
        if make is None:
            raise EnvironmentProblem(f"there is no loader for {self._language}: use the C header")
        return make()

    def _prepared(
        self, arguments: tuple[object, ...], stream: object, by_name: Mapping[str, object]
    ) -> tuple[Given, Place, _Prepared, dict[str, bytes]]:
        """Also the bytes of what is passed by value: packing them checks those of every call."""
        given = self._sorted(self._signature.named(arguments, by_name))
        place = self._runtime.place(given.arrays, stream)
        key = (place.key, self._kind(given))
        prepared = self._calls.get(key)
        if prepared is None:
            with self._lock:
                if len(self._calls) >= _KEPT_CALLS:
                    self._calls.clear()
                prepared = self._calls[key] = self._prepare(given, place)
        values = {**prepared.values, **given.structs}
        for name, value in given.scalars.items():
            values[name] = _packed(name, prepared.dtypes[name], value)
        return given, place, prepared, values

    def _sorted(self, named: Mapping[str, object]) -> Given:
        given = Given()
        for name, value in named.items():
            argument = self._by_name.get(name)
            if argument is None:
                given.symbols[name] = _symbol(name, value, name in self._signature.types)
            elif argument.kind == "scalar":
                given.scalars[name] = _number(name, value)
            elif argument.kind == "struct":
                if not isinstance(value, bytes | bytearray | memoryview):
                    raise SpecError(f"argument '{name}': pass the struct as bytes")
                given.structs[name] = bytes(value)
            else:
                given.arrays[name] = self._view(name, value)
        return given

    def _view(self, name: str, value: object) -> ArrayView:
        try:
            view = self._runtime.view(value)
        except SpecError as problem:
            raise SpecError(f"argument '{name}' {problem}") from None
        if view is None:
            raise SpecError(
                f"argument '{name}': a {type(value).__name__} is no array on a device for "
                f"{self._language}: copy it to the device first"
            )
        return view

    def _kind(self, given: Given) -> Hashable:
        """What decides how a call is checked and what it launches."""
        arrays = given.arrays
        return (
            tuple([arrays[name].layout for name in self._arrays]),
            tuple([(n, v) for n, v in given.scalars.items() if n not in self._free]),
            tuple([(name, len(data)) for name, data in given.structs.items()]),
            tuple(given.symbols.items()),
            self._suits_tuned(given),
        )

    def _suits_tuned(self, given: Given) -> bool:
        """Whether the arguments are as those with which tuned variants were tested."""
        arrays, scalars = given.arrays, given.scalars
        for name, align in self._aligned:
            if arrays[name].address % align:
                return False
        for name, argument in self._signature.fixed.items():
            if name in scalars and not _same(argument, scalars[name]):
                return False
        for name, low, high in self._ranges:
            if name in scalars and not low <= scalars[name] <= high:
                return False
        return not any(_overlap(arrays[one], arrays[other]) for one, other in self._apart)

    def _prepare(self, given: Given, place: Place) -> _Prepared:
        signature = self._signature
        symbols = signature.shape(given)
        signature.check(given, symbols)
        dtypes = {a.name: str(symbols.get(a.dtype, a.dtype)) for a in self._manifest.arguments}
        sizes = {
            a.name: spanned(*extents(a, symbols)) * item_bytes(dtypes[a.name])
            for a in self._manifest.arguments
            if a.is_buffer
        }
        if not any(sizes[name] for name in self._outputs):
            return _Prepared("", dtypes=dtypes)
        served = self._manifest.serve(symbols, place.device, tuned=self._suits_tuned(given))
        if isinstance(served, str):
            at = ", ".join(f"{name}={value}" for name, value in symbols.items())
            raise SpecError(f"{self.name} cannot be launched at {at}: {served}")
        own = {a.name: sizes[a.name] for a in self._manifest.arguments if a.kind == "scratch"}
        added = {s.name: s.elements * item_bytes(s.dtype) for s in served.cell.scratch}
        scalars = [a for a in self._manifest.arguments if a.kind == "scalar"]
        own_values = self._nulls | {
            a.name: _packed(a.name, dtypes[a.name], own_value(a, symbols))
            for a in scalars
            if a.name not in given.scalars
        }
        bound = BoundCell(
            cell=served.cell,
            widths={a.name: item_bytes(dtypes[a.name]) for a in scalars}
            | {name: len(data) for name, data in (*given.structs.items(), *self._nulls.items())},
            sizes=sizes,
            scratch=own | added,
            constants={
                a.name: a.symbol or a.name for a in signature.arguments if a.kind == "constant"
            },
        )
        launches = place.bind(self._code(place, served), bound)
        return _Prepared(served.variant.name, launches, own_values, dtypes)

    def _code(self, place: Place, served: Served) -> Any:
        key = place.key, served.build
        if key not in self._codes:
            headers = tuple((name, self._files[name]) for name, _ in served.build.headers)
            source = self._files[served.variant.file]
            build = replace(served.build, source=source, headers=headers)
            compiled = adapter_of(self._language).open_compiler(place.device).compile(build)
            if isinstance(compiled, Rejected):
                raise EnvironmentProblem(
                    f"{served.variant.file} does not compile for {place.device.name}: "
                    f"{compiled.detail}"
                )
            self._codes[key] = place.load(compiled)
        return self._codes[key]


def _text(folder: Path, name: str) -> str:
    try:
        text = read_bounded(inside(folder, name), _MOST_BYTES, follow=True)
    except (UnreadableFile, SpecError) as error:
        raise EnvironmentProblem(f"{folder / name} {error}") from None
    if text is None:
        raise EnvironmentProblem(
            f"there is no {folder / name}: name a folder that `kernelwright export` wrote"
        )
    return text


def _same(argument: Argument, given: float) -> bool:
    own = own_value(argument, {})
    if own == given or argument.dtype not in ITEM_BYTES:  # a type symbol has no one size
        return own == given
    name, dtype = argument.name, argument.dtype
    return holds(dtype, given) and _packed(name, dtype, own) == _packed(name, dtype, given)


@lru_cache(maxsize=_KEPT_CALLS)
def _kept_bytes(name: str, dtype: str, value: float) -> bytes:
    check_number(name, value, dtype)
    held = float(value) if is_float(dtype) else int(value)
    return packed(dtype, [held])


def _packed(name: str, dtype: str, value: float) -> bytes:
    """A scalar's bytes, which are kept, but for those of zeros: 0.0 and -0.0 are equal as keys.

    Raises:
        SpecError: the type does not hold the value.
    """
    return (_kept_bytes if value else _kept_bytes.__wrapped__)(name, dtype, value)


def _overlap(one: ArrayView, other: ArrayView) -> bool:
    if one.base != other.base or not one.size or not other.size:
        return False
    return one.address < other.address + other.size and other.address < one.address + one.size


def _number(name: str, value: object) -> bool | int | float:
    """A Python or NumPy number."""
    item = getattr(value, "item", None)
    found = item() if item is not None and getattr(value, "shape", None) == () else value
    if not isinstance(found, bool | int | float):
        raise SpecError(f"argument '{name}': a number is needed, not a {type(value).__name__}")
    return found


def _symbol(name: str, value: object, is_type: bool) -> int | str:
    if not is_type:
        return checked_size(name, _number(name, value))
    if not isinstance(value, str):
        needed = f"a dtype by name is needed, not a {type(value).__name__}"
        raise SpecError(f"argument '{name}': {needed}")
    return value
