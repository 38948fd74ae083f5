"""The real side of `UsageSource`: addresses of metrics, asked every few seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

import aiohttp

from aliquot_core.clock import Clock
from aliquot_scheduler.page.past import Pasts
from aliquot_scheduler.page.usage import Usage, node_of, read_usage

log = logging.getLogger(__name__)

# A page of a thousand GPUs with five slices each has 3 MB.
_LARGEST = 32 * 1024 * 1024
_PATIENCE = aiohttp.ClientTimeout(total=4.0)
# What was heard longer ago is not told any more.
_OLD = 4


class ScrapedUsage:
    """What the pages said last; `run` asks them."""

    def __init__(self, *, addresses: Sequence[str], every: float, clock: Clock) -> None:
        self._addresses = addresses
        self._every = every
        self._clock = clock
        self._texts: dict[str, str] = {}
        self._failing: set[str] = set()
        # Whose page it was when it answered last; empty where it is of several, or has never answered.
        self._nodes: dict[str, str] = {}
        self._usage = Usage()
        self._pasts = Pasts()
        self._until = float("-inf")

    def latest(self) -> Usage:
        """What is known now; nothing where all of it is old."""
        return self._usage if self._clock.monotonic() < self._until else Usage()

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        if not self._addresses:
            return
        async with aiohttp.ClientSession(timeout=_PATIENCE) as session:
            while True:
                await asyncio.gather(*(self._ask(session, address) for address in self._addresses))
                if self._texts:
                    self._usage = await asyncio.to_thread(self._read, dict(self._texts), at=self._clock.wall())
                    self._until = self._clock.monotonic() + _OLD * self._every
                await self._clock.sleep(self._every)

    def _read(self, texts: Mapping[str, str], *, at: float) -> Usage:
        return self._pasts.with_past(read_usage(texts, at=at))

    async def _ask(self, session: aiohttp.ClientSession, address: str) -> None:
        try:
            async with session.get(address, allow_redirects=False) as answer:
                answer.raise_for_status()
                text = self._texts[address] = await _text(answer)
                self._nodes[address] = node_of(text)
        except (aiohttp.ClientError, TimeoutError) as error:
            self._texts.pop(address, None)
            if address not in self._failing:
                # Of a time that ran out there is no other word.
                why = {"error": str(error) or type(error).__name__, "node": self._nodes.get(address, "")}
                log.warning("what is used is not told", extra={"address": address, **why})
            self._failing.add(address)
        else:
            self._failing.discard(address)


async def _text(answer: aiohttp.ClientResponse) -> str:
    found = bytearray()
    async for chunk in answer.content.iter_any():
        found += chunk
        if len(found) > _LARGEST:
            raise aiohttp.ClientPayloadError(f"more than {_LARGEST} bytes")
    return found.decode("utf-8", "replace")
