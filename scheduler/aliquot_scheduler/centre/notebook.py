"""The one ConfigMap in which a leader puts down for the next what no other object is for, page by page."""

from __future__ import annotations

import logging

from aliquot_core.names import MIX
from aliquot_core.objects import ConfigMap, ObjectMeta
from aliquot_kube.errors import ApiError, NotFoundError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import CONFIG_MAPS
from aliquot_scheduler.centre.means import Means

log = logging.getLogger(__name__)

# An API server that fails for this alone must not keep the centre from its work.
_TRIES = 5
_BETWEEN = 1.0


class Notebook:
    """Its pages, by their keys; each is written by one clerk."""

    def __init__(self, *, means: Means) -> None:
        self._client = means.client
        self._clock = means.clock
        self._where = ObjectMeta(namespace=means.names.namespace, name=MIX)

    async def read(self, key: str) -> str | None:
        """A page, empty where there is none; None if that can't be known."""
        for remaining in reversed(range(_TRIES)):
            try:
                found = await self._client.get(CONFIG_MAPS, name=MIX, namespace=self._where.namespace)
            except NotFoundError:
                return ""
            except ApiError as error:
                more = {"page": key, "error": str(error), "tries": remaining}
                log.warning("what the leader before kept could not be read", extra=more)
                if remaining:
                    await self._clock.sleep(_BETWEEN)
            else:
                return found.data.get(key, "")
        return None

    async def write(self, key: str, text: str) -> None:
        """Put a page down; the others stay."""
        data = {key: text}
        try:
            await self._client.patch(
                CONFIG_MAPS, name=MIX, namespace=self._where.namespace, patch=merge_patch({"data": data})
            )
        except NotFoundError:
            await self._client.create(CONFIG_MAPS, ConfigMap(metadata=self._where, data=data))
