"""How much freed memory a process keeps: a page taken again is a fault, and is zeroed."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""


def keep_freed_memory(kept: int, largest: int) -> None:
    """Keep so many bytes, where glibc is used, and allocate up to ``largest`` from them."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, kept)
        mallopt(_MMAP_THRESHOLD, largest)
