"""Fatbins written by hand: containers of code for several architectures."""

import struct


def fatbin(*parts):
    """A container of (kind, architecture, code), as the toolkit's ``fatbinary`` writes it."""
    body = b"".join(
        struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(code), *[0] * 4, arch, *[0] * 5) + code
        for kind, arch, code in parts
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
