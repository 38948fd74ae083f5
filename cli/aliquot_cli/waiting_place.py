"""Where in its queue a pod stands, told anew whenever that has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aliquot_cli.cluster import Connection
from aliquot_cli.options import Call
from aliquot_cli.reading import in_force, read_everything, read_plan
from aliquot_cli.top.onlooker import renewed_every
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_core.objects import Lease, Pod
from aliquot_kube.changes import Change
from aliquot_kube.errors import ForbiddenError
from aliquot_kube.mirror import Mirror
from aliquot_scheduler.centre.watches import Watches
from aliquot_scheduler.picture.hearing import deaf_after
from aliquot_scheduler.picture.picture import picture_of
from aliquot_scheduler.queues.said.entry import plan_of
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.status import read_status

# Nobody reads faster. To put thousands in order takes a second, and a hundred people may wait: so this is to take a
# hundredth of a processor for each, and less where it is short of them.
_AT_MOST_EVERY = 1.0
_PART_OF_TIME = 100


async def tell_places(
    uid: str,
    *,
    connection: Connection,
    call: Call,
    clock: Clock,
    random: Random,
    tell: Callable[[str], None],
) -> None:
    """Tell until cancelled; nothing to whoever may not read all that it is worked out from."""
    names = call.names
    leases = await _leases(connection, names=names)
    if leases is None:
        return
    settings = in_force(leases, call=call).queues
    deaf = deaf_after(renewed_every(leases))
    watches = Watches(transport=connection.transport, clock=clock, random=random, names=names, deaf=deaf)
    changed = asyncio.Event()

    def note(_: Change[Any]) -> None:
        changed.set()

    mirrors: Sequence[Mirror[Any]] = (watches.queues, watches.namespaces, watches.nodes, watches.leases, watches.pods)
    async with asyncio.TaskGroup() as following:
        for mirror in mirrors:
            mirror.subscribe(note)
            following.create_task(mirror.run())
        for mirror in mirrors:
            await mirror.synced()
        while True:
            await changed.wait()
            changed.clear()
            began = clock.monotonic()
            if place := _place(uid, watches, names=names, settings=settings, wall=clock.wall()):
                tell(place)
            await clock.sleep(max(_AT_MOST_EVERY, _PART_OF_TIME * (clock.monotonic() - began)))


async def _leases(connection: Connection, *, names: Names) -> Sequence[Lease] | None:
    """None to whoever may not read them and all else."""
    try:
        await read_plan(connection.client, names=names)
    except ForbiddenError:
        return None
    everything = await read_everything(connection.client, names=names)
    return everything.leases if everything else None


def _place(uid: str, watches: Watches, *, names: Names, settings: QueueSettings, wall: float) -> str:
    pods = list(watches.pods.objects.values())
    pod = next((one for one in pods if one.metadata.uid == uid), None)
    if pod is None or not pod.spec.scheduling_gates:
        return ""
    queues = list(watches.queues.objects.values())
    picture = picture_of(
        nodes=watches.nodes.objects.values(), leases=watches.leases.objects.values(), pods=pods, names=names, wall=wall
    )
    told = {queue.metadata.name: status for queue in queues if (status := read_status(queue.status))}
    standing = Standing(
        picture=picture,
        plan=plan_of(queues, watches.namespaces.objects.values(), names=names),
        pods=pods,
        names=names,
        wall=wall,
        told=told,
        settings=settings,
    )
    return _sentence(pod, standing)


def _sentence(pod: Pod, standing: Standing) -> str:
    waiter = standing.waiter(pod)
    before = standing.before(waiter) if waiter else None
    if waiter is None or before is None:
        return ""
    if not standing.plan.specs:
        return f"place {len(before) + 1} of all that wait"
    here = sum(one.queue == waiter.queue for one in before) + 1
    of_all = f", {len(before) + 1} of all that wait" if len(before) + 1 != here else ""
    return f"place {here} in queue {waiter.queue}{of_all}"
