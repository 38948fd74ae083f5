"""One pod on the simulated node: what `lifecycle` decides, done with simulated processes."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from aliquot_core.objects import Pod
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb
from aliquot_standalone.kubelet import lifecycle
from aliquot_standalone.kubelet.errors import CdiError, PluginError
from aliquot_standalone.kubelet.lifecycle import Life, Running, Starting
from aliquot_standalone.kubelet.settings import Settings
from aliquot_standalone.kubelet.waiting import event_or_time
from simulation.universe.loop import VirtualLoop

if TYPE_CHECKING:
    from simulation.universe.kubelet import SimKubelet

SETTINGS = Settings()
# From PreStart to a process, in the middle; on a busy machine it is seconds.
CREATION = 0.5


class PodWorker:
    """Runs one pod until it is over."""

    def __init__(self, *, pod: Pod, house: SimKubelet, lives: dict[str, Life], refused: bool) -> None:
        self.pod = pod
        self.over = False
        self._house = house
        self._lives = {name: _not_starting(life) for name, life in lives.items()}
        self._refused = refused
        self._going_until: float | None = house.clock.wall() if refused else None
        self._changed = asyncio.Event()
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._creating: set[str] = set()
        self._stops: dict[str, asyncio.Task[None]] = {}
        self._main: asyncio.Task[None] | None = None
        self._said = ""
        self._told: dict[str, str] = {}

    def start(self, loop: VirtualLoop) -> None:
        """Begin; a deletion that came before is taken in."""
        self.update(self.pod)
        self._main = loop.spawn(self._run(), name=f"pod {self.pod.key}")

    def stop(self) -> None:
        """The kubelet dies; nothing of ours goes on."""
        for task in (self._main, *self._starts.values(), *self._stops.values()):
            if task is not None:
                task.cancel()

    def update(self, pod: Pod) -> None:
        """A newer version of the pod."""
        self.pod = pod
        if pod.metadata.deletion_timestamp:
            seconds = pod.metadata.deletion_grace_period_seconds
            self.go(grace=30.0 if seconds is None else float(seconds))

    def go(self, *, grace: float) -> None:
        """End the pod within so many seconds; a later, shorter grace counts."""
        until = self._house.clock.wall() + grace
        if self._going_until is None or until < self._going_until:
            self._going_until = until
            for task in self._stops.values():
                task.cancel()
            self._stops.clear()
        self.wake()

    def wake(self) -> None:
        """Something changed."""
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            self._notice_ends()
            now = self._house.clock.wall()
            going = self._going_until is not None
            decision = lifecycle.decide(self.pod, self._lives, now=now, going=going, settings=SETTINGS)
            self._act(decision)
            self._remember()
            if decision.over:
                break
            self._report()
            wait = None if decision.wake_at is None else max(decision.wake_at - now, 0.0)
            await event_or_time(self._changed, clock=self._house.clock, seconds=wait)
        self.over = True
        self._report()
        if self._house.is_gone(self.pod.metadata.uid):
            self._house.forget(self.pod.metadata.uid)

    def _act(self, decision: lifecycle.Decision) -> None:
        for name in decision.start:
            self._lives[name] = lifecycle.starting(self._lives.get(name, Life()))
            self._starts[name] = asyncio.create_task(self._start(name))
        for name in decision.stop:
            if name in self._creating:
                continue  # the runtime was told; what it makes is stopped when it is there
            if isinstance(self._lives[name].state, Starting):
                self._starts.pop(name).cancel()
                self._lives[name] = _not_starting(self._lives[name])
                self.wake()
            elif name not in self._stops:
                self._stops[name] = asyncio.create_task(self._stop(name))

    async def _start(self, name: str) -> None:
        house, uid = self._house, self.pod.metadata.uid
        held = house.table.holdings.of(uid, name)
        try:
            for resource, holding in held.items():
                await house.endpoint.pre_start(resource, sorted(holding.ids))
        except PluginError as error:
            self._refuse(name, "CreateContainerConfigError", str(error))
            return
        self._creating.add(name)
        await house.clock.sleep(house.chance.about(CREATION))
        self._creating.discard(name)
        names = [
            device.name
            for holding in held.values()
            for device in pb.ContainerAllocateResponse.FromString(holding.answer).cdi_devices
        ]
        try:
            process = house.runtime.start(uid=uid, container=name, cdi_names=names, plan=house.plan_of(uid, name))
        except CdiError as error:
            self._refuse(name, "CreateContainerError", str(error))
            return
        self._lives[name] = lifecycle.started(self._lives[name], process=process, now=house.clock.wall())
        self._remember()
        self.wake()

    def _refuse(self, name: str, reason: str, why: str) -> None:
        if self._told.get(name) != why:
            self._told[name] = why
            self._house.trace(f"{self.pod.key} {name} not started: {why}")
        self._lives[name] = lifecycle.refused(
            self._lives[name], reason=reason, message=why, now=self._house.clock.wall(), settings=SETTINGS
        )
        self.wake()

    async def _stop(self, name: str) -> None:
        state = self._lives[name].state
        if not isinstance(state, Running):
            return
        until = self._going_until if self._going_until is not None else self._house.clock.wall() + 30.0
        self._house.runtime.signal(state.process.id, signal.SIGTERM)
        await self._house.clock.sleep(max(until - self._house.clock.wall(), 0.0))
        self._house.runtime.signal(state.process.id, signal.SIGKILL)

    def _notice_ends(self) -> None:
        for name, life in self._lives.items():
            if not isinstance(life.state, Running) or life.state.process.id in self._house.runtime.running:
                continue
            code = self._house.runtime.ended.get(life.state.process.id, 137)
            self._lives[name] = lifecycle.ended(
                life, code=code, reason="", now=self._house.clock.wall(), settings=SETTINGS
            )
            if stop := self._stops.pop(name, None):
                stop.cancel()

    def _remember(self) -> None:
        self._house.lives[self.pod.metadata.uid] = (self.pod, dict(self._lives))

    def _report(self) -> None:
        phase = lifecycle.phase(self.pod, self._lives, going=self._going_until is not None, settings=SETTINGS)
        if self._refused:
            phase = "Failed"
        remove = self.over and self.pod.metadata.deletion_timestamp is not None
        if phase != self._said or remove:
            self._said = phase
            self._house.reporter.report(self.pod, phase=phase, remove=remove)


def _not_starting(life: Life) -> Life:
    if not isinstance(life.state, Starting):
        return life
    return Life(last=life.last, starts=life.starts, ends=life.ends, refusals=life.refusals)
