"""kube-scheduler, as far as an extender sees it: it knows things late, asks one question at a time, and forgets all.

It counts what nodes can hold, tries a nominated node first and alone, draws among equals and sometimes prefers another
node for reasons of its own. Bindings go their way while the next pod is looked at. What fails comes again with
back-off; what fits nowhere comes again when it changes, sometimes when something else does, or after five minutes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Node, Pod
from aliquot_kube.errors import UnreachableError
from aliquot_kube.resources import NODES
from aliquot_scheduler.extender.verbs import Verb
from aliquot_standalone.apiserver.store import Change
from simulation.universe.api import ApiServer
from simulation.universe.chance import Chance
from simulation.universe.holders import asked_in_all, told_amount
from simulation.universe.loop import LoopClock, VirtualLoop

FLUSH = 300.0
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 10.0
Ask = Callable[[Verb, bytes], Awaitable[bytes]]


class CallFailedError(Exception):
    """The extender said that nothing was decided, or could not be reached."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as kube-scheduler knows it."""

    pod: Pod
    raw: bytes
    nominated: str


class SimKubeScheduler:
    """One kube-scheduler over all its lives."""

    def __init__(
        self,
        *,
        names: Names,
        loop: VirtualLoop,
        clock: LoopClock,
        api: ApiServer,
        chance: Chance,
        ask: Ask,
        trace: Callable[[str], None],
    ) -> None:
        self.lag = 0.01
        # Pods (namespace and name) that no node may have by what only it knows of: a claim, affinity, a port.
        self.keeps_off: set[str] = set()
        self.fallen: BaseException | None = None
        self._names = names
        self._loop = loop
        self._clock = clock
        self._api = api
        self._chance = chance
        self._ask = ask
        self._trace = trace
        self._tasks: list[asyncio.Task[None]] = []
        self._forget()
        api.subscribe(self._stored)

    def _forget(self) -> None:
        self._arriving: asyncio.Queue[tuple[float, str, Change]] = asyncio.Queue()
        self._pods: dict[str, Seen] = {}
        self._nodes: dict[str, Node] = {}
        # Where pods go that it has decided about.
        self._assumed: dict[str, str] = {}
        # When a pod is to be looked at (again), and how often it has failed.
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._changed = asyncio.Event()

    # --- lives -------------------------------------------------------------------------------------------------------
    @property
    def up(self) -> bool:
        """Whether it runs."""
        return bool(self._tasks)

    def start(self) -> None:
        """Run, knowing what the API server has."""
        if self.up:
            return
        self._forget()
        for table in ("nodes", "pods"):
            for raw in self._api.raw(table):
                self._told(table, raw, gone=False)
        self._tasks = [self._spawn(self._follow()), self._spawn(self._schedule())]

    def stop(self) -> None:
        """Die; what was asked goes its way."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.spawn(work, name="kube-scheduler")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.fallen = self.fallen or task.exception()

    # --- what it knows -----------------------------------------------------------------------------------------------
    def _stored(self, table: str, change: Change) -> None:
        if self.up and table in ("nodes", "pods"):
            self._arriving.put_nowait((self._clock.monotonic() + self._chance.about(self.lag), table, change))

    async def _follow(self) -> None:
        while True:
            due, table, change = await self._arriving.get()
            if (wait := due - self._clock.monotonic()) > 0:
                await asyncio.sleep(wait)
            self._told(table, change.revision.raw, gone=change.type == "DELETED")

    def _told(self, table: str, raw: bytes, *, gone: bool) -> None:
        if table == NODES.plural:
            node = msgspec.json.decode(raw, type=Node)
            if gone:
                self._nodes.pop(node.metadata.name, None)
            else:
                self._nodes[node.metadata.name] = node
            self._hint()
        else:
            self._told_of_pod(msgspec.json.decode(raw, type=Pod), raw, gone=gone)

    def _told_of_pod(self, pod: Pod, raw: bytes, *, gone: bool) -> None:
        uid = pod.metadata.uid
        if gone:
            for known in (self._pods, self._assumed, self._due, self._failures):
                known.pop(uid, None)
            self._hint()
            return
        nominated = json.loads(raw).get("status", {}).get("nominatedNodeName", "")
        self._pods[uid] = Seen(pod=pod, raw=raw, nominated=nominated)
        if pod.spec.node_name or pod.ended:
            self._assumed.pop(uid, None)
            self._due.pop(uid, None)
        elif not pod.spec.scheduling_gates and not pod.metadata.deletion_timestamp and uid not in self._assumed:
            self._put(uid, after=0.0)

    def _hint(self) -> None:
        """Something changed that may help whoever fitted nowhere; kube-scheduler knows that of some changes only."""
        if self._chance.happens(0.3):
            for uid, due in self._due.items():
                if due - self._clock.monotonic() > LONGEST_BACKOFF:
                    self._put(uid, after=FIRST_BACKOFF)

    # --- what it does ------------------------------------------------------------------------------------------------
    def _put(self, uid: str, *, after: float) -> None:
        if uid in self._pods:
            self._due[uid] = self._clock.monotonic() + after
            self._changed.set()

    def _put_back(self, uid: str) -> None:
        """An error: it comes again soon."""
        if uid in self._pods and not self._pods[uid].pod.spec.node_name:
            self._failures[uid] = self._failures.get(uid, 0) + 1
            self._put(uid, after=min(FIRST_BACKOFF * 2 ** (self._failures[uid] - 1), LONGEST_BACKOFF))

    async def _schedule(self) -> None:
        while True:
            uid = await self._next()
            try:
                await self._place(uid)
            except CallFailedError:
                self._put_back(uid)

    async def _next(self) -> str:
        while True:
            self._changed.clear()
            if self._due:
                due, uid = min((due, uid) for uid, due in self._due.items())
                if due <= self._clock.monotonic():
                    del self._due[uid]
                    return uid
            else:
                due = self._clock.monotonic() + FLUSH
            try:
                async with asyncio.timeout(due - self._clock.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _place(self, uid: str) -> None:
        seen = self._pods[uid]
        able = [name for name, node in sorted(self._nodes.items()) if self._holds(node, seen.pod)]
        offered = await self._filter(seen, [seen.nominated]) if seen.nominated in able else []
        offered = offered or (await self._filter(seen, able) if able else [])
        if not offered:
            self._put(uid, after=FLUSH)
            return
        node = offered[0] if len(offered) == 1 else await self._best(seen, offered)
        self._assumed[uid] = node
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(self._spawn(self._bind(seen.pod, node)))

    def _holds(self, node: Node, pod: Pod) -> bool:
        """Its own predicates: whether pods may go there, and the sums of what all ask."""
        if node.spec.unschedulable or pod.key in self.keeps_off:
            return False
        name = node.metadata.name
        there = [
            one.pod
            for uid, one in self._pods.items()
            if not one.pod.ended and name in (one.pod.spec.node_name, self._assumed.get(uid))
        ]
        return all(
            sum(asked_in_all(one, resource) for one in (*there, pod)) <= told_amount(node.status.allocatable, resource)
            for resource in (self._names.compute, self._names.best_effort)
            if asked_in_all(pod, resource)
        )

    # --- what it asks ------------------------------------------------------------------------------------------------
    async def _filter(self, seen: Seen, nodes: list[str]) -> list[str]:
        told = await self._call(Verb.FILTER, _placing(seen, nodes))
        if told["Error"]:
            raise CallFailedError(told["Error"])
        offered: list[str] = told["NodeNames"]
        said = {*offered, *told["FailedNodes"], *told["FailedAndUnresolvableNodes"]}
        # The node of a turn's promise is answered alone, once.
        assert said == set(nodes) or (said == set(offered) <= set(nodes) and len(said) == 1), told
        return offered

    async def _best(self, seen: Seen, nodes: list[str]) -> str:
        grades = {one["Host"]: one["Score"] for one in await self._call(Verb.PRIORITIZE, _placing(seen, nodes))}
        if self._chance.happens(0.2):
            return self._chance.choice(nodes)
        return max(nodes, key=lambda name: (grades.get(name, 0), self._chance.random()))

    async def _bind(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        asked = {"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": node}
        try:
            told = await self._call(Verb.BIND, json.dumps(asked).encode())
        except CallFailedError as error:
            told = {"Error": str(error)}
        if told["Error"]:
            self._trace(f"{pod.key} not bound to {node}: {told['Error'][:90]}")
            self._assumed.pop(meta.uid, None)
            self._put_back(meta.uid)

    async def _call(self, verb: Verb, body: bytes) -> Any:
        try:
            return json.loads(await self._ask(verb, body))
        except UnreachableError as error:
            raise CallFailedError(str(error)) from error


def _placing(seen: Seen, nodes: list[str]) -> bytes:
    return b'{"Pod":%s,"Nodes":null,"NodeNames":%s}' % (seen.raw, json.dumps(nodes).encode())
