"""`aliquot explain`: why a pod is where it is, or why it waits."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click
import msgspec

from aliquot_cli.advice import advice
from aliquot_cli.cluster import connected
from aliquot_cli.handing_out import hand_out
from aliquot_cli.held_how import held_how
from aliquot_cli.names_of import complete_pods
from aliquot_cli.options import (
    FORMS,
    Call,
    PodName,
    form_option,
    make_call,
    namespace_option,
    page_option,
    server_options,
)
from aliquot_cli.pods_found import no_pod
from aliquot_cli.printing import printed
from aliquot_cli.reading import in_force, read_budgets, read_everything, read_plan, rules_told
from aliquot_cli.tables import table
from aliquot_cli.usage import read_used
from aliquot_core.counting import agreed, counted
from aliquot_core.names import Names
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ForbiddenError, NotFoundError
from aliquot_kube.resources import PODS
from aliquot_scheduler.admission.profile import who_asks
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.explaining import Explanation, QueuePlace, by_its_condition
from aliquot_scheduler.explaining import explain as explain_pod
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.telling.status import QueueStatus
from aliquot_scheduler.queues.telling.why import NO_QUEUE_FOR_IT
from aliquot_scheduler.resident import HeldSlice


@click.command()
@click.argument("pod", type=PodName(), metavar="[NAMESPACE/]POD", shell_complete=complete_pods)
@namespace_option
@page_option
@server_options
@form_option(usual="text", forms=FORMS[1:])
def explain(*, pod: tuple[str, str], namespace: str, form: str, page: str, **server: Any) -> None:
    """Say why a pod is where it is, or why it waits, with numbers.

    How its slices are held, what of that is hard and what cooperative, is said of each container. What its workload
    uses of what it asks is shown where the centre's page tells it.

    \b
    Examples:
      aliquot explain -n team-a trainer-0
      aliquot explain team-a/trainer-0
    """
    said, name = pod
    if said and namespace and said != namespace:
        raise click.UsageError(f"pod {said}/{name} is not in namespace {namespace} (-n): leave one of both out")
    told = asyncio.run(_explained(name, namespace=said or namespace, call=make_call(**server), page=page))
    hand_out(printed(told, form=form, text=lambda _: _text(told), lines=lambda: [f"pod/{name}"]))


async def _explained(pod: str, *, namespace: str, call: Call, page: str) -> Explanation:
    names = call.names
    async with connected("explain", place=call.place) as connection:
        client, namespace = connection.client, namespace or connection.namespace
        try:
            wanted = await client.get(PODS, name=pod, namespace=namespace)
        except NotFoundError:
            raise no_pod(namespace, pod) from None
        everything = await read_everything(client, names=names)
        if everything is None:
            return by_its_condition(wanted, names=names)
        plan, statuses = await _queues(client, names=names)
        budgets = await read_budgets(client)
        used = await read_used(connection.place, page=page)
    settings = in_force(everything.leases, call=call)
    told = explain_pod(
        wanted,
        nodes=everything.nodes,
        leases=everything.leases,
        pods=everything.pods,
        names=names,
        wall=time.time(),
        plan=plan,
        statuses=statuses,
        settings=settings.queues,
        rules=rules_told(settings),
        scheduler=who_asks(wanted.spec.scheduler_name, call.sources.resolve("admission", AdmissionSettings).value),
        budgets=budgets,
    )
    lines = advice(wanted, pods=everything.pods, used=used, names=names, wall=time.time())
    return msgspec.structs.replace(told, advice=lines, held=held_how(told.slices))


async def _queues(client: KubeClient, *, names: Names) -> tuple[Plan | None, dict[str, QueueStatus]]:
    """Who may not see queues is told of nodes alone."""
    try:
        return await read_plan(client, names=names)
    except ForbiddenError:
        return None, {}


def _text(told: Explanation) -> str:
    reason = f" ({told.reason})" if told.reason else ""
    parts = [f"{told.pod}: {told.state}{reason}\n  {told.summary}"]
    if told.asked:
        parts.append("\n".join(("asked", *(f"  {line}" for line in told.asked))))
    if told.slices:
        heading = ("CONTAINER", "GPU", "MODEL", "COMPUTE", "MEMORY", "ISOLATION", "OTHER PODS")
        parts.append(table([heading, *(_row(one) for one in told.slices)]))
    if told.held:
        parts.append("\n".join(("isolation", *(f"  {line}" for line in told.held))))
    if told.advice:
        parts.append("\n".join(("use", *(f"  {line}" for line in told.advice))))
    if told.queue:
        parts.append(_place(told.queue, reason=told.reason))
    if told.nodes:
        answers = ((one.node, "yes" if one.fits else "no", one.why) for one in told.nodes)
        parts.append(table([("NODE", "ROOM", "WHY"), *answers]))
    return "\n\n".join(parts)


def _row(one: HeldSlice) -> tuple[str, ...]:
    compute = f"{one.compute} %" + (f" (to {one.limit} %)" if one.limit > one.compute else "")
    return one.container, one.gpu, one.model, compute, f"{one.memory} MiB", one.isolation or "-", str(one.others)


def _place(place: QueuePlace, *, reason: str) -> str:
    where = f"place {place.place} of all that wait" if place.place else _nowhere(place, reason)
    waiting = f"{counted(place.waiting, 'pod')} {agreed(place.waiting, 'waits', 'wait')}"
    lines = [f"queue {place.queue}", f"  user {place.user}, {where}; {waiting} in this queue"]
    if place.before:
        lines.append(f"  just before it: {', '.join(place.before)}")
    lines += [f"  {line}" for line in place.quota]
    if place.usual_wait:
        lines.append(f"  {place.usual_wait}")
    return "\n".join(lines)


def _nowhere(place: QueuePlace, reason: str) -> str:
    if reason == NO_QUEUE_FOR_IT:
        return "in no line, since it may not wait in this queue"
    return "in no line, since it never fits as things are" if place.never else "in no line"
