"""Whether the machine code in a driver's binary has memory that outlasts a launch.

PoCL's binary holds a shared library (ELF, 64 bits, little endian) for each kernel. Its writable
sections tell of every variable, however the source hides it.
"""

import struct
from collections.abc import Iterator

_MAGIC = b"\x7fELF\x02\x01"
_WRITABLE_IN_MEMORY = 0b11
_LOADERS = (".dynamic", ".got", ".data.rel.ro", ".init_array", ".fini_array", ".tm_clone_table")
"""Beginnings of the names of sections that only the loader writes."""


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
