"""Removes the specs of pods that are gone from the API server and have no process left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Protocol

from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError

log = logging.getLogger(__name__)


class Collectable(Protocol):
    """Where specs are collected from."""

    def collect(self, *, living_pods: Collection[str]) -> int:
        """Remove the specs of pods that are gone; tell how many."""
        ...


async def collect_specs(
    specs: Collectable, *, clock: Clock, every: float, complete: Callable[[], bool], holders: Callable[[], set[str]]
) -> None:
    """Collect now and then, until cancelled; half blind, nothing is thrown away.

    The kubelet's record is not asked: it keeps a pod that is gone until it admits another.
    """
    while True:
        await clock.sleep(every)
        if not complete():
            continue
        try:
            specs.collect(living_pods=holders())
        except AliquotError as error:
            log.warning("specs could not be collected", extra={"error": str(error)})
