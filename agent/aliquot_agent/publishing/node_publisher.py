"""Keeps the node's object saying what the node has: the shell round `publishing`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from aliquot_agent.publishing.node_object import patches
from aliquot_agent.signal import Signal
from aliquot_core.backoff import Backoff, Random
from aliquot_core.clock import Clock
from aliquot_core.held_on_sick import Held
from aliquot_core.inventory import Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Node
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import NODES

log = logging.getLogger(__name__)

# The signal tells of every change; this is for a change that was lost with a failed write.
LOOK_AGAIN = 30.0
BACKOFF = Backoff(first=0.5, longest=30.0)


class NodePublisher:
    """One node's object, reconciled."""

    def __init__(
        self,
        *,
        node: str,
        names: Names,
        client: KubeClient,
        clock: Clock,
        random: Random,
        seen: Callable[[], Node | None],
        inventory: Callable[[], Inventory],
        held: Callable[[Inventory], Mapping[str, Held] | None],
        changed: Signal,
    ) -> None:
        """`held` is what pods hold on sick GPUs; None before it is known which pods there are."""
        self._node = node
        self._names = names
        self._client = client
        self._clock = clock
        self._random = random
        self._seen = seen
        self._inventory = inventory
        self._held = held
        self._changed = changed

    async def run(self) -> None:
        """Reconcile whenever something changed, until cancelled."""
        failures = 0
        while True:
            seen = self._changed.count
            try:
                await self._reconcile()
                failures = 0
            except ApiError as error:
                failures += 1
                log.warning("the node's object could not be written", extra={"error": str(error)})
            wait = BACKOFF.delay(failures=failures, random=self._random) if failures else LOOK_AGAIN
            if failures:
                await self._clock.sleep(wait)
            else:
                await self._changed.wait(clock=self._clock, at_most=wait, since=seen)

    async def _reconcile(self) -> None:
        node = self._seen()
        if node is None:
            return
        inventory = self._inventory()
        wanted = patches(node, inventory=inventory, names=self._names, held=self._held(inventory))
        if wanted.metadata is not None:
            await self._write(wanted.metadata, subresource="")
        if wanted.status is not None:
            await self._write(wanted.status, subresource="status")

    async def _write(self, change: dict[str, Any], *, subresource: str) -> None:
        await self._client.patch(NODES, name=self._node, patch=merge_patch(change), subresource=subresource)
        log.info("node written", extra={"part": subresource or "metadata", "names": sorted(_names_in(change))})


def _names_in(change: dict[str, Any]) -> set[str]:
    """The annotations, labels and resources that a patch sets."""
    return {name for part in change.values() for fields in part.values() for name in fields}
