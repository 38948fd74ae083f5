"""Why a pod waits, as the leader puts it into the pod's condition: a word that seldom changes, and a sentence.

Only the word is compared: numbers change with every pod that comes or goes, and `aliquot explain` tells those of the
moment when it is asked.
"""

from __future__ import annotations

import msgspec

from aliquot_core.counting import agreed, counted
from aliquot_scheduler.queues.clearings import Clearing
from aliquot_scheduler.queues.ledger import Ledger
from aliquot_scheduler.queues.line import Waiter
from aliquot_scheduler.queues.rules import Cause, Refusal


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What a condition says."""

    reason: str
    message: str


WAITS = Notice(reason="Waiting", message="it waits for its turn")


def making_room(clearing: Clearing) -> Notice:
    """Of a pod for which others have to go."""
    count, nodes = len(clearing.victims), clearing.nodes
    if not count:
        return Notice(reason="MakingRoom", message=f"it gets the room on {nodes[0]} of one that was moved")
    who = f"{counted(count, 'pod')} {agreed(count, 'has', 'have')}"
    where = nodes[0] if len(nodes) == 1 else f"{nodes[0]} and {counted(len(nodes) - 1, 'more node')}"
    return Notice(reason="MakingRoom", message=f"{who} to go for it, and it gets the room on {where}")


def notice_of(waiter: Waiter, refusal: Refusal | None, *, ledger: Ledger) -> Notice:
    """Of a pod that stands in a line; the refusal is what was said last of such a pod, if anything was."""
    node = ledger.tree.nodes.get(waiter.queue)
    if node is not None and node.stop:
        return Notice(reason="QueueHeld", message=f"queue {waiter.queue} lets nobody in ({node.stop})")
    if refusal is not None and (refusal.cause is not Cause.CARDS or waiter.group is None):
        return _of_refusal(waiter, refusal, ledger=ledger)
    if waiter.group is None:
        return WAITS
    least = waiter.group.minimum
    return Notice(reason="GangWaits", message=f"its group starts when {least} of it have room together")


def _of_refusal(waiter: Waiter, refusal: Refusal, *, ledger: Ledger) -> Notice:
    thing = ledger.tree.dimensions.names[refusal.dimension]
    match refusal.cause:
        case Cause.QUOTA:
            return Notice(reason="OverLimit", message=_over(waiter, refusal, ledger=ledger))
        case Cause.FIRM:
            said = f"the guarantee of queue {refusal.queue} has no {thing} left for pods that are never evicted"
            return Notice(reason="OutsideGuarantee", message=said)
        case Cause.HELD_BACK:
            what = f"that queue {refusal.queue} may still use" if refusal.queue else "that is free"
            return Notice(reason="HeldBack", message=f"the {thing} {what} is others' by their guarantees")
        case Cause.BEHIND:
            return Notice(reason="Behind", message="one that has waited for long goes first")
        case Cause.CARDS:
            return Notice(reason="NoRoom", message="no node has room for it now")
        case Cause.NODES:
            return Notice(reason="NoNode", message=refusal.why)


def _over(waiter: Waiter, refusal: Refusal, *, ledger: Ledger) -> str:
    thing, asked = ledger.tree.dimensions.names[refusal.dimension], waiter.amounts[refusal.dimension]
    account = ledger.accounts[refusal.queue]
    used, most = account.used[refusal.dimension], account.node.ceiling[refusal.dimension]
    return f"it asks {asked}; queue {refusal.queue} uses {used} of the {most} of {thing} that it may"
