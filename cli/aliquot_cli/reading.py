"""What the commands for people read of a cluster: as much as they may."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from aliquot_cli.options import Call
from aliquot_core.disruptions import PodDisruptionBudget
from aliquot_core.names import Names
from aliquot_core.objects import Lease, Namespace, Node, Pod, Queue
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ForbiddenError, NotFoundError
from aliquot_kube.resources import DISRUPTION_BUDGETS, LEASES, NAMESPACES, NODES, PODS, queues_of
from aliquot_scheduler.in_force import InForce, read_in_force
from aliquot_scheduler.picture.picture import Picture, picture_of
from aliquot_scheduler.queues.said.entry import Plan, plan_of
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.status import QueueStatus, read_status
from aliquot_scheduler.rules.expressions import RuleSettings
from aliquot_scheduler.rules.installed import rules_in_force
from aliquot_scheduler.rules.judging import Rules


class Everything(msgspec.Struct, frozen=True, kw_only=True):
    """All that a picture is made of."""

    nodes: Sequence[Node]
    leases: Sequence[Lease]
    pods: Sequence[Pod]

    def picture(self, *, names: Names, wall: float) -> Picture:
        """Who holds what of which node at this moment."""
        return picture_of(nodes=self.nodes, leases=self.leases, pods=self.pods, names=names, wall=wall)


async def read_everything(client: KubeClient, *, names: Names) -> Everything | None:
    """Nodes, heart-beats and pods of the whole cluster; None for whoever may not read all of it."""
    try:
        nodes, leases, pods = await asyncio.gather(
            client.list(NODES), client.list(LEASES, namespace=names.namespace), client.list(PODS)
        )
    except ForbiddenError:
        return None
    return Everything(nodes=nodes, leases=leases, pods=pods)


def in_force(leases: Sequence[Lease], *, call: Call) -> InForce:
    """The settings of who leads; whatever it does not tell is as the caller has it."""
    queues, rules = call.sources.resolve("queues", QueueSettings), call.sources.resolve("rules", RuleSettings)
    return read_in_force(leases, names=call.names, own=InForce(queues=queues.value, rules=rules.value))


def rules_told(told: InForce) -> Rules:
    """The rules by which nodes are judged: those that the leader tells, and those that are installed here."""
    return rules_in_force(told.rules or RuleSettings())


def standing_of(
    everything: Everything, picture: Picture, *, plan: Plan, told: Mapping[str, QueueStatus], call: Call, wall: float
) -> Standing:
    """How the queues stand, by the settings of who leads."""
    settings = in_force(everything.leases, call=call)
    return Standing(
        picture=picture,
        plan=plan,
        pods=everything.pods,
        names=call.names,
        wall=wall,
        told=told,
        settings=settings.queues,
        rules=rules_told(settings),
    )


async def read_plan(client: KubeClient, *, names: Names) -> tuple[Plan, dict[str, QueueStatus]]:
    """All queues with their status; where they are not installed there are none."""
    queues, namespaces = await asyncio.gather(read_queues(client, names=names), read_namespaces(client))
    found = ((queue.metadata.name, read_status(queue.status)) for queue in queues)
    return plan_of(queues, namespaces, names=names), {name: status for name, status in found if status}


async def read_budgets(client: KubeClient) -> list[PodDisruptionBudget]:
    """All of them, as far as they may be read; none where there is no such thing."""
    try:
        return await client.list(DISRUPTION_BUDGETS)
    except (ForbiddenError, NotFoundError):
        return []


async def read_queues(client: KubeClient, *, names: Names) -> list[Queue]:
    """All of them; none where they are not installed."""
    try:
        return await client.list(queues_of(names))
    except NotFoundError:
        return []


async def read_namespaces(client: KubeClient) -> list[Namespace]:
    """All of them, as far as they may be read."""
    try:
        return await client.list(NAMESPACES)
    except ForbiddenError:
        # A tenant sees which queue is whose home from its own pods.
        return []
