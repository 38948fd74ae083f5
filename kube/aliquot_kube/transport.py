"""The way to the API server: the real side of the narrow door (`Transport`).

The real side is urllib3 on threads, with the official client's configuration. Any `import kubernetes` costs 43 MiB,
with urllib3 in it; aiohttp on top makes 54 (kube/README.md). So blocking sockets on a few threads are what
fits into the agent: requests share a small pool of them, each stream has one, and all can be cut at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aliquot_kube.conveyor import Conveyor
from aliquot_kube.errors import GarbledError, UnreachableError
from aliquot_kube.exchange import Exchange
from aliquot_kube.lines import LineSplitter
from aliquot_kube.questions import Question, Response, Timeouts, Transport

if TYPE_CHECKING:
    from aliquot_kube.credentials import Credentials

__all__ = ["HttpTransport", "Question", "Response", "Timeouts", "Transport"]

# A wedged server holds this many requests; whatever must not wait behind them (a heart-beat) takes its own transport.
_WORKERS = 4


class HttpTransport:
    """The real side."""

    def __init__(self, *, credentials: Credentials, user_agent: str = "aliquot", workers: int = _WORKERS) -> None:
        self._credentials = credentials
        self._user_agent = user_agent
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="kube-request")
        self._streams: set[threading.Thread] = set()
        self._under_way: set[Exchange] = set()

    async def request(self, question: Question) -> Response:
        """Ask and get the whole answer; whatever is no 2xx is raised as an `ApiError`."""
        exchange = self._exchange(question)
        answer = asyncio.get_running_loop().run_in_executor(self._workers, exchange.fetch)
        try:
            async with asyncio.timeout(question.timeouts.total):
                return await answer
        except TimeoutError as error:
            raise _too_late(question) from error
        finally:
            self._under_way.discard(exchange)
            if not answer.done() or answer.cancelled():
                exchange.cut()

    @asynccontextmanager
    async def stream(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """Ask and get the answer line by line; entering raises what is no 2xx, leaving ends it at once."""
        async with self._belt(question) as conveyor:
            lines = lines_from(conveyor, question)
            try:
                yield lines
            finally:
                await lines.aclose()

    @asynccontextmanager
    async def pieces(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """The same as it comes, byte for byte: what a program prints has no lines that must be whole."""
        async with self._belt(question) as conveyor:
            pieces = _pieces_from(conveyor)
            try:
                yield pieces
            finally:
                await pieces.aclose()

    @asynccontextmanager
    async def _belt(self, question: Question) -> AsyncIterator[Conveyor]:
        exchange = self._exchange(question)
        conveyor = Conveyor(asyncio.get_running_loop())
        # Daemons: a thread that is stuck in a connect shall not keep the process from ending.
        thread = threading.Thread(target=exchange.pump, args=[conveyor], name="kube-stream", daemon=True)
        thread.start()
        self._streams = {thread, *(old for old in self._streams if old.is_alive())}
        try:
            await _started(conveyor, question)
            yield conveyor
        finally:
            self._under_way.discard(exchange)
            conveyor.close()
            exchange.cut()

    async def close(self) -> None:
        """Cut all that is under way and wait for the threads."""
        for exchange in self._under_way:
            exchange.cut()
        await asyncio.to_thread(self._join)
        self._credentials.close()

    def _exchange(self, question: Question) -> Exchange:
        exchange = Exchange(credentials=self._credentials, question=question, user_agent=self._user_agent)
        self._under_way.add(exchange)
        return exchange

    def _join(self) -> None:
        self._workers.shutdown(cancel_futures=True)
        for thread in self._streams:
            thread.join()


async def _started(conveyor: Conveyor, question: Question) -> None:
    try:
        async with asyncio.timeout(question.timeouts.total):
            await conveyor.wait_started()
    except TimeoutError as error:
        raise _too_late(question) from error


async def lines_from(conveyor: Conveyor, question: Question) -> AsyncGenerator[bytes]:
    """Give whole lines from what comes over the belt."""
    splitter = LineSplitter()
    while chunks := await conveyor.take():
        for chunk in chunks:
            try:
                lines = splitter.feed(chunk)
            except GarbledError as error:
                raise GarbledError(error.what, where=question.where) from error
            for line in lines:
                yield line
        # A belt that is never empty would keep the loop from everybody else.
        await asyncio.sleep(0)


async def _pieces_from(conveyor: Conveyor) -> AsyncGenerator[bytes]:
    while chunks := await conveyor.take():
        yield b"".join(chunks)


def _too_late(question: Question) -> UnreachableError:
    return UnreachableError(f"no answer within {question.timeouts.total:g} s", where=question.where)
