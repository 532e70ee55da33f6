"""Frames between a parent and its child process: a JSON text and raw blobs, of bounded length."""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Sequence

POLL_SECONDS = 0.05
"""Interval between two checks while a frame is awaited."""

_MAX_TEXT = 64 * 1024 * 1024
_MAX_BLOBS = 4096
_PACKET = 64 * 1024
"""Bytes of a packet at most."""
_SO_TIMESTAMPNS = 35
"""Linux's socket option, which Python does not name: each packet comes with when it was sent."""
_READINGS, _AT_ONCE_NS = 10, 2000
"""Of both clocks at most, to compare them; the nanoseconds that one takes unless interrupted."""
_HEADER = struct.Struct("!QQ")
_LENGTH = struct.Struct("!Q")
_TIMESTAMP = struct.Struct("@qq")
"""Seconds and nanoseconds."""

Frame = tuple[bytes, list[bytes]]


class ChannelClosed(Exception):
    """The other end is gone."""


def channel_sockets() -> tuple[socket.socket, socket.socket]:
    """The parent's and the child's end of a channel.

    The kernel notes when the child sends a packet, however late the parent reads it.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.suppress(OSError):  # a kernel without it: see Channel
        ours.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    return ours, theirs


class Channel:
    """Frames over a socket that keeps packets apart."""

    def __init__(self, sock: socket.socket) -> None:
        self._noted_ns = 0
        self._sock = sock
        self._timeout = sock.gettimeout()
        self._unread = b""

    def send(
        self,
        text: bytes,
        blobs: Sequence[bytes | memoryview] = (),
        timeout: float | None = None,
    ) -> None:
        """Send one frame; each packet must be written within ``timeout`` seconds.

        Raises:
            ChannelClosed: the other end is gone.
            TimeoutError: it does not read.
        """
        head = _HEADER.pack(len(text), len(blobs))
        if blobs:
            head += b"".join(_LENGTH.pack(len(blob)) for blob in blobs)
        self._limit(timeout)
        try:
            for part in (head + text, *blobs):
                with memoryview(part).cast("B") as view:
                    for at in range(0, len(view), _PACKET):
                        self._sock.send(view[at : at + _PACKET])
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

    @property
    def sent_ns(self) -> int:
        """When the last received frame's end was sent: nanoseconds on the monotonic clock.

        When it was read, where the kernel notes no times. The kernel notes them on the system's
        clock: ask right after receiving, so that setting that clock is hardly read as time.
        """
        return self._noted_ns + _ahead_ns()

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def _limit(self, timeout: float | None) -> None:
        if timeout != self._timeout:
            self._sock.settimeout(timeout)
            self._timeout = timeout

    def _read(self, size: int, check: Callable[[], None] | None) -> bytes:
        pieces, held = [self._unread], len(self._unread)
        while held < size:
            if check is not None:
                check()
            try:
                piece, notes, *_ = self._sock.recvmsg(_PACKET, socket.CMSG_SPACE(_TIMESTAMP.size))
            except TimeoutError:
                continue
            except OSError as error:
                raise ChannelClosed from error
            if not piece:
                raise ChannelClosed
            self._noted_ns = _noted_ns(notes)
            pieces.append(piece)
            held += len(piece)
        whole = b"".join(pieces)  # once: other threads wait while bytes are copied
        self._unread = whole[size:]
        return whole[:size]


def _noted_ns(notes: Sequence[tuple[int, int, bytes]]) -> int:
    """When a packet was sent, on the system's clock, from what the kernel notes of it."""
    for level, kind, data in notes:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESTAMP.unpack(data)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return time.time_ns()


def _ahead_ns() -> int:
    """By how much the monotonic clock is ahead of the system's; read again where interrupted."""
    for _ in range(_READINGS):
        before, system, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if after - before < _AT_ONCE_NS:
            break
    return before - system
