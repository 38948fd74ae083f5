"""Whether the API server answers, for commands that wait: told once, told again when it is back, given up in time.

Theory of operation. What follows the cluster asks again by itself after a failure, for ever, as daemons must. A command
has somebody who waits: `PatientTransport` stands between the two, notes what comes of each question in a `Contact`, and
has the command given up once nobody has answered for as long as `PATIENCE`, or at once where the `aliquot up` that it
asks has ended. What must always hold: a question that is the first to fail is told of by whoever asked it alone (most
commands ask once, and end); only a question after that is a trying again, which is told once for each absence.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_kube.errors import ApiError, GarbledError, ServerTroubleError, UnauthorizedError, UnreachableError
from aliquot_kube.questions import PieceTransport, Question, Response

# An API server that is replaced is back by then.
PATIENCE = 30.0
# As Kubernetes writes them: 299, who says it, and what, quoted.
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_MUTE = (UnreachableError, GarbledError, UnauthorizedError)
_ABSENT = (*_MUTE, ServerTroubleError)


class LostServerError(ClusterError):
    """The API server is gone for good, as far as a command can wait."""


class Contact:
    """What has become of the questions so far. Pure."""

    def __init__(self) -> None:
        self._why = ""
        self._since: float | None = None
        self._told = False

    def asks(self) -> str:
        """What to tell now that somebody asks."""
        if self._since is None or self._told:
            return ""
        self._told = True
        return f"the API server does not answer ({self._why}); trying again for {PATIENCE:g} s"

    def answered(self) -> str:
        """What to tell now that it has answered."""
        told, self._told, self._since = self._told, False, None
        return "the API server answers again" if told else ""

    def failed(self, why: str, *, now: float) -> float:
        """When to give up, now that it has not."""
        if self._since is None:
            self._since, self._why = now, why
        return self._since + PATIENCE


class PatientTransport:
    """Asks through another one."""

    def __init__(
        self,
        inner: PieceTransport,
        *,
        clock: Clock,
        say: Callable[[str], None],
        has_ended: Callable[[], bool],
        give_up: Callable[[float | None], None],
    ) -> None:
        """`has_ended`: it will never answer again; `give_up` is told in how many seconds to do so, None for never."""
        self._inner = inner
        self._clock = clock
        self._say = say
        self._has_ended = has_ended
        self._give_up = give_up
        self._contact = Contact()
        self._warned: set[str] = set()

    async def request(self, question: Question) -> Response:
        """Ask and get the whole answer."""
        with self._noted(_ABSENT):
            answer = await self._inner.request(question)
            self._answered()
            if question.method == "GET":
                self._warn(answer.headers.get("warning", ""))
            return answer

    @asynccontextmanager
    async def stream(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """Ask and get the answer line by line."""
        async with self._through(self._inner.stream(question), _ABSENT) as lines:
            yield lines

    @asynccontextmanager
    async def pieces(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """The same as it comes; a log that can't be read now is a node's trouble, not the server's."""
        async with self._through(self._inner.pieces(question), _MUTE) as pieces:
            yield pieces

    async def close(self) -> None:
        """Cut all that is under way."""
        await self._inner.close()

    @asynccontextmanager
    async def _through(
        self, asked: AbstractAsyncContextManager[AsyncIterator[bytes]], absent: tuple[type[ApiError], ...]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        with self._noted(absent):
            async with asked as answer:
                self._answered()
                yield answer

    @contextmanager
    def _noted(self, absent: tuple[type[ApiError], ...]) -> Iterator[None]:
        self._tell(self._contact.asks())
        try:
            yield
        except absent as error:
            now = self._clock.monotonic()
            until = self._contact.failed(error.what, now=now)
            self._give_up(0.0 if self._has_ended() else max(0.0, until - now))
            raise
        except ApiError:
            self._answered()
            raise

    def _answered(self) -> None:
        self._tell(self._contact.answered())
        self._give_up(None)

    def _warn(self, header: str) -> None:
        """Hand on what the server would have every reader know, once; of writes whoever made them is told."""
        for warning in _WARNING.findall(header):
            if warning not in self._warned:
                self._warned.add(warning)
                self._say(re.sub(r"\\(.)", r"\1", warning))

    def _tell(self, text: str) -> None:
        if text:
            self._say(text)
