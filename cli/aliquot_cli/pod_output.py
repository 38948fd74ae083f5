"""What a pod prints, byte for byte."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import BinaryIO

import msgspec

from aliquot_cli.cluster import is_embedded
from aliquot_cli.handing_out import written_down
from aliquot_core.clock import Clock
from aliquot_kube.errors import ForbiddenError, InvalidError, NotFoundError, ServerTroubleError, UnreachableError
from aliquot_kube.questions import PieceTransport, Question, Timeouts, Transport
from aliquot_kube.resources import PODS

# A program may print nothing for days, and the answer begins with its first byte.
_PATIENT = Timeouts(silence=1e7, total=1e7)
_AGAIN_S = 1.0


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of which container's log is wanted."""

    namespace: str
    pod: str
    container: str = ""
    follow: bool = False
    previous: bool = False
    tail: int | None = None
    # From which byte on: `aliquot up` alone can be asked so.
    since: int = 0

    def question(self) -> Question:
        """As the API server is asked."""
        said = {
            "container": self.container,
            "follow": "true" if self.follow else "",
            "previous": "true" if self.previous else "",
            "tailLines": "" if self.tail is None else str(self.tail),
            "fromByte": str(self.since or ""),
        }
        query = {name: value for name, value in said.items() if value}
        path = PODS.path(namespace=self.namespace, name=self.pod, subresource="log")
        return Question(method="GET", path=path, query=query, timeouts=_PATIENT if self.follow else Timeouts())


async def pieces(transport: PieceTransport, log: Log) -> AsyncIterator[bytes]:
    """The log as it is, or as it comes."""
    async with transport.pieces(log.question()) as found:
        async for piece in found:
            yield piece


async def print_all(
    transport: PieceTransport, log: Log, *, write: Callable[[bytes], None], clock: Clock, there: Callable[[], bool]
) -> str:
    """Print a log from its beginning to its end; one that breaks off is gone on with while the pod is `there`.

    Says why there is none; that the pod is gone is told by the pod itself.
    """
    printed = 0
    while True:
        try:
            wanted, skip = await _rest_of(log, printed, transport=transport)
            async with aclosing(_after(pieces(transport, wanted), skip)) as rest:
                async for piece in rest:
                    write(piece)
                    printed += len(piece)
        except (UnreachableError, ServerTroubleError):
            if not there():
                raise
            await clock.sleep(_AGAIN_S)
        except NotFoundError:
            return ""
        except (ForbiddenError, InvalidError) as error:
            return error.what
        else:
            return ""


async def _rest_of(log: Log, printed: int, *, transport: Transport) -> tuple[Log, int]:
    """What to ask for when so much is printed, and how much of the answer is known."""
    if not printed or log.tail is not None:
        # Lines count from the end, which has moved on meanwhile: rather a line twice than none.
        return log, 0
    if await is_embedded(transport):
        # The beginning of the log may be gone by now, so that what is known can't be told by counting from there.
        return msgspec.structs.replace(log, since=printed), 0
    return log, printed


async def _after(pieces: AsyncIterator[bytes], skip: int) -> AsyncGenerator[bytes]:
    async for piece in pieces:
        rest = piece[skip:]
        skip = max(0, skip - len(piece))
        if rest:
            yield rest


def writer_to(stream: BinaryIO) -> Callable[[bytes], None]:
    """Print at once: somebody looks on."""

    def write(piece: bytes) -> None:
        with written_down():
            stream.write(piece)
            stream.flush()

    return write
