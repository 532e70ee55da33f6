"""What the code in a driver's binary tells, however the source hides it.

PoCL's binary holds a shared library (ELF, 64 bits, little endian) for each kernel, whose writable
sections tell of every variable that outlasts a launch. It also holds LLVM's code, with the names of
intrinsics as they are.
"""

import re
import struct
from collections.abc import Iterator

_MAGIC = b"\x7fELF\x02\x01"
_WRITABLE_IN_MEMORY = 0b11
_LOADERS = (".dynamic", ".got", ".data.rel.ro", ".init_array", ".fini_array", ".tm_clone_table")
"""Beginnings of the names of sections that only the loader writes."""

_INTRINSIC = re.compile(
    rb"""llvm\.(?:read(?:cycle|steady)counter|(?:read|read_volatile|write)_register|returnaddress
    |frameaddress|addressofreturnaddress|sponentry|localrecover|eh\.\w+|global_[cd]tors
    |x86\.(?:sse\.(?:ld|st)mxcsr|sse2\.(?:clflush|pause)|sse3\.(?:monitor|mwait)
    |(?!sse|ssse|avx|vcvt|fma|xop|bmi|tbm|aes|sha|pclmul|f16c)[a-z_]+))""",
    re.X,
)
"""Names of what reads clocks, registers or the stack, sets how numbers are rounded, or runs before
a launch; of the processor's, all but arithmetic."""


def intrinsics(binary: bytes) -> tuple[str, ...]:
    """Those that do more than compute, sorted."""
    return tuple(sorted({found.decode() for found in _INTRINSIC.findall(binary)}))


def has_lasting_memory(binary: bytes) -> bool:
    """Whether some library in it has a writable section of the kernel's own."""
    place = binary.find(_MAGIC)
    while place >= 0:
        try:
            if any(not name.startswith(_LOADERS) for name in _writable(binary[place:])):
                return True
        except (struct.error, IndexError, OverflowError):
            pass  # a constant that looks like the beginning of a library
        place = binary.find(_MAGIC, place + 1)
    return False


def _writable(library: bytes) -> Iterator[str]:
    """The names of writable sections that are not empty."""
    (table,) = struct.unpack_from("<Q", library, 0x28)
    size, count, names = struct.unpack_from("<HHH", library, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", library, table + n * size) for n in range(count)]
    strings = sections[names][4]
    for name, _, flags, _, _, length in sections:
        if flags & _WRITABLE_IN_MEMORY == _WRITABLE_IN_MEMORY and length:
            begin = strings + name
            yield library[begin : library.find(b"\0", begin)].decode(errors="replace")
