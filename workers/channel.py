"""Frames between a parent and its child process: a JSON text and raw blobs, of bounded length."""

import socket
import struct
from collections.abc import Callable, Sequence

POLL_SECONDS = 0.05
"""Interval between two checks while a frame is awaited."""

_MAX_TEXT = 64 * 1024 * 1024
_MAX_BLOBS = 4096
_PIECE, _MOST = 64 * 1024, 1024 * 1024
"""Bytes read from the socket at a time: each call waits for the interpreter's lock."""
_HEADER = struct.Struct("!QQ")
_LENGTH = struct.Struct("!Q")

Frame = tuple[bytes, list[bytes]]


class ChannelClosed(Exception):
    """The other end is gone."""


class Channel:
    """Frames over a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._timeout = sock.gettimeout()
        self._unread = bytearray()

    def send(
        self,
        text: bytes,
        blobs: Sequence[bytes | memoryview] = (),
        timeout: float | None = None,
    ) -> None:
        """Send one frame; each part must be written within ``timeout`` seconds.

        Raises:
            ChannelClosed: the other end is gone.
            TimeoutError: it does not read.
        """
        head = _HEADER.pack(len(text), len(blobs))
        if blobs:
            head += b"".join(_LENGTH.pack(len(blob)) for blob in blobs)
        self._limit(timeout)
        try:
            self._sock.sendall(head + text)
            for blob in blobs:
                self._sock.sendall(blob)
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosed from error

    def receive(self, limit: int, check: Callable[[], None] | None = None) -> Frame:
        """Receive one frame of at most ``limit`` bytes of blobs.

        Raises:
            ChannelClosed: end of stream.
            ValueError: lengths out of bounds.
        """
        self._limit(POLL_SECONDS if check else None)
        size, count = _HEADER.unpack(self._read(_HEADER.size, check))
        if size > _MAX_TEXT or count > _MAX_BLOBS:
            raise ValueError(f"a frame of {size} bytes and {count} blobs")
        heads = self._read(count * _LENGTH.size, check)
        lengths = [length for (length,) in _LENGTH.iter_unpack(heads)]
        if sum(lengths) > limit:
            raise ValueError(f"{sum(lengths)} bytes of blobs where {limit} are allowed")
        text = self._read(size, check)
        return text, [self._read(length, check) for length in lengths]

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def _limit(self, timeout: float | None) -> None:
        if timeout != self._timeout:
            self._sock.settimeout(timeout)
            self._timeout = timeout

    def _read(self, size: int, check: Callable[[], None] | None) -> bytes:
        if not size:
            return b""
        while (missing := size - len(self._unread)) > 0:
            if check is not None:
                check()
            try:
                piece = self._sock.recv(min(max(missing, _PIECE), _MOST))
            except TimeoutError:
                continue
            except OSError as error:
                raise ChannelClosed from error
            if not piece:
                raise ChannelClosed
            self._unread += piece
        with memoryview(self._unread) as unread:
            found = bytes(unread[:size])
        del self._unread[:size]
        return found
