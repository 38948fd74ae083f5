"""Admission's shell: asks plugins what the device table wants to know, for one pod at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from aliquot_core.objects import Pod
from aliquot_standalone.kubelet.choosing import Allocate, Answer, Prefer
from aliquot_standalone.kubelet.devices import Affinity, DeviceTable
from aliquot_standalone.kubelet.errors import AdmissionError, PluginError
from aliquot_standalone.kubelet.nodestatus import needs_of


class Asker(Protocol):
    """Who puts questions to plugins."""

    async def ask(self, question: Prefer | Allocate) -> Answer:
        """Put a question of the device table to its plugin; a `PluginError` says why there is no answer."""
        ...


class Admission:
    """Gives pods their devices."""

    def __init__(
        self, *, table: DeviceTable, plugins: Asker, save: Callable[[], None], affinity: Affinity | None = None
    ) -> None:
        """`save` is called whenever devices have been given."""
        self._table = table
        self._plugins = plugins
        self._save = save
        self._affinity = affinity
        self._one_at_a_time = asyncio.Lock()

    async def give_devices(self, pod: Pod, *, running: Collection[str] = ()) -> None:
        """Give each container what it asks and does not hold yet; an `AdmissionError` says why that can't be."""
        async with self._one_at_a_time:
            steps = self._table.admit(
                pod=pod.metadata.uid, needs=needs_of(pod), running=running, affinity=self._affinity
            )
            try:
                question = next(steps)
                while True:
                    question = steps.send(await self._plugins.ask(question))
            except StopIteration:
                self._save()
            except PluginError as error:
                raise AdmissionError(str(error), where=pod.key) from error
            finally:
                steps.close()
