"""The small kubelet itself, put together from its parts.

How it works. At the start it reads its checkpoint and its memory of processes, opens its sockets, gives plugins a
second to register, and only then takes the first list of pods (`Roster`); those of them that ask for what an earlier
kubelet's plugins offered wait for these to come back (`Returning`), as long as the settings allow. Each pod is admitted
once (plugins give it devices; a refusal fails it for good) and then belongs to a `PodWorker`. A kubelet that is stopped
leaves its processes running; the next one on the same folder finds them again. Pods gone from the API server meanwhile
are ended.

What must always hold: a pod is admitted before any of its containers starts; devices are free when the pod has ended
or is gone from the API server, and not before.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aliquot_agent.whole_file import replace_file
from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError
from aliquot_core.objects import Node, Pod
from aliquot_standalone.kubelet import checkpoint, nodestatus
from aliquot_standalone.kubelet.admission import Admission
from aliquot_standalone.kubelet.choosing import Device, Options, Order
from aliquot_standalone.kubelet.containers import LocalProcesses, Runtime
from aliquot_standalone.kubelet.devices import Affinity, DeviceTable
from aliquot_standalone.kubelet.doors import PodSource, StatusSink
from aliquot_standalone.kubelet.holdings import Holding
from aliquot_standalone.kubelet.lifecycle import Process
from aliquot_standalone.kubelet.log_limits import LogKeeper
from aliquot_standalone.kubelet.memory import Memories
from aliquot_standalone.kubelet.plugins import Plugins
from aliquot_standalone.kubelet.podresources import PodResources
from aliquot_standalone.kubelet.registry import Registry
from aliquot_standalone.kubelet.reporter import Reporter
from aliquot_standalone.kubelet.returning import Returning
from aliquot_standalone.kubelet.roster import Roster
from aliquot_standalone.kubelet.settings import Folders, Settings
from aliquot_standalone.kubelet.starter import Starter

log = logging.getLogger(__name__)


class SmallKubelet:
    """One node."""

    def __init__(
        self,
        *,
        name: str,
        folders: Folders,
        source: PodSource,
        sink: StatusSink,
        clock: Clock,
        settings: Settings | None = None,
        runtime: Runtime | None = None,
        capacity: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        taint: str = "",
        base_env: Mapping[str, str] | None = None,
        order: Order = sorted,
        affinity: Affinity | None = None,
        warn: Callable[[Pod, str], None] = lambda _pod, _why: None,
    ) -> None:
        """`warn` tells people why a container of a pod was not started; the pod's status says so in any case."""
        self.name = name
        self.clock = clock
        self.settings = settings or Settings()
        # Set once the sockets are there: plugins that listen directly in the folder must come after that.
        self.serving = asyncio.Event()
        self.folders = folders
        self.runtime: Runtime = runtime or LocalProcesses()
        self.memories = Memories(folders.containers)
        self.table = DeviceTable(grace=self.settings.plugin_grace, order=order)
        self.plugins = Plugins(folders=folders, settings=self.settings, events=self)
        self._source = source
        self._sink = sink
        self._warn = warn
        self._capacity = dict(capacity or machine_capacity())
        self._labels, self._taint = dict(labels or {}), taint
        self._admission = Admission(table=self.table, plugins=self.plugins, save=self._save, affinity=affinity)
        self._reporter = Reporter(sink=sink, clock=clock)
        self._registry = Registry(
            folder=folders.plugins_registry, connector=self.plugins, clock=clock, settings=self.settings
        )
        self._pod_resources = PodResources(folders=folders, settings=self.settings, view=self, clock=clock)
        self._starter = self._new_starter(base_env)
        self._returning = Returning(table=self.table, clock=clock, patience=self.settings.plugin_patience)
        self._roster = self._new_roster()
        self._logs = self._new_log_keeper()
        self._saved = True
        self._fresh = True
        self._ready_since = clock.wall()
        self._allocatable: dict[str, str] = {}

    # --- parts that take much to put together ----------------------------------------------------------------------
    def _new_starter(self, base_env: Mapping[str, str] | None) -> Starter:
        return Starter(
            folders=self.folders,
            table=self.table,
            plugins=self.plugins,
            admission=self._admission,
            runtime=self.runtime,
            memories=self.memories,
            base_env=base_env if base_env is not None else {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/"},
        )

    def _new_roster(self) -> Roster:
        return Roster(
            house=self,
            folders=self.folders,
            table=self.table,
            admission=self._admission,
            reporter=self._reporter,
            returning=self._returning,
            allocatable=lambda: self._allocatable,
        )

    def _new_log_keeper(self) -> LogKeeper:
        return LogKeeper(
            folder=self.folders.logs,
            written=self._roster.logs_written,
            clock=self.clock,
            most=self.settings.log_most,
            look=self.settings.log_look,
            look_soon=self.settings.log_look_soon,
        )

    # --- running ---------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Serve until cancelled; processes go on without us then."""
        self.folders.create()
        self._restore()
        try:
            await self.plugins.start()
            await self._pod_resources.start()
            self.serving.set()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._registry.run(), name="plugin registry")
                tasks.create_task(self._reporter.run(), name="pod statuses")
                tasks.create_task(self._tell_node(), name="node status")
                tasks.create_task(self._logs.run(), name="logs")
                await self.clock.sleep(self.settings.settle)
                tasks.create_task(self._roster.run(self._source), name="pods")
        finally:
            await self._pod_resources.stop()
            await self.plugins.stop()

    def _restore(self) -> None:
        saved = checkpoint.read(self.folders.checkpoint)
        self._fresh = not self.folders.checkpoint.exists()
        if saved:
            for key, holding in saved.holdings.items():
                self.table.holdings.record(key, holding)
            self.table.remembered(saved.registered, now=self.clock.monotonic())

    def _save(self) -> None:
        content = checkpoint.encode(self.table.holdings, self.table.registered())
        try:
            replace_file(self.folders.checkpoint, content)
        except OSError as error:
            # Tried again with the node's next status; until then a pod of ours is found by its process.
            log.warning("the device table could not be written", extra={"node": self.name, "why": str(error)})
            self._saved = False
        else:
            self._saved = True

    # --- what plugins do -------------------------------------------------------------------------------------------
    def plugin_connected(self, resource: str, options: Options) -> None:
        """A plugin has registered and was reached."""
        self.table.connected(resource, options)

    def plugin_listed(self, resource: str, devices: list[Device]) -> None:
        """A plugin tells all its devices."""
        self.table.listed(resource, devices)
        self._returning.look()
        self._save()
        self._roster.report_all_again()

    def plugin_gone(self, resource: str) -> None:
        """A plugin's stream has ended."""
        log.warning("plugin gone", extra={"resource": resource})
        self.table.gone(resource, now=self.clock.monotonic())

    # --- what PodResources tells -----------------------------------------------------------------------------------
    def active_pods(self) -> list[Pod]:
        """Pods that have not ended, the one being admitted among them."""
        return self._roster.active()

    def holdings_of(self, pod_uid: str, container: str) -> dict[str, Holding]:
        """What a container holds, by resource."""
        return self.table.holdings.of(pod_uid, container)

    def healthy_devices(self) -> dict[str, list[Device]]:
        """All devices that could be given out if nobody held any."""
        return self.table.healthy_devices()

    # --- what a pod's worker needs ---------------------------------------------------------------------------------
    async def start_container(self, pod: Pod, container: str, start: int) -> Process:
        """Ask the plugins, then start the process."""
        return await self._starter.start(pod, container, start)

    def find_container(self, pod: Pod, container: str, start: int) -> Process | None:
        """The process of a start that was under way when an earlier kubelet ended, if it came to be."""
        return self.runtime.find(self._starter.process_id(pod, container, start))

    def devices_of(self, pod: Pod, container: str) -> Mapping[str, Sequence[tuple[str, bool]]]:
        """The container's device ids and whether each is healthy."""
        held = self.holdings_of(pod.metadata.uid, container)
        return {
            resource: [(one, self.table.is_healthy(resource, one)) for one in sorted(holding.ids)]
            for resource, holding in held.items()
        }

    def report(self, pod: Pod, status: dict[str, Any], *, remove: bool) -> None:
        """Have the status written."""
        self._roster.report(pod, status, remove=remove)

    def warn(self, pod: Pod, why: str) -> None:
        """Tell whoever looks at the pod why a container of it was not started."""
        self._warn(pod, why)

    # --- the node --------------------------------------------------------------------------------------------------
    async def _tell_node(self) -> None:
        while True:
            if not self._saved:
                self._save()
            try:
                await self._tell_node_once()
            except AliquotError as error:
                log.warning("node status not written", extra={"node": self.name, "why": str(error)})
            await self.clock.sleep(self.settings.node_status_every)

    async def _tell_node_once(self) -> None:
        node = await self._sink.read_node(self.name)
        if node is None:
            node = Node()
            await self._sink.create_node(nodestatus.node_object(self.name, self._labels, taint=self._taint))
        status = nodestatus.node_status(
            node,
            self.table.totals(now=self.clock.monotonic()),
            own=self._capacity,
            ready_since=self._ready_since,
            now=self.clock.wall(),
            reset=self._fresh,
        )
        await self._sink.write_node_status(self.name, status)
        self._fresh = False
        self._allocatable = status["allocatable"]


def machine_capacity() -> dict[str, str]:
    """What this machine has, as a node's capacity."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": str(os.cpu_count() or 1), "memory": str(memory), "pods": "110"}
