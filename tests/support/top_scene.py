"""States of a cluster for `aliquot top`: small ones by hand, large ones by seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from aliquot_core.instants import second_time
from aliquot_core.inventory import Health
from aliquot_scheduler.page.model import (
    GpuShown,
    NodeShown,
    Owner,
    PodShown,
    SliceShown,
    Stage,
    State,
    Totals,
    WaitingShown,
)
from aliquot_scheduler.queues.telling.forms import Part, QueueRow

AT = 1_795_255_200.0
SIZE = 81_000
QUEUES = ("research", "vision", "speech", "notebooks")
_PROGRAMS = ("train", "serve", "notebook", "sweep", "eval")


def piece(pod: str, compute: int, *, used: int | None = None, queue: str = "research", memory: int = 0) -> SliceShown:
    """A slice."""
    return SliceShown(
        pod=pod,
        owner=f"team/Pod/{pod}",
        queue=queue,
        stage=Stage.RUNNING,
        compute=compute,
        memory=memory or compute * SIZE // 100,
        whole=compute == 100,
        used_compute=used,
        used_memory=None if used is None else used * SIZE // 100,
    )


def gpu(node: str, index: int, slices: Sequence[SliceShown] = (), **more: Any) -> GpuShown:
    """A GPU and who is on it."""
    used = [one.used_compute for one in slices]
    given = {
        "node": node,
        "uuid": f"GPU-{node}-{index}",
        "index": index,
        "model": "NVIDIA A100-SXM4-80GB",
        "health": Health.HEALTHY,
        "reason": "",
        "isolation": ("observe",),
        "size": SIZE,
        "compute": sum(one.compute for one in slices),
        "memory": sum(one.memory for one in slices),
        "slices": tuple(slices),
        "used_compute": None if None in used else sum(one or 0 for one in used),
        "used_memory": None if None in used else sum(one.used_memory or 0 for one in slices),
    }
    return GpuShown(**{**given, **more})


def pod_of(one: SliceShown, *, node: str, at: float) -> PodShown:
    """The pod of a slice."""
    namespace, _, name = one.pod.partition("/")
    return PodShown(
        uid=one.pod,
        namespace=namespace,
        name=name,
        owner=Owner(namespace=namespace, kind="Job", name=name.rpartition("-")[0] or name),
        stage=Stage.RUNNING,
        phase="Running",
        queue=one.queue,
        node=node,
        compute=one.compute,
        memory=one.memory,
        created=second_time(at),
    )


def waits(pod: str, *, queue: str, compute: int, since: float, why: str) -> WaitingShown:
    """Somebody who waits."""
    return WaitingShown(
        pod=pod,
        queue=queue,
        user="team",
        priority=0,
        since=second_time(since),
        compute=compute,
        memory=compute * SIZE // 100,
        reason="NoRoom",
        why=why,
    )


def queue_row(name: str, *, used: int, guarantee: int, fair: int, waiting: int = 0, depth: int = 0) -> QueueRow:
    """A queue."""
    part = Part(
        guarantee=guarantee,
        limit=None,
        weight=1,
        lending_limit=None,
        borrowing_limit=None,
        used=used,
        borrowed=max(0, used - guarantee),
        fair_share=fair,
        asked=0,
    )
    return QueueRow(
        name=name,
        parent="",
        depth=depth,
        leaf=True,
        compute=part,
        memory=part,
        running=None,
        waiting=waiting,
        priority=0,
        stop="",
        told_by="status",
    )


def state_of(nodes: Sequence[NodeShown], *, waiting: Sequence[WaitingShown] = (), used: bool = True) -> State:
    """All of it together."""
    gpus = [one for node in nodes for one in node.gpus]
    slices = [(one, card.node) for card in gpus for one in card.slices]
    pods = {one.pod: pod_of(one, node=node, at=AT - 60 * (7 * n % 600)) for n, (one, node) in enumerate(slices)}
    by_queue = {name: sum(one.compute for one, _ in slices if one.queue == name) for name in QUEUES}
    each = 100 * len(gpus) // len(QUEUES)
    return State(
        at=AT,
        used_at=AT if used else None,
        totals=Totals(
            nodes=len(nodes),
            gpus=len(gpus),
            gpus_sick=sum(one.health is Health.SICK for one in gpus),
            compute=100 * len(gpus),
            compute_granted=sum(one.compute for one in gpus),
            compute_used=sum(one.used_compute or 0 for one in gpus) if used else None,
            memory=SIZE * len(gpus),
            memory_granted=sum(one.memory for one in gpus),
            memory_used=sum(one.used_memory or 0 for one in gpus) if used else None,
            running=len(pods),
            waiting=len(waiting),
        ),
        queues=[
            queue_row(name, used=used_by, guarantee=each * 3 // 4, fair=each, waiting=len(waiting) // 4)
            for name, used_by in by_queue.items()
        ],
        nodes=tuple(nodes),
        pods=tuple(pods.values()),
        waiting=tuple(waiting),
    )


def busy(*, nodes: int, seed: int = 3, used: bool = True) -> State:
    """So many nodes of eight GPUs, about five pods on each card, and as many that wait as there are cards."""
    chance = random.Random(seed)
    made = [_busy_node(f"a100-{number:03}", chance, used=used) for number in range(1, nodes + 1)]
    waiting = [
        waits(
            f"team-{number % 5}/{chance.choice(_PROGRAMS)}-{number}",
            queue=QUEUES[number % len(QUEUES)],
            compute=chance.choice((50, 100, 200, 800)),
            since=AT - 30 * (number + 1),
            why="no node has room for it now",
        )
        for number in range(2 * nodes)
    ]
    return state_of(made, waiting=waiting, used=used)


def _busy_node(name: str, chance: random.Random, *, used: bool) -> NodeShown:
    cards = [gpu(name, index, _busy_slices(f"{name}-{index}", chance, used=used)) for index in range(8)]
    if chance.random() < 0.2:
        cards[7] = gpu(name, 7, health=Health.SICK, reason="XID 79: it has fallen off the bus")
    return NodeShown(name=name, out="", driver="580", gpus=tuple(cards))


def _busy_slices(place: str, chance: random.Random, *, used: bool) -> list[SliceShown]:
    free, found = 100, list[SliceShown]()
    while free >= 10 and chance.random() < 0.9:
        compute = min(free, chance.choice((10, 10, 20, 20, 30, 50)))
        free -= compute
        number = len(found)
        found.append(
            piece(
                f"team-{chance.randrange(5)}/{chance.choice(_PROGRAMS)}-{place[-5:]}-{number}",
                compute,
                used=round(compute * chance.random()) if used else None,
                queue=chance.choice(QUEUES),
            )
        )
    return found
