"""What the leader has learnt of requests is kept in a ConfigMap: the next leader goes on from there.

Written at most once a minute, and only when something was learnt. What can't be read costs no more than learning
anew: pods that are there are counted all the same.
"""

from __future__ import annotations

import logging

from aliquot_core.clock import Clock
from aliquot_core.names import MIX, MIX_KEY
from aliquot_scheduler.centre.means import NOT_WRITTEN
from aliquot_scheduler.centre.notebook import Notebook
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.worth.page import MixPageError, Page, decode_page, encode_page

log = logging.getLogger(__name__)

_EVERY = 60.0


class MixKeeper:
    """Keeps the book of an appraiser."""

    def __init__(self, *, appraiser: Appraiser, notebook: Notebook, clock: Clock) -> None:
        self._appraiser = appraiser
        self._notebook = notebook
        self._clock = clock
        self._kept = encode_page(Page())

    async def recall(self) -> None:
        """Let the appraiser know what was learnt before, if that can be read."""
        text = await self._notebook.read(MIX_KEY)
        if not text:
            return
        try:
            page = decode_page(text, now=self._clock.wall())
        except MixPageError as error:
            log.warning("%s", error, extra={"config_map": MIX})
            return
        self._kept = text
        self._appraiser.recall(page)
        log.info("the mix of requests was read", extra={"requests": page.requests, "shapes": len(page.counts)})

    async def run(self) -> None:
        """Write what has changed, until cancelled."""
        while True:
            await self._clock.sleep(_EVERY)
            text = encode_page(self._appraiser.book.page())
            if text == self._kept:
                continue
            try:
                await self._notebook.write(MIX_KEY, text)
            except NOT_WRITTEN as error:
                log.warning("the mix of requests could not be written", extra={"error": str(error)})
            else:
                self._kept = text
