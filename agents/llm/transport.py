"""The HTTP client of a network model: a response may be long, but not endless.

Owns the bound on what is read of one response, before anything is decoded or parsed. Knows nothing
of models.
"""

from collections.abc import AsyncIterator
from contextvars import ContextVar
from functools import cache
from typing import NoReturn

import httpx

LIMIT_BYTES = 32 * 1024 * 1024
"""A reply of the longest text that is kept, escaped as JSON, with room to spare."""

TOO_LONG = f"the response is longer than {LIMIT_BYTES} bytes"
COMPRESSED = "the response is compressed though that was not asked for"


refusals: ContextVar[list[str]] = ContextVar("refusals")
"""Where a caller finds why a response was refused: libraries in between drop the words."""


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
    """Before a body is read. A few compressed bytes can become any number, so none are taken."""
    if response.headers.get("content-encoding", "identity") != "identity":
        _refuse(COMPRESSED)
    assert isinstance(response.stream, httpx.AsyncByteStream)
    response.stream = _Bounded(response.stream)


@cache
def bounded_session() -> httpx.AsyncClient:
    """One client for the process. It keeps no connection, so any event loop may use it."""
    return httpx.AsyncClient(
        event_hooks={"response": [_bound]},
        headers={"Accept-Encoding": "identity"},
        limits=httpx.Limits(max_keepalive_connections=0),
        follow_redirects=True,
    )
