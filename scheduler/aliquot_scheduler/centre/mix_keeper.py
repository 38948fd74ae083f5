"""What the leader has learnt of requests is kept in a ConfigMap: the next leader goes on from there.

Written at most once a minute, and only when something was learnt. What can't be read costs no more than learning
anew: pods that are there are counted all the same.
"""

from __future__ import annotations

import logging

from aliquot_core.names import MIX, MIX_KEY
from aliquot_core.objects import ConfigMap, ObjectMeta
from aliquot_kube.errors import ApiError, NotFoundError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import CONFIG_MAPS
from aliquot_scheduler.centre.means import NOT_WRITTEN, Means
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.worth.page import MixPageError, Page, decode_page, encode_page

log = logging.getLogger(__name__)

_EVERY = 60.0
# An API server that fails for this alone must not keep the centre from its work.
_TRIES = 5
_BETWEEN = 1.0


class MixKeeper:
    """Keeps the book of an appraiser."""

    def __init__(self, *, appraiser: Appraiser, means: Means) -> None:
        self._appraiser = appraiser
        self._client = means.client
        self._clock = means.clock
        self._where = ObjectMeta(namespace=means.names.namespace, name=MIX)
        self._kept = encode_page(Page())

    async def recall(self) -> None:
        """Let the appraiser know what was learnt before, if that can be read."""
        text = await self._read()
        if text is None:
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
                await self._write(text)
            except NOT_WRITTEN as error:
                log.warning("the mix of requests could not be written", extra={"error": str(error)})
            else:
                self._kept = text

    async def _read(self) -> str | None:
        for remaining in reversed(range(_TRIES)):
            try:
                found = await self._client.get(CONFIG_MAPS, name=MIX, namespace=self._where.namespace)
            except NotFoundError:
                return None
            except ApiError as error:
                log.warning("the mix of requests could not be read", extra={"error": str(error), "tries": remaining})
                if remaining:
                    await self._clock.sleep(_BETWEEN)
            else:
                return found.data.get(MIX_KEY)
        return None

    async def _write(self, text: str) -> None:
        data = {MIX_KEY: text}
        try:
            await self._client.patch(
                CONFIG_MAPS, name=MIX, namespace=self._where.namespace, patch=merge_patch({"data": data})
            )
        except NotFoundError:
            await self._client.create(CONFIG_MAPS, ConfigMap(metadata=self._where, data=data))
