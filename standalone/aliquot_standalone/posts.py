"""What webhooks and the extender are asked by, some questions for every pod: POSTs over connections that stay."""

from __future__ import annotations

import asyncio
import ssl

import msgspec

from aliquot_kube.errors import ApiError, GarbledError, UnreachableError
from aliquot_kube.on_loop import LoopTransport, Way
from aliquot_kube.questions import Question, Timeouts

# As many as this are under way at once; who comes then waits, within his own time.
_AT_ONCE = 100


class PostError(Exception):
    """There was no answer, or none that is of use."""


class NobodyListensError(PostError):
    """Nobody has been asked anything yet: to ask again can do no harm."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is, and by what name it must show itself."""

    host: str
    port: int
    server_name: str = ""


class Poster(LoopTransport):
    """Asks one server."""

    def __init__(self, place: Place, *, trust: ssl.SSLContext | None) -> None:
        """Without trust it is asked in clear."""
        super().__init__()
        host = f"[{place.host}]" if ":" in place.host else place.host
        headers = f"Host: {host}:{place.port}\r\nAccept: application/json\r\n"
        self._way = Way(
            host=place.host, port=place.port, prefix="", headers=headers, tls=trust, server_name=place.server_name
        )
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def way(self) -> Way:
        """Always the same."""
        return self._way

    async def post(self, path: str, body: bytes, *, timeout: float, most: int) -> bytes:  # noqa: ASYNC109 - it is the webhook's own, as its configuration says
        """Ask; raises `TimeoutError`, or `PostError` where there is no good answer, or one longer than `most`."""
        # The time that is given is for all of it together.
        times = Timeouts(connect=timeout + 1, silence=timeout + 1, total=timeout + 1)
        question = Question(method="POST", path=path, body=body, content_type="application/json", timeouts=times)
        answer = bytearray()
        try:
            async with asyncio.timeout(timeout), self._slots, self.pieces(question) as pieces:
                async for piece in pieces:
                    answer += piece
                    if len(answer) > most:
                        raise PostError("the answer is too long")
        except (UnreachableError, GarbledError) as error:
            refused = isinstance(error.__cause__, ConnectionRefusedError)
            raise (NobodyListensError if refused else PostError)(error.what) from error
        except ApiError as error:
            raise PostError(f"the server answered {error.status}: {error.what}") from error
        return bytes(answer)
