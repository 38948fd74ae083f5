"""Stages whose kubelets tell of our resources, so that kube-scheduler's count of them matters."""

from __future__ import annotations

from collections.abc import Collection

from aliquot_core.held_on_sick import Held, held_on_sick
from aliquot_core.hosts import own_request
from aliquot_core.inventory import Inventory
from aliquot_scheduler.picture.host_room import NOTHING_OWN
from support.centre import NAMES, counting, gpus, make_node, sick
from support.queue_stage import Stage


def counted(stage: Stage, *names: str) -> None:
    """The kubelets of these nodes tell of our resources, of all nodes if none is named."""
    for name, known in list(stage.picture.nodes.items()):
        if not names or name in names:
            stage.picture.node_seen(counting(known.node))
    stage.beat()


def staged(*nodes: int) -> Stage:
    """Nodes n0 and so on with so many cards each, whose kubelets tell of them."""
    stage = Stage(nodes=nodes)
    counted(stage)
    return stage


def falls_sick(stage: Stage, uid: str, *, cards: int, told: bool, away: bool = False) -> None:
    """The only GPU of this pod, on n0; its agent has `told` of what the pod holds there beside the healthy ones.

    One that is `away` its agent did not find when it started.
    """
    ((_, uuid),) = stage.picture.holdings.of(uid)
    there = [sick(one) if one.uuid == uuid else one for one in gpus("n0", cards) if not (away and one.uuid == uuid)]
    held = own_request(stage.pods[uid], names=NAMES) if told else NOTHING_OWN
    stage.picture.node_seen(counting(make_node("n0", there), held=held))
    stage.beat()


def agents_tell(stage: Stage, *, cards: int, ill: Collection[str], places: int = 32) -> None:
    """Each node has so many cards, of which these are ill; its agent tells beside the others what is held on them."""
    for name in list(stage.picture.nodes):
        there = tuple(sick(one) if one.uuid in ill else one for one in gpus(name, cards))
        pods = [pod for pod in stage.pods.values() if pod.spec.node_name == name]
        held = Held().beside(*held_on_sick(pods, inventory=Inventory(gpus=there), names=NAMES).values())
        stage.picture.node_seen(counting(make_node(name, there), held=held, places=places))
    stage.beat()


def said(stage: Stage, uid: str) -> tuple[str, str]:
    """The word and the sentence that a waiting pod is told."""
    waiter = next(one for one in stage.queues.waiting() if one.uid == uid)
    notice = stage.queues.notice(waiter)
    return notice.reason, notice.message
