"""One pod on the node: carries out what `lifecycle` decides, and tells `lifecycle` what came of it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError
from aliquot_core.objects import Pod
from aliquot_kube.pacing import sleep_unless
from aliquot_standalone.kubelet import lifecycle
from aliquot_standalone.kubelet.containers import Runtime
from aliquot_standalone.kubelet.errors import AdmissionError, StartError
from aliquot_standalone.kubelet.lifecycle import Life, Process, Running, Starting, Waiting
from aliquot_standalone.kubelet.memory import Memories, PodMemory
from aliquot_standalone.kubelet.settings import Settings
from aliquot_standalone.kubelet.status import Report, pod_status

log = logging.getLogger(__name__)

_REMEMBER_AGAIN = 2.0


class House(Protocol):
    """What a pod needs of its node."""

    clock: Clock
    settings: Settings
    runtime: Runtime
    memories: Memories

    async def start_container(self, pod: Pod, container: str, start: int) -> Process:
        """Ask the plugins, then start the process; a `StartError` or `NoCommandError` says why it must wait."""

    def find_container(self, pod: Pod, container: str, start: int) -> Process | None:
        """The process of a start that was under way when an earlier kubelet ended, if it came to be."""

    def devices_of(self, pod: Pod, container: str) -> Mapping[str, Sequence[tuple[str, bool]]]:
        """The container's device ids and whether each is healthy."""

    def report(self, pod: Pod, status: dict[str, Any], *, remove: bool) -> None:
        """Have the status written."""

    def warn(self, pod: Pod, why: str) -> None:
        """Tell whoever looks at the pod why a container of it was not started."""


class PodWorker:
    """Runs one pod until it is over."""

    def __init__(
        self, *, pod: Pod, house: House, memory: PodMemory | None = None, refused: AdmissionError | None = None
    ) -> None:
        """A pod that was `refused` at admission only has its processes of earlier ended, if it has any."""
        self.pod = pod
        self.refused = refused
        self.over = False
        self._house = house
        self._lives: dict[str, Life] = dict(memory.lives) if memory else {}
        self._started_at = memory.started_at if memory else house.clock.wall()
        self._going_until: float | None = self._started_at if refused else None
        self._remove_at_end = False
        self._ended_as = ""
        self._remembered = True
        self._said: dict[str, tuple[str, str]] = {}
        self._changed = asyncio.Event()
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, asyncio.Task[None]] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}

    # --- what the node tells ---------------------------------------------------------------------------------------
    def update(self, pod: Pod) -> None:
        """A newer version of the pod; it is to go if it is being deleted, or if somebody says that it has ended."""
        before, self.pod = self.pod, pod
        if pod.metadata.deletion_timestamp:
            self.go(grace=self.grace, remove=True)
        elif pod.ended:
            # A status of ours that was under way may yet overwrite it; the word counts all the same.
            self._ended_as = pod.status.phase
            self.go(grace=self.grace, remove=False)
        elif _wish(pod) != _wish(before):
            # What else is new is the status: our own word, or others' on what is none of ours.
            self._changed.set()

    def go(self, *, grace: float, remove: bool) -> None:
        """End the pod within so many seconds; a later, shorter grace counts."""
        until = self._house.clock.wall() + grace
        self._remove_at_end = self._remove_at_end or remove
        if self._going_until is None or until < self._going_until:
            self._going_until = until
            # Those being stopped had the longer time.
            self._cancel(self._stops)
        self._changed.set()

    def running(self) -> Iterator[tuple[str, int]]:
        """Containers whose processes run, each with the number of its start."""
        return ((name, life.starts - 1) for name, life in self._lives.items() if isinstance(life.state, Running))

    def report_again(self) -> None:
        """Something the status says has changed outside, such as a device's health."""
        self._changed.set()

    # --- the loop --------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Decide, act, report, wait; until nothing runs and nothing will."""
        self._take_over()
        try:
            while True:
                self._changed.clear()
                decision = lifecycle.decide(
                    self.pod, self._lives, now=self._now, going=self._going, settings=self._house.settings
                )
                self._act(decision)
                if decision.over:
                    break
                self._remember_and_report()
                wait = self._patience(decision.wake_at)
                await sleep_unless(clock=self._house.clock, seconds=wait, woken=self._changed)
            self.over = True
            self._remember_and_report()
        finally:
            for tasks in (self._starts, self._stops, self._watches):
                self._cancel(tasks)

    def _patience(self, wake_at: float | None) -> float | None:
        """How long nothing is to be done, but for a memory that could not be written."""
        wait = None if wake_at is None else max(wake_at - self._now, 0.0)
        if self._remembered:
            return wait
        return _REMEMBER_AGAIN if wait is None else min(wait, _REMEMBER_AGAIN)

    @property
    def _now(self) -> float:
        # Wall time, since it must mean the same to a kubelet that is started later.
        return self._house.clock.wall()

    @property
    def _going(self) -> bool:
        return self._going_until is not None

    @property
    def grace(self) -> float:
        """How long its processes have between SIGTERM and SIGKILL."""
        seconds = self.pod.metadata.deletion_grace_period_seconds
        if seconds is None:
            seconds = self.pod.spec.termination_grace_period_seconds
        return self._house.settings.default_grace if seconds is None else float(seconds)

    def _take_over(self) -> None:
        """Find the processes of an earlier kubelet again."""
        for name, life in self._lives.items():
            if isinstance(life.state, Running):
                self._watch(name, life.state.process, life.starts)
            elif isinstance(life.state, Starting):
                self._find(name, life)

    def _find(self, name: str, life: Life) -> None:
        """A start was under way: either its process is there, or it never was."""
        process = self._house.find_container(self.pod, name, life.starts)
        if process is None:
            self._lives[name] = _not_started(life)
        else:
            self._lives[name] = lifecycle.started(life, process=process, now=self._now)
            self._watch(name, process, life.starts + 1)

    def _act(self, decision: lifecycle.Decision) -> None:
        for name in decision.start:
            self._lives[name] = lifecycle.starting(self._lives.get(name, Life()))
            self._starts[name] = asyncio.create_task(self._start(name), name=f"start {self.pod.key} {name}")
        for name in decision.stop:
            if isinstance(self._lives[name].state, Starting):
                self._starts.pop(name).cancel()
                self._lives[name] = _not_started(self._lives[name])
                self._changed.set()
            elif name not in self._stops:
                self._stops[name] = asyncio.create_task(self._stop(name), name=f"stop {self.pod.key} {name}")

    async def _start(self, name: str) -> None:
        life = self._lives[name]
        try:
            self._check_remembered()
            process = await self._house.start_container(self.pod, name, life.starts)
        except AliquotError as error:
            reason = getattr(error, "reason", "RunContainerError")
            log.warning("container not started", extra={"pod": self.pod.key, "container": name, "why": str(error)})
            self._house.warn(self.pod, str(error))
            self._lives[name] = lifecycle.refused(
                life, reason=reason, message=str(error), now=self._now, settings=self._house.settings
            )
        else:
            self._lives[name] = lifecycle.started(life, process=process, now=self._now)
            self._watch(name, process, life.starts + 1)
            # At once: a kubelet that dies now must find this process again.
            self._remember()
        self._changed.set()

    def _check_remembered(self) -> None:
        """Start nothing that the next kubelet would start a second time."""
        if not self._remembered:
            what = "its start can't be written to disk, and what is not written could be started twice"
            raise StartError(what, reason="CreateContainerError", where=self.pod.key, remedy="is the disk full?")

    def _watch(self, name: str, process: Process, starts: int) -> None:
        self._watches[name] = asyncio.create_task(
            self._wait(name, process, starts - 1), name=f"watch {self.pod.key} {name}"
        )

    async def _wait(self, name: str, process: Process, start: int) -> None:
        exit_file = self._house.memories.exit_file(self.pod.metadata.uid, name, start)
        end = await self._house.runtime.wait(process, exit_file)
        self._lives[name] = lifecycle.ended(
            self._lives[name], code=end.code, reason=end.reason, now=self._now, settings=self._house.settings
        )
        if stop := self._stops.pop(name, None):
            stop.cancel()
        self._changed.set()

    async def _stop(self, name: str) -> None:
        """SIGTERM, and SIGKILL when the grace is over."""
        state = self._lives[name].state
        if not isinstance(state, Running):
            return
        until = self._going_until if self._going_until is not None else self._now + self.grace
        self._house.runtime.signal(state.process, signal.SIGTERM)
        await self._house.clock.sleep(max(until - self._now, 0.0))
        self._house.runtime.signal(state.process, signal.SIGKILL)

    def _remember_and_report(self) -> None:
        self._remember()
        report = Report(
            pod=self.pod,
            lives=self._lives,
            started_at=self._started_at,
            now=self._now,
            going=self._going,
            said=self._said,
        )
        status = pod_status(
            report, devices_of=lambda name: self._house.devices_of(self.pod, name), settings=self._house.settings
        )
        self._said = {one["type"]: (one["status"], one["lastTransitionTime"]) for one in status["conditions"]}
        if self._ended_as:
            status["phase"] = self._ended_as
        if self.refused:
            status |= {"phase": "Failed", "reason": self.refused.reason, "message": str(self.refused)}
        self._house.report(self.pod, status, remove=self.over and self._remove_at_end)

    def _remember(self) -> None:
        metadata = self.pod.metadata
        memory = PodMemory(
            uid=metadata.uid,
            namespace=metadata.namespace,
            name=metadata.name,
            grace=self.grace,
            started_at=self._started_at,
            lives=self._lives,
        )
        try:
            self._house.memories.write(memory)
        except OSError as error:
            # A full disk must not end pods that run.
            log.warning("a pod could not be remembered", extra={"pod": self.pod.key, "why": str(error)})
            self._remembered = False
        else:
            self._remembered = True

    def _cancel(self, tasks: dict[str, asyncio.Task[None]]) -> None:
        for task in tasks.values():
            task.cancel()
        tasks.clear()


def _wish(pod: Pod) -> tuple[object, ...]:
    """What is asked of us."""
    return pod.spec, pod.metadata.labels, pod.metadata.annotations


def _not_started(life: Life) -> Life:
    return Life(state=Waiting(), last=life.last, starts=life.starts, ends=life.ends, refusals=life.refusals)
