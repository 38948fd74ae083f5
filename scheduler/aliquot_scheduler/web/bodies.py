"""Bodies of requests: read up to a size and for so long, all together into so much room, and no further.

Whoever sends a body need not be known: without a common bound 320 bodies of 3 MiB, held open, took 1.2 GiB (measured),
more than the container may have. The small ones, nearly all, need no common room: how many connections there are is
bounded elsewhere, and so nobody who fills the room keeps usual pods from being asked about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

from aiohttp import web

# A pod as people write them has 5 to 20 KiB.
SMALL = 64 * 1024


class BodyTooLargeError(Exception):
    """There is more than was allowed."""

    def __init__(self, beginning: bytes) -> None:
        super().__init__("too large")
        # As much as was allowed, or a little more.
        self.beginning = beginning


class NoRoomError(Exception):
    """Too many large ones are coming at once."""

    def __init__(self) -> None:
        super().__init__("too many large bodies are coming at once; ask again in a few seconds")


class BodyCutError(Exception):
    """It did not come whole: its sender is gone, too slow, or can't count."""


# Told how long a body is by now; may raise.
Grown = Callable[[int], None]


class BodyRoom:
    """What all bodies may take together, beyond the first bytes of each."""

    def __init__(self, most: int = 64 * 1024 * 1024) -> None:
        self._left = most

    @contextmanager
    def taken(self) -> Iterator[Grown]:
        """A part of it for one body, as long as that is needed; `NoRoomError` where it grows too large."""
        held = 0

        def grown(size: int) -> None:
            nonlocal held
            more = max(0, size - SMALL - held)
            if more > self._left:
                raise NoRoomError
            self._left -= more
            held += more

        try:
            yield grown
        finally:
            self._left += held


def _unbounded(_size: int) -> None:
    """Of small ones alone."""


async def read_body(request: web.Request, *, largest: int, patience: float, grown: Grown = _unbounded) -> bytes:
    """The whole body; an error of this module where it does not come.

    The application's own limit is one for all its addresses, so it is not asked.
    """
    # One piece: of two bytes each, a list of pieces would take twenty times as much.
    body = bytearray()
    try:
        async with asyncio.timeout(patience):
            while chunk := await request.content.readany():
                body += chunk
                if len(body) > largest:
                    raise BodyTooLargeError(bytes(body))
                grown(len(body))
    except TimeoutError:
        raise BodyCutError(f"the body did not come within {patience:g} s") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise BodyCutError(f"the body was cut: {error}") from None
    return bytes(body)


def json_answer(body: bytes) -> web.Response:
    """A good answer."""
    return web.Response(body=body, content_type="application/json")


def problem(status: HTTPStatus, why: str) -> web.Response:
    """A refusal by HTTP's own means, with a sentence for whoever looks."""
    return web.json_response({"error": why}, status=status)
