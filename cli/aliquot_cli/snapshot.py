"""`aliquot snapshot`: a cluster at this instant in a file, without secrets; and what a leader would decide of it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from aliquot_cli.cluster import connected
from aliquot_cli.handing_out import hand_out, standard_output, written_down
from aliquot_cli.options import DATA, Call, form_option, make_call, server_options
from aliquot_cli.printing import as_data, is_data
from aliquot_cli.queue_text import waiting_text
from aliquot_cli.reading import in_force, read_everything, read_namespaces, read_queues, rules_told
from aliquot_core.counting import agreed, counted
from aliquot_core.errors import ClusterError
from aliquot_core.names import MIX, MIX_KEY, MOVED_KEY
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ForbiddenError, NotFoundError
from aliquot_kube.resources import CONFIG_MAPS, DISRUPTION_BUDGETS
from aliquot_scheduler.picture.picture import picture_of
from aliquot_scheduler.queues.said.entry import plan_of
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.telling.forms import WaitingPod
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.status import read_status
from aliquot_scheduler.queues.telling.whole import waiting_pods
from aliquot_scheduler.reclaim.inquiry import Inquiry
from aliquot_scheduler.simulating.deciding import Decisions, Replayed
from aliquot_scheduler.simulating.snapshot import Snapshot, SnapshotError, packed, unpacked, without_secrets

# Instead of a file: what other commands are led into, or come from.
_STREAM = "-"


class Replay(Decisions, frozen=True, kw_only=True):
    """What is decided, and why the others wait."""

    pods: Sequence[WaitingPod]


class HiddenClusterError(ClusterError):
    """A cluster that this account may not see whole."""


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--replay", is_flag=True, help="Read the file, ask no cluster, and print what would be decided.")
@server_options
@form_option(usual="text", forms=DATA, text="How to print what is decided.")
def snapshot(*, path: Path, replay: bool, form: str, **server: Any) -> None:
    """Write a cluster down as it is at this instant, as far as decisions depend on it; or replay such a file.

    Images, commands, environments and messages are left out, and all annotations but Aliquot's own and those that rules
    of the settings read by name. Names and labels are in it. A FILE of - is standard output, or standard input to
    replay.

    \b
    Examples:
      aliquot snapshot cluster.json.gz
      aliquot snapshot --replay cluster.json.gz
      aliquot snapshot - | aliquot snapshot --replay -
    """
    if replay:
        found = _read_file(path)
        told = _replayed(found)
        _warn(found)
        hand_out(as_data(told, form=form) if is_data(form) else _text(told, now=found.wall))
        return
    _check_free(path)
    found = without_secrets(asyncio.run(_taken(make_call(**server))))
    if str(path) == _STREAM:
        _warn(found)
        with written_down():
            standard_output().write(packed(found))
        return
    try:
        path.write_bytes(packed(found))
    except OSError as error:
        failed = f"can't be written: {error.strerror or error}"
        raise SnapshotError(failed, where=str(path), remedy="choose another place") from None
    sizes = {"node": len(found.nodes), "pod": len(found.pods), "queue": len(found.queues)}
    _warn(found)
    hand_out(f"{', '.join(counted(size, thing) for thing, size in sizes.items())}: {path}")


def _check_free(path: Path) -> None:
    """Before the cluster is asked."""
    if str(path) == _STREAM:
        if standard_output().isatty():
            raise SnapshotError(
                "a snapshot is packed, and nothing to read", where="standard output", remedy="send it to a file"
            )
    elif path.exists():
        raise SnapshotError("it is there already", where=str(path), remedy="name a file that is not")


def _warn(found: Snapshot) -> None:
    if found.unread:
        unread = " and ".join(found.unread)
        click.echo(f"aliquot: without {unread}, which this file's maker may not list: decisions may differ", err=True)
    if found.left_out:
        click.echo(f"aliquot: the file is without {' and '.join(found.left_out)}: decisions may differ", err=True)


def _read_file(file: Path) -> Snapshot:
    try:
        data = sys.stdin.buffer.read() if str(file) == _STREAM and sys.stdin else file.read_bytes()
    except OSError as error:
        failed = f"can't be read: {error.strerror or error}"
        raise SnapshotError(failed, where=str(file), remedy="name a file that `aliquot snapshot` wrote") from None
    return unpacked(data, where=str(file))


async def _taken(call: Call) -> Snapshot:
    async with connected("snapshot", place=call.place) as connection:
        return await read_snapshot(connection.client, call=call, wall=time.time())


async def read_snapshot(client: KubeClient, *, call: Call, wall: float) -> Snapshot:
    """Everything that a leader reads, and the settings of the one that leads."""
    names = call.names
    everything = await read_everything(client, names=names)
    if everything is None:
        told = "this account may not list all nodes, pods and heart-beats"
        raise HiddenClusterError(told, where="cluster", remedy="ask an operator")
    queues, namespaces = await asyncio.gather(read_queues(client, names=names), read_namespaces(client))
    # No API server is without a namespace.
    unread = [] if namespaces else ["namespaces"]
    try:
        budgets = await client.list(DISRUPTION_BUDGETS)
    except NotFoundError:
        budgets = []
    except ForbiddenError:
        budgets = []
        unread.append("disruption budgets")
    notebook = await _notebook(client, namespace=names.namespace)
    return Snapshot(
        wall=wall,
        names=names,
        settings=in_force(everything.leases, call=call),
        nodes=everything.nodes,
        leases=everything.leases,
        pods=everything.pods,
        queues=queues,
        namespaces=namespaces,
        budgets=budgets,
        mix=notebook.get(MIX_KEY, ""),
        moved=notebook.get(MOVED_KEY, ""),
        unread=unread,
    )


async def _notebook(client: KubeClient, *, namespace: str) -> Mapping[str, str]:
    """What the leader puts down for the next one."""
    try:
        return (await client.get(CONFIG_MAPS, name=MIX, namespace=namespace)).data
    except (NotFoundError, ForbiddenError):
        return {}


def _replayed(found: Snapshot) -> Replay:
    told = Replayed(found).decide()
    let_in = {one.pod for one in told.let_in}
    return Replay(
        let_in=told.let_in,
        room=told.room,
        moved=told.moved,
        waiting=told.waiting,
        pods=[one for one in _waiting(found) if one.pod not in let_in],
    )


def _waiting(found: Snapshot) -> list[WaitingPod]:
    """Who waited at that instant and why, worked out as `aliquot queue` does it of a cluster."""
    names = found.names
    picture = picture_of(nodes=found.nodes, leases=found.leases, pods=found.pods, names=names, wall=found.wall)
    told = ((queue.metadata.name, read_status(queue.status)) for queue in found.queues)
    standing = Standing(
        picture=picture,
        plan=plan_of(found.queues, found.namespaces, names=names),
        pods=found.pods,
        names=names,
        wall=found.wall,
        told={name: status for name, status in told if status},
        settings=found.settings.queues,
        rules=rules_told(found.settings),
    )
    return waiting_pods(ROOT, standing, due=Inquiry(standing, wall=found.wall, budgets=found.budgets).why)


def _text(told: Replay, *, now: float) -> str:
    lines = [
        f"{one.pod} is let in by queue {one.queue or '-'}: {', '.join(one.gpus) or 'shown'}" for one in told.let_in
    ]
    for one in told.room:
        who = ", ".join(one.victims) or "nobody more"
        have = agreed(max(1, len(one.victims)), "has", "have")
        lines.append(f"room is made for {', '.join(one.pods)} on {', '.join(one.gpus)}: {who} {have} to go")
    lines += [f"{one.pod} is moved to {', '.join(one.gpus)}: {one.why}" for one in told.moved]
    waits = f"{told.waiting} {agreed(told.waiting, 'waits', 'wait')}"
    return "\n".join([*lines, waits, *([f"\n{waiting_text(told.pods, now=now)}"] if told.pods else [])])
