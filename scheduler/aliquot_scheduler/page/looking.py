"""From the centre's picture to what the page shows, again and again, without holding up decisions.

Theory of operation. A look goes over all pods and all GPUs and makes a `State`. What has not changed since the look
before is taken from there: a pod by being the same object and in the same queue, a GPU by being held and used as it
was. So a look at 1,000 GPUs and 5,000 pods costs a few milliseconds, and whoever renders can see by identity what is
new. A look comes in steps, between which others have their turn; it may then mix what was known at two instants a few
milliseconds apart, which no reader can tell.

What must always hold: nothing here changes what decisions are made from; what is gone is forgotten with the next look.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

import msgspec

from aliquot_core.claims import Claim
from aliquot_core.inventory import Gpu, Health
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import asks
from aliquot_scheduler.page.model import (
    GpuShown,
    NodeShown,
    PodShown,
    SliceShown,
    Stage,
    State,
    StrayShown,
    Totals,
)
from aliquot_scheduler.page.owners import owner_of
from aliquot_scheduler.page.usage import Usage, Use
from aliquot_scheduler.page.waiters import placing_shown, waiting_shown
from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.picture.signs import UNHEARD
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.telling.rows import rows
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.waiter import Waiter

# One step's worth: about a millisecond of work.
_PODS_AT_ONCE = 500
_GPUS_AT_ONCE = 64


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader knows, as it is: read-only, for the loop's own thread."""

    picture: Picture
    turns: Queues
    pods: Mapping[str, Pod]
    paused: str
    # That the API server is not heard, and for how long; empty if it is.
    deaf: str
    # How many were evicted since this replica began to lead, by what for; None where that is not known.
    evicted: Mapping[str, int] | None
    now: float
    wall: float


class _KnownPod(msgspec.Struct, frozen=True, kw_only=True):
    pod: Pod
    queue: str
    waits: bool
    shown: PodShown | None


class _KnownGpu(msgspec.Struct, frozen=True, kw_only=True):
    gpu: Gpu
    held: dict[str, Claim]
    holders: list[PodShown | None]
    uses: list[Use]
    shown: GpuShown


class Looking:
    """Looks, and remembers what it saw for the next look."""

    def __init__(self, *, names: Names) -> None:
        self._names = names
        self._pods: dict[str, _KnownPod] = {}
        self._gpus: dict[tuple[str, str], _KnownGpu] = {}
        self._nodes: dict[str, NodeShown] = {}

    def look(self, seen: Seen, usage: Usage) -> Generator[None, None, State]:
        """See everything, step by step; the state is what it returns."""
        waiters = seen.turns.waiting()
        yield
        yield from self._see_pods(seen, waiting={waiter.uid: waiter for waiter in waiters})
        nodes = yield from self._see_nodes(seen, usage)
        waiting, reasons = yield from waiting_shown(waiters, seen.turns, deaf=seen.deaf)
        coming = [placing_shown(waiter) for waiter in seen.turns.under_way()]
        pods = tuple(known.shown for known in self._pods.values() if known.shown)
        tree = seen.turns.books.ledger.tree
        statuses = seen.turns.statuses(now=seen.now, at="")
        yield
        return State(
            at=seen.wall,
            paused=seen.deaf or seen.paused,
            used_at=usage.at,
            totals=_totals(nodes, pods, seen, used=usage.at is not None),
            queues=rows(Plan(specs={}, tree=tree), statuses=statuses, standing=None),
            nodes=nodes,
            pods=pods,
            waiting=(*waiting, *coming),
            reasons=dict(reasons),
        )

    # --- pods --------------------------------------------------------------------------------------------------------
    def _see_pods(self, seen: Seen, *, waiting: Mapping[str, Waiter]) -> Generator[None]:
        ledger, before, found = seen.turns.books.ledger, self._pods, {}
        for number, pod in enumerate(list(seen.pods.values())):
            if not number % _PODS_AT_ONCE:
                yield
            uid = pod.metadata.uid
            known, waiter = before.get(uid), waiting.get(uid)
            charge = ledger.of(uid)
            queue = waiter.queue if waiter else charge.queue if charge else ""
            if known is not None and known.pod is pod and (known.queue == queue and known.waits == bool(waiter)):
                found[uid] = known
                continue
            amounts = waiter.amounts if waiter else charge.amounts if charge else None
            shown = self._pod(pod, queue=queue, amounts=amounts, waits=bool(waiter), before=known)
            found[uid] = _KnownPod(pod=pod, queue=queue, waits=bool(waiter), shown=shown)
        self._pods = found

    def _pod(
        self, pod: Pod, *, queue: str, amounts: Sequence[int] | None, waits: bool, before: _KnownPod | None
    ) -> PodShown | None:
        if not asks(pod, names=self._names):
            return None
        was = before.shown if before else None
        if amounts is None:
            # It has ended: what it had is told, though it is charged to nobody any more.
            compute, memory, queue = (was.compute, was.memory, was.queue) if was else (0, 0, queue)
        else:
            compute, memory = amounts[COMPUTE], amounts[MEMORY]
        shown = PodShown(
            uid=pod.metadata.uid,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            owner=owner_of(pod, names=self._names),
            stage=_stage(pod, waits=waits),
            phase=pod.status.phase,
            queue=queue,
            node=pod.spec.node_name,
            compute=compute,
            memory=memory,
            created=pod.metadata.creation_timestamp or "",
        )
        return was if was == shown else shown

    # --- nodes -------------------------------------------------------------------------------------------------------
    def _see_nodes(self, seen: Seen, usage: Usage) -> Generator[None, None, tuple[NodeShown, ...]]:
        gpus, nodes, done = {}, {}, 0
        for name, known in sorted(seen.picture.nodes.items()):
            cards = []
            for gpu in known.inventory.gpus:
                if not done % _GPUS_AT_ONCE:
                    yield
                done += 1
                at = name, gpu.uuid
                gpus[at] = self._gpu(at, gpu, held=seen.picture.holdings.on(at), usage=usage)
                cards.append(gpus[at].shown)
            nodes[name] = self._node(known, tuple(cards), strays=_strays(seen.picture, node=name))
        self._gpus, self._nodes = gpus, nodes
        return tuple(nodes.values())

    def _node(self, known: KnownNode, cards: tuple[GpuShown, ...], *, strays: tuple[StrayShown, ...]) -> NodeShown:
        was = self._nodes.get(known.name)
        driver = known.inventory.driver
        if (
            was is not None
            and (was.out, was.driver, was.strays) == (known.out, driver, strays)
            and (len(was.gpus) == len(cards) and all(old is new for old, new in zip(was.gpus, cards, strict=True)))
        ):
            return was
        return NodeShown(name=known.name, out=known.out, driver=driver, gpus=cards, strays=strays)

    def _gpu(self, at: tuple[str, str], gpu: Gpu, *, held: Mapping[str, Claim], usage: Usage) -> _KnownGpu:
        node, uuid = at
        holders = [one.shown if (one := self._pods.get(uid)) else None for uid in held]
        uses = [usage.of_gpu(node, uuid), *(usage.of_slice(node, uuid, one.key if one else "") for one in holders)]
        was = self._gpus.get(at)
        if (
            was is not None
            and was.gpu is gpu
            and was.uses == uses
            and was.held == held
            and all(old is new for old, new in zip(was.holders, holders, strict=True))
        ):
            return was
        parts = zip(held.items(), holders, uses[1:], strict=True)
        slices = tuple(_slice(uid, claim, pod=pod, use=use) for (uid, claim), pod, use in parts)
        shown = _gpu_shown(gpu, node=node, slices=slices, use=uses[0])
        return _KnownGpu(gpu=gpu, held=dict(held), holders=holders, uses=uses, shown=shown)


def _totals(nodes: Sequence[NodeShown], pods: Sequence[PodShown], seen: Seen, *, used: bool) -> Totals:
    gpus = [gpu for node in nodes for gpu in node.gpus]
    good = [gpu for gpu in gpus if gpu.health is not Health.SICK]
    strays = [stray for node in nodes for stray in node.strays]
    let_in, waited = seen.turns.waits.of_all
    return Totals(
        nodes=len(nodes),
        nodes_out=sum(bool(node.out) and node.out != UNHEARD for node in nodes),
        nodes_unheard=sum(node.out == UNHEARD for node in nodes),
        gpus=len(gpus),
        gpus_sick=len(gpus) - len(good),
        compute=sum(gpu.whole for gpu in good),
        compute_granted=sum(gpu.compute for gpu in good),
        compute_used=sum(gpu.used_compute or 0 for gpu in good) if used else None,
        memory=sum(gpu.size for gpu in good),
        memory_granted=sum(gpu.memory for gpu in good),
        memory_used=sum(gpu.used_memory or 0 for gpu in good) if used else None,
        running=sum(pod.stage in {Stage.RUNNING, Stage.STARTING} for pod in pods),
        waiting=len(seen.turns),
        let_in=let_in,
        waited=waited,
        evicted=None if seen.evicted is None else sum(seen.evicted.values()),
        evicted_for={cause: count for cause, count in (seen.evicted or {}).items() if count},
        compute_stray=sum(one.compute for one in strays),
        memory_stray=sum(one.memory for one in strays),
    )


def _strays(picture: Picture, *, node: str) -> tuple[StrayShown, ...]:
    there = sorted(picture.hosts.ungranted.get(node, {}).values())
    return tuple(
        StrayShown(pod=one.pod, compute=compute, memory=memory, best_effort=best_effort, later=one.later)
        for one in there
        for compute, memory, best_effort in [one.own]
    )


def _stage(pod: Pod, *, waits: bool) -> Stage:
    if pod.ended:
        return Stage.ENDED
    if pod.spec.node_name:
        return Stage.RUNNING if pod.status.phase == "Running" else Stage.STARTING
    return Stage.WAITING if waits else Stage.LET_IN


def _slice(uid: str, claim: Claim, *, pod: PodShown | None, use: Use) -> SliceShown:
    return SliceShown(
        # A pod that the watch of pods has not told of yet, or that another replica was promised room for.
        pod=pod.key if pod else uid,
        owner=pod.owner.key if pod else "",
        queue=pod.queue if pod else "",
        stage=pod.stage if pod else Stage.LET_IN,
        compute=claim.compute.value,
        memory=claim.memory.value,
        whole=claim.closes,
        used_compute=use.compute,
        used_memory=use.memory,
        over_use=use.over_use,
        unpaid_launches=use.unpaid,
        used_since=use.since,
        most_memory=use.most_memory,
        high_compute=use.high_compute,
    )


def _gpu_shown(gpu: Gpu, *, node: str, slices: tuple[SliceShown, ...], use: Use) -> GpuShown:
    return GpuShown(
        node=node,
        uuid=gpu.uuid,
        index=gpu.index,
        model=gpu.model,
        health=gpu.health,
        reason=gpu.reason,
        isolation=tuple(gpu.isolation),
        size=gpu.memory,
        whole=gpu.compute.value,
        compute=sum(one.compute for one in slices),
        memory=sum(one.memory for one in slices),
        slices=tuple(sorted(slices, key=lambda one: (one.queue, one.pod))),
        used_compute=use.compute,
        used_memory=use.memory,
    )
