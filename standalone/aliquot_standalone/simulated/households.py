"""The pods of one simulated node: admitted and run by the small kubelet's own parts, their containers played."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aliquot_agent.gpus.simulated import SimulatedDriver, SimulationError
from aliquot_core.clock import Clock
from aliquot_core.grant import Slice
from aliquot_core.instants import seconds_of
from aliquot_core.objects import Container, ContainerStatus, Pod
from aliquot_standalone.kubelet.containers import Runtime
from aliquot_standalone.kubelet.errors import AdmissionError, StartError
from aliquot_standalone.kubelet.lifecycle import Life, Process, Running, is_sidecar
from aliquot_standalone.kubelet.memory import Memories, PodMemory
from aliquot_standalone.kubelet.pods import PodWorker
from aliquot_standalone.kubelet.reporter import Reporter
from aliquot_standalone.kubelet.settings import Settings
from aliquot_standalone.scheduling.amounts import ONE, Amounts, asked_by, read
from aliquot_standalone.simulated.admitting import Gate
from aliquot_standalone.simulated.loads import Load, LoadError, SimNames, load_of
from aliquot_standalone.simulated.owners import Owner
from aliquot_standalone.simulated.processes import PlayedProcesses

log = logging.getLogger(__name__)

_WHOLE = 100


class _NoMemories(Memories):
    """Nothing to find again: what is played ends with us, and is taken up from the pod's own status."""

    def __init__(self) -> None:
        super().__init__(Path())

    def write(self, memory: PodMemory) -> None:
        """Keep nothing."""


class Household:
    """All pods of one node; it is what their workers need of one."""

    def __init__(
        self,
        *,
        clock: Clock,
        gate: Gate,
        names: SimNames,
        driver: SimulatedDriver,
        allocatable: Callable[[], Mapping[str, str]],
        reporter: Reporter,
    ) -> None:
        self.clock = clock
        self.settings = Settings()
        self.memories: Memories = _NoMemories()
        self.played = PlayedProcesses(clock=clock)
        self.runtime: Runtime = self.played
        self._gate = gate
        self._names = names
        self._driver = driver
        self._allocatable = allocatable
        self._reporter = reporter
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, Amounts] = {}
        # Of each container that runs: its number, its slices, and whose it is.
        self._slices: dict[str, tuple[int, tuple[Slice, ...], Owner]] = {}
        self.played.ended = self._ended

    # --- what the node tells -----------------------------------------------------------------------------------------
    def changed(self, pod: Pod) -> None:
        """Take in a pod that is bound here, as it is now."""
        uid = pod.metadata.uid
        worker = self._workers.get(uid)
        if worker is not None and not worker.over:
            self._gate.admit(pod)
            worker.update(pod)
        elif worker is not None or pod.ended:
            self._bury(pod)
        else:
            self._move_in(pod)

    def gone(self, pod: Pod) -> None:
        """The pod's object is gone: nothing of it stays."""
        uid = pod.metadata.uid
        self._workers.pop(uid, None)
        if task := self._tasks.pop(uid, None):
            task.cancel()
        for name in [name for name in self._slices if name.startswith(f"{uid}/")]:
            self._ended(name)
        self._gate.forget(uid)
        self._reporter.forget(uid)

    def break_on(self, gpu: str) -> None:
        """Let all containers crash that use a GPU."""
        for name, (_, slices, _) in list(self._slices.items()):
            if any(part.gpu == gpu for part in slices):
                self.played.crash(name)

    def owners(self) -> dict[int, Owner]:
        """Whose each process is, by its number."""
        return {number: owner for number, _, owner in self._slices.values()}

    async def close(self) -> None:
        """End all that runs here; pods stay as they are."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _bury(self, pod: Pod) -> None:
        """A pod that has ended, here or before we began, waits only to be let go."""
        if pod.metadata.deletion_timestamp:
            self._reporter.report(pod, None, remove=True)

    def _move_in(self, pod: Pod) -> None:
        refused = None
        memory = self._recalled(pod)
        try:
            if memory is None:
                self._check_fit(pod)
        except AdmissionError as error:
            refused = error
        else:
            self._gate.admit(pod)
        worker = PodWorker(pod=pod, house=self, refused=refused, memory=memory)
        if pod.metadata.deletion_timestamp:
            worker.update(pod)
        self._workers[pod.metadata.uid] = worker
        self._asked[pod.metadata.uid] = asked_by(pod)
        self._tasks[pod.metadata.uid] = asyncio.create_task(self._live(worker), name=f"pod {pod.key}")

    def _check_fit(self, pod: Pod) -> None:
        """Refuse a pod that asks more than is left, as kubelets do (in whole numbers: it is asked for each pod)."""
        room = read(self._allocatable())
        for name, amount in asked_by(pod).items():
            taken = sum(asked.get(name, 0) for asked in self._asked.values())
            if name in room and amount + taken > room[name]:
                why = f"not enough {name}: {amount / ONE:g} asked, {taken / ONE:g} of {room[name] / ONE:g} in use"
                raise AdmissionError(why, reason=f"OutOf{name}", where=pod.key)

    async def _live(self, worker: PodWorker) -> None:
        try:
            await worker.run()
        except Exception:
            log.exception("a pod's worker failed by our own defect", extra={"pod": worker.pod.key})
            raise
        finally:
            self._gate.forget(worker.pod.metadata.uid)
            self._tasks.pop(worker.pod.metadata.uid, None)
            self._asked.pop(worker.pod.metadata.uid, None)

    def _recalled(self, pod: Pod) -> PodMemory | None:
        """Take a pod up that ran when we ended: its status says since when."""
        lives: dict[str, Life] = {}
        for status in pod.status.container_statuses:
            since = seconds_of(status.state.get("running", {}).get("startedAt"))
            if since is not None:
                lives[status.name] = self._taken_up(pod, status, since=since)
        if not lives:
            return None
        meta = pod.metadata
        started = min(life.state.since for life in lives.values() if isinstance(life.state, Running))
        return PodMemory(
            uid=meta.uid, namespace=meta.namespace, name=meta.name, grace=0.0, started_at=started, lives=lives
        )

    def _taken_up(self, pod: Pod, status: ContainerStatus, *, since: float) -> Life:
        self._gate.admit(pod)
        try:
            process = self._played(pod, status.name, since=since)
        except StartError as error:
            log.warning("not taken up", extra={"pod": pod.key, "why": str(error)})
            return Life()
        return Life(state=Running(process=process, since=since), starts=1)

    # --- what a pod's worker needs -----------------------------------------------------------------------------------
    async def start_container(self, pod: Pod, container: str, start: int) -> Process:  # noqa: ARG002 - a house's signature
        """Ask the agent's core, then play the container."""
        return self._played(pod, container)

    def find_container(self, pod: Pod, container: str, start: int) -> Process | None:  # noqa: ARG002 - a house's signature
        """Nothing outlives us."""
        return None

    def devices_of(self, pod: Pod, container: str) -> Mapping[str, Sequence[tuple[str, bool]]]:  # noqa: ARG002 - a house's signature
        """There is no kubelet to hand out ids."""
        return {}

    def report(self, pod: Pod, status: dict[str, Any], *, remove: bool) -> None:
        """Have the status written; not that of a start under way, which is over before anybody could read it."""
        if not any("ContainerCreating" in str(one["state"]) for one in status["containerStatuses"]):
            self._reporter.report(pod, status, remove=remove)

    def warn(self, pod: Pod, why: str) -> None:
        """Leave it to the status: only a load that can't be read keeps a played container from starting."""

    def _played(self, pod: Pod, container: str, *, since: float | None = None) -> Process:
        try:
            load = load_of(pod, names=self._names)
        except LoadError as error:
            raise StartError(str(error), reason="CreateContainerConfigError", where=container) from error
        slices = self._gate.start(pod, container)
        name = f"{pod.metadata.uid}/{container}"
        process = self.played.play(name=name, load=_as_role(load, pod, container), since=since)
        meta = pod.metadata
        owner = Owner(namespace=meta.namespace, pod=meta.name, container=container)
        self._slices[name] = (process.pid, slices, owner)
        self._use(process, slices, load=load)
        return process

    def _use(self, process: Process, slices: tuple[Slice, ...], *, load: Load) -> None:
        for part in slices:
            if (place := self._driver.place_of(part.gpu)) is None:
                continue
            # Memory is held to what was granted; compute may be used beyond it.
            memory = part.memory.value * min(load.use, _WHOLE) // _WHOLE
            share = part.compute.value or part.limit.value
            try:
                self._driver.start_process(
                    gpu=place[0],
                    instance=place[1],
                    pid=process.pid,
                    memory_mib=memory,
                    sm_percent=min(share * load.use // _WHOLE, _WHOLE),
                )
            except SimulationError as error:
                log.warning("a simulated process got no memory", extra={"why": str(error)})

    def _ended(self, name: str) -> None:
        if found := self._slices.pop(name, None):
            self._driver.stop_process(pid=found[0])


def _as_role(load: Load, pod: Pod, container: str) -> Load:
    """Init containers end at once and well, sidecars run on; the load is the app containers'."""
    init: Container | None = next((one for one in pod.spec.init_containers if one.name == container), None)
    if init is None:
        return load
    return Load(seconds=None if is_sidecar(init) else 0.0, stop=load.stop)
