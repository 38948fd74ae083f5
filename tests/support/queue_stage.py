"""A small cluster with queues before it: pods are submitted, let in, bound and ended, and time is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from aliquot_core.objects import OwnerReference, Pod, Quantity
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.deciding.turns import Turn
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.showings import written
from aliquot_scheduler.rules.judging import NO_RULES, Rules
from support.centre import NAMES, WALL, asks, gpus, make_lease, make_node, picture_with, running, with_grant

GATED = {"schedulingGates": [{"name": NAMES.gate}]}
DAY = "2026-11-21T"
A100 = "NVIDIA A100-SXM4-80GB"
H100 = "NVIDIA H100 80GB HBM3"


def queue(
    parent: str = "",
    *,
    guarantee: int | None = None,
    limit: int | None = None,
    memory: Quota | None = None,
    lend: int | None = None,
    weight: int = 1,
    **more: Any,
) -> QueueSpec:
    """A queue with a quota of compute that takes pods of every namespace."""
    compute = Quota(guarantee=guarantee, limit=limit, lending_limit=lend, weight=weight)
    return QueueSpec(parent=parent, compute=compute, memory=memory or Quota(), **({"namespaces": ("*",)} | more))


def requesting(pod: Pod, requests: Mapping[str, Quantity]) -> Pod:
    """The same pod, whose first container requests CPU and the like too."""
    first, *others = pod.spec.containers
    resources = msgspec.structs.replace(first.resources, requests={**first.resources.requests, **requests})
    containers = [msgspec.structs.replace(first, resources=resources), *others]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))


class Stage:
    """The queues with a real desk and a real picture behind them."""

    def __init__(
        self,
        specs: Mapping[str, QueueSpec] | None = None,
        *,
        nodes: Sequence[int] = (4,),
        memory: int = 80_000,
        models: Mapping[int, str] | None = None,
        settings: QueueSettings | None = None,
        rules: Rules = NO_RULES,
    ) -> None:
        """`nodes` is how many cards each has, `models` which, by its number; else they are A100."""
        self.now = 0.0
        self.picture = picture_with(
            *(
                make_node(f"n{at}", gpus(f"n{at}", count, memory=memory, model=(models or {}).get(at, A100)))
                for at, count in enumerate(nodes)
            )
        )
        self.queues = Queues(
            names=NAMES,
            random=lambda: 0.0,
            picture=self.picture,
            settings=settings or QueueSettings(),
            rules=rules,
        )
        self.desk = Desk(picture=self.picture, names=NAMES, turns=self.queues, rules=rules)
        self.pods: dict[str, Pod] = {}
        # Whoever else listens to the watch.
        self.hears: Callable[[Change[Pod]], object] = lambda _: None
        self.turns: dict[str, Turn] = {}
        self._born = 0
        self.queues.recall({}, wall=WALL, now=0.0)
        self.queues.queues_seen(specs or {})

    def submit(
        self,
        uid: str,
        compute: int | None = 100,
        memory: int | None = 1000,
        *,
        queue: str = "",
        user: str = "team",
        priority: int = 0,
        notes: Mapping[str, str] | None = None,
        group: str = "",
        made_by: str = "",
        labels: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
        requests: Mapping[str, Quantity] | None = None,
    ) -> Pod:
        """A pod joins; each is younger than the one before."""
        self._born += 1
        labels = dict(labels or {}) | ({NAMES.queue: queue} if queue else {})
        labels |= {NAMES.group: group} if group else {}
        pod = asks(
            uid,
            compute,
            memory,
            annotations={NAMES.of(short): text for short, text in (notes or {}).items()},
            spec={**GATED, "priority": priority, **(spec or {})},
            labels=labels,
            namespace=user,
            creationTimestamp=f"{DAY}{self._born // 3600:02}:{self._born // 60 % 60:02}:{self._born % 60:02}Z",
        )
        pod = requesting(pod, requests or {})
        if made_by:
            owner = OwnerReference(kind="Job", name=made_by, uid=made_by, controller=True)
            pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=[owner]))
        self.see(pod)
        return pod

    def see(self, pod: Pod) -> None:
        """The watch tells of a pod."""
        old = self.pods.get(pod.metadata.uid)
        self.pods[pod.metadata.uid] = pod
        self.desk.pod_seen(pod)
        self.queues.pod_seen(pod)
        self.hears(Modified(old=old, new=pod) if old else Added(new=pod))

    def beat(self) -> None:
        """All agents show that they live."""
        renewed = datetime.fromtimestamp(WALL + self.now, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        for known in self.picture.nodes:
            self.picture.tell_time(self.now)
            self.picture.lease_seen(make_lease(known, renewed=renewed), wall=WALL + self.now)

    def round(self, *, after: float = 0.0) -> list[str]:
        """Time passes, then turns are given out; whose they are."""
        self.now += after
        self.beat()
        self.desk.tell_time(self.now)
        found = list(self.queues.turns(self.desk, now=self.now))
        self.turns |= {turn.pod.metadata.uid: turn for turn in found}
        return [turn.pod.metadata.uid for turn in found]

    def bind(self, *uids: str) -> None:
        """Pods that were let in are bound where they were promised room, and run at once."""
        for uid in uids:
            promise = self.turns[uid].promise
            assert promise is not None
            pod = with_grant(self.pods[uid], promise.plan.grant)
            notes = pod.metadata.annotations
            if queue := self.queues.charged_in(uid):
                notes = notes | {NAMES.charged: queue}
            notes = notes | self._run_of(uid)
            meta = msgspec.structs.replace(pod.metadata, annotations=notes)
            spec = msgspec.structs.replace(pod.spec, scheduling_gates=[])
            self.see(running(msgspec.structs.replace(pod, metadata=meta, spec=spec)))

    def run(self, *, after: float = 0.0) -> list[str]:
        """A round, and whoever was let in is bound; not who is only shown to an autoscaler."""
        found = self.round(after=after)
        self.bind(*self.promised(found))
        return found

    def promised(self, uids: Sequence[str]) -> list[str]:
        """Those of them whose turn came with room."""
        return [uid for uid in uids if self.turns[uid].promise]

    def lift(self, *uids: str) -> None:
        """The gates of pods that were let in are lifted, and the watch tells of that."""
        for uid in uids:
            pod = self.pods[uid]
            queue = self.queues.charged_in(uid)
            notes = pod.metadata.annotations | ({NAMES.charged: queue} if queue else {}) | self._run_of(uid)
            if (turn := self.turns.get(uid)) and turn.shown:
                notes |= {NAMES.shown: written(wall=WALL + self.now, times=turn.shown, queue=turn.queue)}
            if turn and turn.promise:
                notes |= {NAMES.promised: " ".join((turn.promise.node, *turn.promise.plan.claims))}
            meta = msgspec.structs.replace(pod.metadata, annotations=notes)
            self.see(
                msgspec.structs.replace(pod, metadata=meta, spec=msgspec.structs.replace(pod.spec, scheduling_gates=[]))
            )

    def _run_of(self, uid: str) -> dict[str, str]:
        turn = self.turns.get(uid)
        return {NAMES.group_run: turn.run} if turn and turn.run else {}

    def end(self, *uids: str) -> None:
        """Pods run to their end."""
        for uid in uids:
            pod = self.pods[uid]
            self.see(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Succeeded")))
            self.gone(uid)

    def gone(self, uid: str) -> None:
        """A pod is deleted."""
        old = self.pods.pop(uid)
        self.desk.pod_gone(old)
        self.queues.pod_gone(uid)
        self.hears(Deleted(old=old))

    def held(self, queue: str) -> int:
        """How much compute those are charged with who were let in by it, whether or not it is there still."""
        return sum(one.amounts[0] for one in self.queues.books.ledger.charges().values() if one.queue == queue)

    def used(self, queue: str) -> tuple[int, int]:
        """What a queue is charged with: compute and memory."""
        compute, memory, *_ = self.queues.books.ledger.accounts[queue].used
        return compute, memory
