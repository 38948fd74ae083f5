"""Carries turns out: a pod's status says what is to be said of it, and its gate is lifted.

The API server works a write out by what its watches have told, and once more if that was not the last word: the second
of two writes right after each other costs it twice (2.4 ms more of its CPU, run: 1.36.3). So word of the first is
waited for, for a moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from aliquot_core.instants import second_time
from aliquot_core.objects import Pod
from aliquot_kube.pacing import sleep_unless
from aliquot_kube.patches import Patch
from aliquot_kube.resources import PODS
from aliquot_scheduler.centre.means import NOT_WRITTEN, Means
from aliquot_scheduler.centre.nominations import Nominations
from aliquot_scheduler.centre.pod_patches import LET_IN, let_through, status_of
from aliquot_scheduler.centre.tidings import Tidings
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.deciding.turns import Turn
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.states import was_told_to_wait

log = logging.getLogger(__name__)

# Requests under way at once; more would only queue in the transport.
_HANDS = 16
# Heart-beats and promises grow old without any event.
_TICK = 0.5
# Watches tell within milliseconds; where one is late, its server has more to do than to work something out twice.
_UNTIL_TOLD = 0.25
# kube-scheduler waits for its answers meanwhile.
_AT_A_STRETCH = 0.02


class Gatekeeper:
    """Lets pods through as there is room."""

    def __init__(
        self,
        *,
        desk: Desk,
        turns: Queues,
        means: Means,
    ) -> None:
        self._events = means.events
        self._desk = desk
        self._turns = turns
        self._client = means.client
        self._clock = means.clock
        self._names = means.names
        self._why_not = means.why_not
        self._watched = means.long_turns.watched
        self._nominations = Nominations(desk=desk, client=means.client)
        self._tidings = Tidings(clock=means.clock)
        self._hands = asyncio.Semaphore(_HANDS)
        self._changed = asyncio.Event()

    def told(self, pod: Pod) -> None:
        """The watch has told of a pod."""
        self._tidings.told(pod)

    def look(self) -> None:
        """Something changed: somebody may fit now."""
        self._changed.set()

    async def run(self) -> None:
        """Let through whoever can be, until cancelled."""
        async with asyncio.TaskGroup() as telling:
            while True:
                began = self._clock.monotonic()
                self._desk.tell_time(began)
                if not self._why_not():
                    # Before others are told that they have the room.
                    for pod in self._nominations.due():
                        telling.create_task(self._nominations.take_back(pod))
                    for turn in self._due(now=began):
                        telling.create_task(self._tell(turn))
                if (spent := self._clock.monotonic() - began) > 0.0:
                    # However often something changes, half the time is others'.
                    await self._clock.sleep(spent)
                await sleep_unless(clock=self._clock, seconds=_TICK, woken=self._changed)

    def _due(self, *, now: float) -> Iterator[Turn]:
        turns = self._turns.turns(self._desk, now=now)
        while turn := self._next(turns):
            yield turn
            if self._clock.monotonic() - now > _AT_A_STRETCH:
                self._changed.set()
                return

    def _next(self, turns: Iterator[Turn]) -> Turn | None:
        turn: Turn | None = None
        with self._watched("turn", lambda: f"pod {turn.pod.key}" if turn else "nobody who could be let in"):
            turn = next(turns, None)
        return turn

    async def _tell(self, turn: Turn) -> None:
        try:
            await self._write(turn)
        except NOT_WRITTEN as error:
            log.warning("a pod could not be told of its turn", extra={"pod": turn.pod.key, "error": str(error)})
            self._not_told(turn)
        except Exception:  # a defect of ours with this one: it rests ever longer, and others get their turns
            log.exception("a pod could not be told of its turn", extra={"pod": turn.pod.key})
            self._not_told(turn)

    def _not_told(self, turn: Turn) -> None:
        uid = turn.pod.metadata.uid
        latest = self._desk.pods.get(uid)
        if latest is not None and turn.pod.spec.scheduling_gates and not latest.spec.scheduling_gates:
            # Only the answer was lost, and kube-scheduler may be asking already.
            return
        self._desk.take_back(uid)
        # While its binding is being written it goes on being charged.
        if latest is not None and self._desk.promises.of(uid) is None:
            self._turns.not_told(latest, now=self._clock.monotonic())

    async def _write(self, turn: Turn) -> None:
        pod, uid = turn.pod, turn.pod.metadata.uid
        node = turn.promise.node if turn.promise else ""
        wall = self._clock.wall()
        at = second_time(wall)
        if (status := status_of(turn, names=self._names, at=at, nodes=self._desk.nodes)) is not None:
            written = self._patch(pod, status, subresource="status")
            await self._tidings.of(uid, seconds=_UNTIL_TOLD, after=written)
        through = let_through(turn, queue=self._turns.charged_in(uid), names=self._names, wall=wall)
        await self._patch(pod, through)
        if was_told_to_wait(pod, names=self._names):
            self._events.tell(pod, LET_IN, action="Admitting")
        log.info("let through", extra={"pod": pod.key, "node": node, "turn": turn.number})

    async def _patch(self, pod: Pod, patch: Patch, *, subresource: str = "") -> None:
        meta = pod.metadata
        async with self._hands:
            await self._client.patch(
                PODS, name=meta.name, namespace=meta.namespace, patch=patch, subresource=subresource
            )
