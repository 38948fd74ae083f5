"""Bodies of requests: read up to a size and for so long, and no further."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from aiohttp import web


class BodyTooLargeError(Exception):
    """There is more than was allowed."""

    def __init__(self, beginning: bytes) -> None:
        super().__init__("too large")
        # As much as was allowed, or a little more.
        self.beginning = beginning


class BodyCutError(Exception):
    """It did not come whole: its sender is gone, too slow, or can't count."""


async def read_body(request: web.Request, *, largest: int, patience: float) -> bytes:
    """The whole body; an error of this module where it does not come.

    The application's own limit is one for all its addresses, so it is not asked.
    """
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(patience):
            while chunk := await request.content.readany():
                size += len(chunk)
                chunks.append(chunk)
                if size > largest:
                    raise BodyTooLargeError(b"".join(chunks))
    except TimeoutError:
        raise BodyCutError(f"the body did not come within {patience:g} s") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise BodyCutError(f"the body was cut: {error}") from None
    return b"".join(chunks)


def json_answer(body: bytes) -> web.Response:
    """A good answer."""
    return web.Response(body=body, content_type="application/json")


def problem(status: HTTPStatus, why: str) -> web.Response:
    """A refusal by HTTP's own means, with a sentence for whoever looks."""
    return web.json_response({"error": why}, status=status)
