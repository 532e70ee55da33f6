"""The HTTP client of network models, with a bound on the size of a response.

The bound holds before anything is decoded or parsed.
"""

from collections.abc import AsyncIterator
from contextvars import ContextVar
from functools import cache
from typing import NoReturn

import httpx

LIMIT_BYTES = 32 * 1024 * 1024
"""Enough for the longest text that is kept, escaped as JSON."""

TOO_LONG = f"the response is longer than {LIMIT_BYTES} bytes"
COMPRESSED = "the response is compressed, which was not requested"


refusals: ContextVar[list[str]] = ContextVar("refusals")
"""Why responses were refused: libraries on the way to the caller drop the message."""


def _refuse(words: str) -> NoReturn:
    refusals.get([]).append(words)
    raise httpx.ReadError(words)


class _Bounded(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for part in self._stream:
            read += len(part)
            if read > LIMIT_BYTES:
                _refuse(TOO_LONG)
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _bound(response: httpx.Response) -> None:
    """Bound a response before its body is read. Compressed bytes could decompress to any size."""
    if response.headers.get("content-encoding", "identity") != "identity":
        _refuse(COMPRESSED)
    assert isinstance(response.stream, httpx.AsyncByteStream)
    response.stream = _Bounded(response.stream)


@cache
def bounded_session() -> httpx.AsyncClient:
    """One client per process. It keeps no connection open, so any event loop may use it."""
    return httpx.AsyncClient(
        event_hooks={"response": [_bound]},
        headers={"Accept-Encoding": "identity"},
        limits=httpx.Limits(max_keepalive_connections=0),
        follow_redirects=True,
    )
