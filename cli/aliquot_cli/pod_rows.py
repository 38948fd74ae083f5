"""Pods as `aliquot ps` and `aliquot top` list them: who has a slice, who waits, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aliquot_cli.pod_stages import Progress, Stage, progress_of
from aliquot_core.errors import AliquotError
from aliquot_core.grant import readable_grant
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import asks, parse_request
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.telling.forms import WaitingPod
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.whole import waiting_pods

# Whoever holds something comes first, then who waits in the order of turns, then what is over.
_ORDER = {
    Stage.RUNNING: 0,
    Stage.STARTING: 0,
    Stage.STOPPING: 0,
    Stage.PLACING: 1,
    Stage.WAITING: 2,
    Stage.DONE: 3,
    Stage.FAILED: 3,
}
_NO_PLACE = 1 << 30


class _Printed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Common settings of what is printed as JSON."""


class GpuPart(_Printed, frozen=True, kw_only=True):
    """What a pod holds of one GPU; the index is not known of a node that may not be read."""

    uuid: str
    index: int | None
    model: str
    compute: int
    memory: int


class Used(_Printed, frozen=True, kw_only=True):
    """What a pod really uses; None is what nobody has told."""

    compute: int | None = None
    memory: int | None = None
    # Since when that is known (seconds since 1970), the most memory since, and what compute mostly kept within.
    since: float | None = None
    most_memory: int | None = None
    high_compute: int | None = None
    # How many launches passed before they were paid for, since its agent began.
    unpaid_launches: int | None = None


class PodRow(_Printed, frozen=True, kw_only=True):
    """A pod in a table; compute and memory are what it was granted, or what it asks."""

    namespace: str
    name: str
    state: Stage
    queue: str
    user: str
    node: str
    gpus: Sequence[GpuPart]
    compute: int | None
    memory: int | None
    used: Used
    created: str
    # Among all that wait; 0 is in no line.
    place: int
    why: str

    @property
    def key(self) -> str:
        """As people name it."""
        return f"{self.namespace}/{self.name}"


def pod_rows(
    pods: Iterable[Pod],
    *,
    names: Names,
    picture: Picture | None = None,
    standing: Standing | None = None,
    used: Mapping[str, Used] | None = None,
) -> list[PodRow]:
    """All that ask for slices, in the order in which people look for them; the standing is used up by it.

    Without a picture GPUs have no numbers, without a standing pods have no place, and the reason is what stands on the
    pod.
    """
    # The pods' own words first: what is asked of the standing changes it.
    waiting = {one.pod: one for one in waiting_pods(ROOT, standing)} if standing else {}
    found = [
        _row(pod, names=names, picture=picture, standing=standing, waiting=waiting, used=(used or {}).get(pod.key))
        for pod in pods
        if asks(pod, names=names)
    ]
    return sorted(found, key=_position)


def _position(row: PodRow) -> tuple[int, int, str, str]:
    return _ORDER[row.state], row.place or _NO_PLACE, row.created, row.key


def _row(
    pod: Pod,
    *,
    names: Names,
    picture: Picture | None,
    standing: Standing | None,
    waiting: Mapping[str, WaitingPod],
    used: Used | None,
) -> PodRow:
    meta, progress, place = pod.metadata, progress_of(pod, names=names), waiting.get(pod.key)
    parts = _parts(pod, names=names, picture=picture)
    compute, memory = _amounts(pod, parts, names=names)
    waiter = standing.waiter(pod) if standing else None
    return PodRow(
        namespace=meta.namespace,
        name=meta.name,
        state=progress.stage,
        queue=waiter.queue if waiter else meta.labels.get(names.queue, ""),
        user=(waiter.user if waiter else "") or meta.namespace,
        node=pod.spec.node_name,
        gpus=parts,
        compute=compute,
        memory=memory,
        used=used or Used(),
        created=meta.creation_timestamp or "",
        place=place.place if place else 0,
        why=_why(progress, place),
    )


def _why(progress: Progress, place: WaitingPod | None) -> str:
    """The numbers of this moment before the sentence that was written some time ago."""
    if progress.stage is not Stage.WAITING or place is None:
        return progress.why
    return place.why or progress.why or "its turn comes"


def _parts(pod: Pod, *, names: Names, picture: Picture | None) -> list[GpuPart]:
    # `aliquot explain` says what is wrong with one; here the pod is listed all the same.
    grant = readable_grant(pod.metadata.annotations.get(names.grant))
    known = picture.nodes.get(pod.spec.node_name) if picture else None
    sums: dict[str, tuple[int, int]] = {}
    for _, part in grant.slices() if grant and not pod.ended else ():
        compute, memory = sums.get(part.gpu, (0, 0))
        sums[part.gpu] = compute + part.compute.value, memory + part.memory.value
    return [
        GpuPart(
            uuid=uuid,
            index=gpu.index if (gpu := known.inventory.gpu(uuid) if known else None) else None,
            model=gpu.model if gpu else "",
            compute=compute,
            memory=memory,
        )
        for uuid, (compute, memory) in sums.items()
    ]


def _amounts(pod: Pod, parts: Sequence[GpuPart], *, names: Names) -> tuple[int | None, int | None]:
    """What it holds; before that what it asks, where memory may be left to the card."""
    if parts:
        return sum(part.compute for part in parts), sum(part.memory for part in parts)
    try:
        request = parse_request(pod, names=names)
    except AliquotError:
        return None, None
    memory = [one.memory.value for one in request.containers if one.memory is not None]
    return sum(one.compute.value for one in request.containers), sum(memory) if memory else None
