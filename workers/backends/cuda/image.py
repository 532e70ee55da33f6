"""Machine code that an application brings along: cubin, fatbin or PTX, taken instead of a compile.

Reads what the file itself tells of its kernels: names, registers, shared memory and launch bounds
from a cubin's sections (``.nv.info``), names and launch bounds from PTX, architectures from a
fatbin, whose code is usually compressed. Every offset is checked: the file may be damaged.
"""

import re
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.csource.mangling import base_name
from tuner.experiment.fields import MAX_BINARY_BYTES
from tuner.files import unpacked
from tuner.plan import Binary, Build, Usage
from tuner.trial import Rejected
from workers.backends.cuda.instruction_mix import mixes
from workers.backends.cuda.ptx import (
    Access,
    accesses,
    bounds,
    code_of,
    parameter_bytes,
    persists,
    reaches,
    shares,
    synchronises,
    variable_bytes,
)
from workers.compilers.sources import compile_error

_ELF, _FATBIN = b"\x7fELF", 0xBA55ED50
_CUDA_MACHINE = 190
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_VARIABLE, _FUNCTION, _ENTRY = 1, 2, 0x10
"""Types of symbols, and the flag in ``st_other`` that marks a kernel."""

_SIZED = 4
_REGISTERS, _FRAME, _MAX_THREADS, _EXACT_THREADS, _PARAMETER = 0x2F, 0x11, 0x05, 0x10, 0x17
"""Attributes in ``.nv.info`` sections, and the format of those that have a payload."""

_PARAMETER_INFO = struct.Struct("<IHHI")
"""Of a parameter: an unused index, its number, its offset; its size above the lowest 18 bits."""

_RESERVED_SHARED, _RESERVES = 1024, 90
"""Bytes that the system keeps in a kernel's shared section, since compute capability 9.0."""

_PTX, _CUBIN = 1, 2
_FATBIN_HEADER = struct.Struct("<IHHQ")
_FATBIN_ENTRY = struct.Struct("<HHIQIIHHI")
"""Of an entry: kind, version, size of its header, of its code, three unused, architecture."""

_PTX_TARGET = re.compile(r"^[ \t]*\.target[ \t]+sm_(\d{1,6})", re.M)
_PTX_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_MOST_LISTED = 8

_NO_BITS = 8
"""Type of the sections that take no space in the file."""

_MAX_NAME = 4096
"""Bytes of a section's or symbol's name: the limit that captures have as well."""

_DAMAGED = "is cut short or damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What a file of machine code tells of itself.

    ``cubins`` and ``ptx`` have compute capabilities (90 for 9.0). ``kernels`` maps symbols to
    usage, ``variables`` to sizes; ``None``: compressed code, whose kernels cannot be listed.
    ``code`` is the PTX without comments and strings, if the file is PTX.
    """

    kind: str
    cubins: tuple[int, ...] = ()
    ptx: tuple[int, ...] = ()
    kernels: Mapping[str, Usage] | None = field(default_factory=dict)
    variables: Mapping[str, int] | None = None
    code: str | None = None

    def runs_on(self, capability: int) -> bool:
        """Whether a device can run it: code of the same major version, or PTX of any before."""
        same = any(one // 10 == capability // 10 and one <= capability for one in self.cubins)
        return same or any(one <= capability for one in self.ptx)


def read_image(data: bytes) -> Image:
    """Read a cubin, a fatbin or PTX.

    Raises:
        ValueError: it is none of these, or damaged.
    """
    try:
        if data.startswith(_ELF):
            return _cubin(data)
        if _is_fatbin(data):
            return _fatbin(data)
    except (struct.error, IndexError, OverflowError, UnicodeDecodeError):
        raise ValueError(_DAMAGED) from None
    try:
        text = data.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise ValueError("is no cubin, no fatbin and no PTX") from None
    return _ptx(text)


def take(build: Build, capability: int) -> Binary | Rejected:
    """The binary of a build that has an image, for a device of this compute capability."""
    began = time.perf_counter()
    try:
        data = unpacked(build.image, MAX_BINARY_BYTES)
        image = read_image(data)
    except ValueError as error:
        return compile_error(f"kernel.binary {error}")
    if not image.runs_on(capability):
        there = [f"sm_{one}" for one in image.cubins] + [f"PTX for sm_{one}" for one in image.ptx]
        return compile_error(
            f"kernel.binary holds code for {', '.join(there) or 'no architecture'}; the device has "
            f"compute capability {capability // 10}.{capability % 10}"
        )
    symbols: dict[str, str] = {}
    named: tuple[tuple[tuple[str, ...], Mapping[str, object] | None, str], ...] = (
        (build.entries, image.kernels, "kernel"),
        (build.variables, image.variables, "variable"),
    )
    for names, held, kind in named:
        for name in names:
            found = _symbol(name, dict(build.symbols), held, kind)
            if isinstance(found, Rejected):
                return found
            symbols[name] = found
    kernels, sizes = image.kernels or {}, image.variables or {}
    ptx = image.code
    return Binary(
        build=build.digest,
        code=data if ptx is None else data.rstrip(b"\0") + b"\0",
        usage=tuple((entry, kernels.get(symbols[entry], Usage())) for entry in build.entries),
        symbols=tuple(symbols.items()),
        variable_bytes=tuple(
            (name, sizes[symbols[name]]) for name in build.variables if symbols[name] in sizes
        ),
        compile_seconds=time.perf_counter() - began,
        # Machine code is not disassembled: assume what costs no more than a few resets.
        persists=ptx is None or persists(ptx),
        reaches=() if ptx is None else reaches(ptx),
        shares=ptx is None or shares(ptx),
        synchronises=ptx is None or synchronises(ptx),
    )


def _symbol(
    name: str, given: Mapping[str, str], held: Mapping[str, object] | None, kind: str
) -> str | Rejected:
    """The name in the image of an entry or a variable."""
    wanted = given.get(name, name)
    if held is None or wanted in held:
        return wanted
    base = name.partition("<")[0].rpartition("::")[2].strip()
    alike = [symbol for symbol in held if base_name(symbol) == base]
    if name not in given and len(alike) == 1:
        return alike[0]
    known = sorted(alike or held)
    more = f" … ({len(known)} in all)" if len(known) > _MOST_LISTED else ""
    listed = ", ".join(known[:_MOST_LISTED]) or "none"
    return compile_error(
        f"kernel.binary has no {kind} {wanted}; it has: {listed}{more}. Give the one that is meant "
        f"under kernel.binary.symbols, as {{{name!r}: NAME}}"
    )


def _ptx(text: str) -> Image:
    target = _PTX_TARGET.search(text)
    if target is None:
        raise ValueError("is no cubin, no fatbin and no PTX")
    code = code_of(text)
    return Image(
        kind="PTX",
        ptx=(int(target[1]),),
        kernels=ptx_usage(code, _PTX_ENTRY.findall(code)),
        variables=variable_bytes(code),
        code=code,
    )


def ptx_usage(text: str, symbols: Sequence[str]) -> dict[str, Usage]:
    """What PTX tells of kernels: bounds of a block, accesses, instructions, size of parameters."""
    bound, accessed = bounds(text), accesses(text)
    mixed, parameters = mixes(text), parameter_bytes(text)
    usage = {}
    for symbol in symbols:
        access = accessed.get(symbol, Access())
        usage[symbol] = Usage(
            max_threads_per_block=bound.get(symbol),
            noncoherent=access.noncoherent,
            written=access.written,
            mix=mixed.get(symbol, ()),
            parameter_bytes=parameters.get(symbol),
        )
    return usage


def narrowed(data: bytes, capability: int) -> bytes:
    """A fatbin with the parts that a device takes, compressed as they are; other files unchanged.

    Libraries hold code for many architectures, which would all become part of a run.
    """
    if not _is_fatbin(data):
        return data
    parts = [part for part in _parts(data) if part.arch <= capability]
    major = capability // 10
    fitting = [part for part in parts if part.kind == _CUBIN and part.arch // 10 == major]
    fitting = fitting or [part for part in parts if part.kind == _PTX]
    newest = max((part.arch for part in fitting), default=None)
    code = b"".join(data[p.start : p.end] for p in fitting if p.arch == newest)
    if not code:
        return data
    magic, version, size, _ = _FATBIN_HEADER.unpack_from(data)
    header = _FATBIN_HEADER.pack(magic, version, size, len(code))
    return header + data[_FATBIN_HEADER.size : size] + code


@dataclass(frozen=True, slots=True)
class _Part:
    """Code for one architecture in a fatbin: its kind, and where it lies with its header."""

    kind: int
    arch: int
    start: int
    end: int


def _is_fatbin(data: bytes) -> bool:
    return len(data) >= _FATBIN_HEADER.size and _FATBIN_HEADER.unpack_from(data)[0] == _FATBIN


def _parts(data: bytes) -> Iterator[_Part]:
    _, _, place, size = _FATBIN_HEADER.unpack_from(data)
    end = place + size
    if end > len(data):
        raise ValueError(_DAMAGED)
    while place < end:
        if place + _FATBIN_ENTRY.size > end:
            raise ValueError(_DAMAGED)
        kind, _, header, length, *_, arch = _FATBIN_ENTRY.unpack_from(data, place)
        following = place + header + length
        if header < _FATBIN_ENTRY.size or following > end:
            raise ValueError(_DAMAGED)
        yield _Part(kind, arch, place, following)
        place = following


def _fatbin(data: bytes) -> Image:
    parts = list(_parts(data))
    cubins = tuple(part.arch for part in parts if part.kind == _CUBIN)
    ptx = tuple(part.arch for part in parts if part.kind == _PTX)
    return Image(kind="fatbin", cubins=cubins, ptx=ptx, kernels=None)


def _cubin(data: bytes) -> Image:
    machine = struct.unpack_from("<H", data, 18)[0]
    if data[4:6] != b"\x02\x01" or machine != _CUDA_MACHINE:
        raise ValueError("is an ELF file, but no cubin")
    flags = struct.unpack_from("<I", data, 48)[0]
    capability = flags >> 8 & 0xFF if data[8] >= 8 else flags & 0xFF  # since CUDA 13, and before
    sections = _sections(data)
    names, variables = _symbols(data, sections)
    info = list(_attributes(data, sections.get(".nv.info")))
    registers, frames = _by_symbol(info, _REGISTERS), _by_symbol(info, _FRAME)
    reserved = _RESERVED_SHARED if capability >= _RESERVES else 0
    kernels = {}
    for index, name in names.items():
        own = list(_attributes(data, sections.get(f".nv.info.{name}")))
        threads = dict(own).get(_MAX_THREADS) or dict(own).get(_EXACT_THREADS)
        shared = sections.get(f".nv.shared.{name}")
        kernels[name] = Usage(
            registers=registers.get(index),
            stack_bytes=frames.get(index),
            static_shared_bytes=max(0, shared.size - reserved) if shared else 0,
            max_threads_per_block=_product(threads) if threads else None,
            parameter_bytes=_parameters(own),
        )
    return Image(kind="cubin", cubins=(capability,), kernels=kernels, variables=variables)


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int

    def of(self, data: bytes) -> bytes:
        """Its contents."""
        if self.offset + self.size > len(data):
            raise ValueError(_DAMAGED)
        return data[self.offset : self.offset + self.size]


def _sections(data: bytes) -> dict[str, _Section]:
    (table,) = struct.unpack_from("<Q", data, 40)
    count, strings = struct.unpack_from("<HH", data, 60)
    read = [_SECTION.unpack_from(data, table + index * _SECTION.size) for index in range(count)]
    made = [_Section(kind, offset, size, link) for _, kind, _, _, offset, size, link, *_ in read]
    # Sections do not overlap, so what is read of them is no more than the file.
    if sum(section.size for section in made if section.kind != _NO_BITS) > len(data):
        raise ValueError(_DAMAGED)
    names = _Names(made[strings].of(data), len(data))
    return {names.at(one[0]): section for one, section in zip(read, made, strict=True)}


def _symbols(
    data: bytes, sections: Mapping[str, _Section]
) -> tuple[dict[int, str], dict[str, int]]:
    """The kernels by their number in the table of symbols, and the sizes of the variables."""
    table, strings = sections.get(".symtab"), sections.get(".strtab")
    if table is None or strings is None:
        raise ValueError("has no table of symbols")
    names, kernels, variables = _Names(strings.of(data), len(data)), {}, {}
    contents = table.of(data)
    for index in range(len(contents) // _SYMBOL.size):
        name, kind, other, section, _, size = _SYMBOL.unpack_from(contents, index * _SYMBOL.size)
        if kind & 0xF == _FUNCTION and other & _ENTRY:
            kernels[index] = names.at(name)
        elif kind & 0xF == _VARIABLE and section:
            variables[names.at(name)] = size
    if len(set(kernels.values())) < len(kernels):
        raise ValueError(_DAMAGED)
    return kernels, variables


class _Names:
    """Names in a table of strings; ``left`` bytes may be read in all, as names can overlap."""

    def __init__(self, table: bytes, left: int) -> None:
        self._table = table
        self._left = left

    def at(self, place: int) -> str:
        """The name that begins at ``place``.

        Raises:
            ValueError: it has no end within ``_MAX_NAME`` bytes, or too much was read.
        """
        end = self._table.find(b"\0", place, place + _MAX_NAME + 1)
        self._left -= end - place
        if end < 0 or self._left < 0:
            raise ValueError(_DAMAGED)
        return self._table[place:end].decode()


def _attributes(data: bytes, section: _Section | None) -> Iterator[tuple[int, bytes]]:
    """Attribute and payload, of the attributes that have one."""
    contents, place = section.of(data) if section else b"", 0
    while place + 4 <= len(contents):
        form, attribute, size = struct.unpack_from("<BBH", contents, place)
        place += 4
        if form == _SIZED:
            yield attribute, contents[place : place + size]
            place += size


def _by_symbol(attributes: Sequence[tuple[int, bytes]], wanted: int) -> dict[int, int]:
    return dict(struct.unpack("<II", value) for kind, value in attributes if kind == wanted)


def _product(sizes: bytes) -> int:
    x, y, z = struct.unpack("<III", sizes)
    return int(x * y * z)


def _parameters(attributes: Sequence[tuple[int, bytes]]) -> tuple[int, ...]:
    """The size of each parameter."""
    infos = [_PARAMETER_INFO.unpack(value) for kind, value in attributes if kind == _PARAMETER]
    return tuple(size >> 18 for _, _, _, size in sorted(infos, key=lambda info: info[1]))
