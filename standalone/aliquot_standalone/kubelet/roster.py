"""The pods of the node: who is bound here is admitted once, one after another, and then belongs to a worker.

A pod that needs a plugin which an earlier kubelet knew waits until it is back, since to be admitted without is to fail
for good. Nobody waits with it: all other changes are heard meanwhile, its own deletion too.

A pod is active from the moment it is known until it has ended or was refused; one that the API server has no more is
not active, though its processes may still have their grace. Devices belong to active pods only.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_standalone.kubelet import nodestatus
from aliquot_standalone.kubelet.admission import Admission
from aliquot_standalone.kubelet.devices import DeviceTable
from aliquot_standalone.kubelet.doors import PodSource
from aliquot_standalone.kubelet.errors import AdmissionError
from aliquot_standalone.kubelet.lifecycle import Running
from aliquot_standalone.kubelet.memory import PodMemory
from aliquot_standalone.kubelet.pods import House, PodWorker
from aliquot_standalone.kubelet.reporter import Reporter
from aliquot_standalone.kubelet.returning import Returning
from aliquot_standalone.kubelet.settings import Folders

log = logging.getLogger(__name__)


class Roster:
    """All pods of a node and their workers."""

    def __init__(
        self,
        *,
        house: House,
        folders: Folders,
        table: DeviceTable,
        admission: Admission,
        reporter: Reporter,
        returning: Returning,
        allocatable: Callable[[], Mapping[str, str]],
    ) -> None:
        self._house = house
        self._folders = folders
        self._table = table
        self._admission = admission
        self._reporter = reporter
        self._returning = returning
        self._allocatable = allocatable
        self._pods: dict[str, Pod] = {}
        self._workers: dict[str, PodWorker] = {}
        # Of pods that are not admitted yet.
        self._remembered: dict[str, PodMemory] = {}
        # Who waits for plugins.
        self._late: set[str] = set()
        self._synced = False
        # Changes and whoever waited long enough are taken one after another.
        self._one_at_a_time = asyncio.Lock()
        self._tasks = asyncio.TaskGroup()

    async def run(self, source: PodSource) -> None:
        """Follow the pods for ever; those of an earlier kubelet are found again first."""
        self._remembered = self._house.memories.read_all()
        async with self._tasks:
            async for change in source.changes():
                async with self._one_at_a_time:
                    await self._hear(change)

    async def _hear(self, change: Change[Pod]) -> None:
        if isinstance(change, Added | Modified):
            self._pods[change.new.metadata.uid] = change.new
            if self._synced:
                await self._take(change.new)
        elif isinstance(change, Deleted):
            self._lose(change.old)
        elif not self._synced:
            await self._take_first()

    def active(self) -> list[Pod]:
        """Pods that have not ended, the one being admitted among them."""
        return [pod for uid, pod in self._pods.items() if not self._is_over(uid)]

    def logs_written(self) -> Iterator[Path]:
        """The files that containers print into at this moment."""
        for worker in self._workers.values():
            for container, start in worker.running():
                yield self._folders.log_file(worker.pod, container, start)

    def report_all_again(self) -> None:
        """Something that statuses say has changed, such as a device's health."""
        for worker in self._workers.values():
            worker.report_again()

    def report(self, pod: Pod, status: dict[str, Any], *, remove: bool) -> None:
        """Have a status written, unless the pod is none of the API server's any more."""
        if pod.metadata.uid in self._pods:
            self._reporter.report(pod, status, remove=remove)

    async def _take_first(self) -> None:
        """The whole first list: who runs already is not asked for devices again; who is gone is ended."""
        self._returning.begin()
        for pod in sorted(self._pods.values(), key=_age):
            await self._take(pod)
        for uid in self._remembered.keys() - self._pods:
            self._end_orphan(self._remembered[uid])
        self._synced = True
        self._remembered = {uid: memory for uid, memory in self._remembered.items() if uid in self._late}

    async def _take_late(self) -> None:
        """Admit whoever lacks no plugin any more, the eldest first; when patience is over that is everybody."""
        while self._late:
            await self._returning.news()
            async with self._one_at_a_time:
                for pod in sorted((self._pods[uid] for uid in self._late), key=_age):
                    await self._take(pod)

    def _is_to_wait(self, pod: Pod) -> bool:
        """Whether it needs a plugin to be admitted that is yet to come back."""
        running = _running(self._remembered.get(pod.metadata.uid))
        asked = {name for need in nodestatus.needs_of(pod) if need.container not in running for name in need.resources}
        return pod.metadata.deletion_timestamp is None and bool(self._returning.awaited(asked))

    def _end_orphan(self, memory: PodMemory) -> None:
        orphan = PodWorker(pod=memory.pod_of_that_time(), house=self._house, memory=memory)
        orphan.go(grace=memory.grace, remove=False)
        self._work(orphan)

    async def _take(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        worker = self._workers.get(uid)
        if worker and not worker.over:
            worker.update(pod)
        elif worker or self._is_nothing_to_do(pod):
            self._late.discard(uid)
            if pod.metadata.deletion_timestamp:
                self._reporter.report(pod, None, remove=True)
        elif self._is_to_wait(pod):
            self._wait(uid)
        else:
            await self._admit(pod)

    def _wait(self, uid: str) -> None:
        if not self._late:
            self._tasks.create_task(self._take_late(), name="pods that wait for plugins")
        self._late.add(uid)

    def _is_nothing_to_do(self, pod: Pod) -> bool:
        """Whether nothing of the pod runs here, nor will it."""
        memory = self._remembered.get(pod.metadata.uid)
        if _running(memory):
            return False
        return pod.ended or (pod.metadata.deletion_timestamp is not None and memory is None)

    async def _admit(self, pod: Pod) -> None:
        self._late.discard(pod.metadata.uid)
        memory = self._remembered.pop(pod.metadata.uid, None)
        refused = None
        try:
            await self._give_devices(pod, memory)
            self._check_fit(pod)
        except AdmissionError as error:
            log.warning("pod refused", extra={"pod": pod.key, "reason": error.reason, "why": str(error)})
            refused = error
        self._work(PodWorker(pod=pod, house=self._house, memory=memory, refused=refused))

    async def _give_devices(self, pod: Pod, memory: PodMemory | None) -> None:
        if self._synced:
            self._table.free_all_but([active.metadata.uid for active in self.active()])
        await self._admission.give_devices(pod, running=_running(memory))

    def _check_fit(self, pod: Pod) -> None:
        # Who is yet to be admitted takes nothing: else one that waits for a plugin would have a running pod refused.
        others = [other for other in self.active() if other.metadata.uid in self._workers]
        holdings = self._table.holdings
        held = {resource: len(holdings.in_use(resource)) for resource in holdings.resources()}
        nodestatus.check_fit(pod, others=others, allocatable=self._allocatable(), held=held)

    def _work(self, worker: PodWorker) -> None:
        self._workers[worker.pod.metadata.uid] = worker
        worker.update(worker.pod)
        self._tasks.create_task(self._see_through(worker), name=f"pod {worker.pod.key}")

    async def _see_through(self, worker: PodWorker) -> None:
        await worker.run()
        if worker.pod.metadata.uid not in self._pods:
            self._forget(worker.pod)

    def _lose(self, pod: Pod) -> None:
        """The API server has it no more: its devices are free at once, its processes end within their grace."""
        uid = pod.metadata.uid
        self._pods.pop(uid, None)
        self._late.discard(uid)
        worker = self._workers.get(uid)
        if worker and not worker.over:
            worker.go(grace=worker.grace, remove=False)
        elif self._synced and (memory := self._remembered.pop(uid, None)):
            self._end_orphan(memory)
        else:
            self._forget(pod)

    def _forget(self, pod: Pod) -> None:
        self._workers.pop(pod.metadata.uid, None)
        self._reporter.forget(pod.metadata.uid)
        self._house.memories.forget(pod.metadata.uid)
        shutil.rmtree(self._folders.pod_logs(pod), ignore_errors=True)

    def _is_over(self, uid: str) -> bool:
        worker = self._workers.get(uid)
        # One that was refused has ended in its status already, whatever it still has to clear away.
        return worker.over or worker.refused is not None if worker else self._pods[uid].ended


def _age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.key


def _running(memory: PodMemory | None) -> list[str]:
    """Containers that ran when the earlier kubelet wrote this."""
    return [name for name, life in memory.lives.items() if isinstance(life.state, Running)] if memory else []
