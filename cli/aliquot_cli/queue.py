"""`aliquot queue`: how the queues stand, and who is before whom."""

from __future__ import annotations

import asyncio
import difflib
import time
from contextlib import suppress
from typing import Any

import click

from aliquot_cli.cluster import connected
from aliquot_cli.handing_out import hand_out
from aliquot_cli.names_of import complete_queues
from aliquot_cli.options import FORMS, Call, ObjectName, form_option, make_call, namespace_option, server_options
from aliquot_cli.printing import printed
from aliquot_cli.queue_text import answer_text, rows_text
from aliquot_cli.reading import read_budgets, read_everything, read_plan, standing_of
from aliquot_core.errors import UserError
from aliquot_core.names import Names
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ForbiddenError, NotFoundError
from aliquot_kube.resources import NAMESPACES
from aliquot_scheduler.centre.view_writer import views_of
from aliquot_scheduler.in_force import told_in_force
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.telling.forms import NO_QUEUE, QueueAnswer, QueueRow
from aliquot_scheduler.queues.telling.gone import answer_of_gone
from aliquot_scheduler.queues.telling.of_namespace import answer_of_namespace, rows_of_namespace
from aliquot_scheduler.queues.telling.rows import rows
from aliquot_scheduler.queues.telling.views import read_view
from aliquot_scheduler.queues.telling.whole import answer, shown
from aliquot_scheduler.reclaim.inquiry import Inquiry


class NoQueueError(UserError):
    """A queue that is not there, or that the person may not see."""


class _QueueName(ObjectName):
    """A queue's name, or what stands in the table for those that are gone."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value if value == NO_QUEUE else super().convert(value, param, ctx)


@click.command()
@click.argument("name", required=False, type=_QueueName(), shell_complete=complete_queues)
@server_options
@namespace_option
@form_option(usual="text", forms=FORMS[1:])
def queue(*, name: str | None, namespace: str, form: str, **server: Any) -> None:
    """Show how the queues stand: guaranteed, used, borrowed, due, waiting.

    FAIR SHARE is what a queue is due by what all of them ask now, and by what they say of single models. It leaves out
    on which nodes and GPUs pods can lie otherwise, and that pods that are never to be evicted stay. Memory is shown
    where a queue speaks of it, and of all with -o wide.

    With NAME, all of that queue: who is before whom in it, and why each pod waits; of a queue that was deleted, which
    pods still run and wait as its own, and with '(no queue)' those of all such. Whoever may not read queues is told
    of those that a namespace is shown (-n); to whoever may, -n shows the queues that the namespace is at home in or has
    pods in, and with NAME its pods alone. Exits 3 if there is no such queue and no pod of it, no such namespace, or
    none that you may see; 4 if the API server can't be asked.

    \b
    Examples:
      aliquot queue
      aliquot queue -o wide
      aliquot queue -n vision
      aliquot queue team-a -o json
    """
    call = make_call(**server)
    hand_out(_printed(asyncio.run(_told(name, namespace=namespace, call=call)), form=form, names=call.names))


async def _told(name: str | None, *, namespace: str, call: Call) -> list[QueueRow] | QueueAnswer:
    names = call.names
    async with connected("queue", place=call.place) as connection:
        client = connection.client
        if namespace:
            await _check_namespace(client, namespace)
        try:
            plan, statuses = await read_plan(client, names=names)
        except ForbiddenError as error:
            return await _shown(name, client, namespace=namespace or connection.namespace, names=names, why=error)
        everything = await read_everything(client, names=names)
        budgets = await read_budgets(client) if everything and name is not None else []
    standing, led, wall = None, False, time.time()
    if everything is not None:
        led = told_in_force(everything.leases, names=names) is not None
        picture = everything.picture(names=names, wall=wall)
        standing = standing_of(everything, picture, plan=plan, told=statuses, call=call, wall=wall)
    if name is None:
        found = rows(plan, statuses=statuses, standing=standing)
        return rows_of_namespace(namespace, found, plan, standing=standing) if namespace else found
    due = Inquiry(standing, wall=wall, budgets=budgets).why if standing else None
    if standing and due and name not in plan.tree.nodes and (gone := answer_of_gone(name, standing, due=due)):
        return answer_of_namespace(namespace, gone) if namespace else gone
    _check(name, plan)
    if standing is None or due is None:
        return answer(name, plan, statuses=statuses, standing=None)
    whole = answer(name, plan, statuses=statuses, standing=standing, led=led, due=due)
    return answer_of_namespace(namespace, whole) if namespace else whole


async def _check_namespace(client: KubeClient, name: str) -> None:
    """Whether it is there, as far as the person may know."""
    with suppress(ForbiddenError):
        try:
            await client.get(NAMESPACES, name=name)
        except NotFoundError:
            remedy = "`kubectl get namespaces` lists all"
            raise NoQueueError("there is no such namespace", where=f"namespace {name}", remedy=remedy) from None


async def _shown(
    name: str | None, client: KubeClient, *, namespace: str, names: Names, why: ForbiddenError
) -> list[QueueRow] | QueueAnswer:
    """What a namespace is shown, for whoever may look there and not at queues."""
    try:
        found = await client.list(views_of(names), namespace=namespace)
    except (ForbiddenError, NotFoundError):
        remedy = (
            "ask an operator for the ClusterRole aliquot-queue-viewer; or name a namespace that you may view (-n): "
            "you are told of its queues"
        )
        raise NoQueueError(f"you may not see queues ({why.what})", where="queues", remedy=remedy) from None
    views = {one.metadata.name: view for one in found if (view := read_view(one.status))}
    answers = {one: shown(one, view, namespace=namespace) for one, view in sorted(views.items())}
    if name is None:
        return [one.row for one in answers.values()]
    if name not in answers:
        what = f"namespace {namespace} is shown no such queue, and you may not see others ({why.what})"
        raise NoQueueError(what, where=f"queue {name}", remedy="`aliquot queue` lists those that it is shown")
    return answers[name]


def _check(name: str, plan: Plan) -> None:
    if name == NO_QUEUE:
        what = "no pod names or is charged to a queue that is not there, as far as you may see pods and nodes"
        raise NoQueueError(what, where="queues", remedy="`aliquot queue` lists all that are there")
    known = sorted(plan.tree.nodes.keys() - {ROOT})
    if name in known:
        return
    if name in plan.specs:
        raise NoQueueError(
            "it hangs on nothing, so that no pods wait in it", where=f"queue {name}", remedy="mend its spec.parent"
        )
    close = difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean {close[0]}?" if close else "`aliquot queue` lists all"
    raise NoQueueError("there is no such queue", where=f"queue {name}", remedy=remedy)


def _printed(told: list[QueueRow] | QueueAnswer, *, form: str, names: Names) -> str:
    return printed(
        told,
        form=form,
        text=lambda wide: _text(told, wide=wide),
        lines=lambda: [
            f"queue.{names.domain}/{row.name}"
            for row in (told if isinstance(told, list) else [] if told.gone else [told.row])
            if row.name != NO_QUEUE
        ],
    )


def _text(told: list[QueueRow] | QueueAnswer, *, wide: bool) -> str:
    if isinstance(told, list):
        return rows_text(told, wide=wide)
    return answer_text(told, wide=wide, now=time.time())
