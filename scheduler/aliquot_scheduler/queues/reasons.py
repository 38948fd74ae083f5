"""Why a pod waits, with the numbers: what it asks, what its queue has, what the cards have."""

from __future__ import annotations

from aliquot_core.counting import agreed, counted
from aliquot_scheduler.queues.line import Waiter
from aliquot_scheduler.queues.rules import Cause, Refusal
from aliquot_scheduler.queues.standing import Standing
from aliquot_scheduler.queues.tree import ROOT, UNLIMITED

# More queues than these are not named.
NAMED = 3


def why_it_waits(waiter: Waiter, standing: Standing) -> str:
    """What keeps one pod from being let in, were it the first of all; empty if nothing of queues does."""
    if gates := standing.foreign_gates(waiter):
        return f"it joins the line once others have lifted their gates: {', '.join(gates)}"
    if never := standing.why_never(waiter):
        return never
    if held := _held(waiter, standing):
        return held
    if gang := _gang(waiter, standing):
        return gang
    refusal = standing.refusal(waiter)
    return "" if refusal is None else _told(refusal, waiter, standing)


def _held(waiter: Waiter, standing: Standing) -> str:
    tree = standing.plan.tree
    node = tree.nodes[waiter.queue]
    if not node.stop:
        return ""
    word = "held" if node.stop == "hold" else "drained"
    return f"queue {tree.stopper(node)} is {word}: it lets nobody in"


def _gang(waiter: Waiter, standing: Standing) -> str:
    group = waiter.group
    if group is None:
        return ""
    waiting = sum(one.gang == waiter.gang for one in standing.waiting(waiter.queue))
    there = waiting + len(standing.books.let_in.get(waiter.gang, ()) if waiter.gang else ())
    if there >= group.minimum:
        return ""
    here = f"{there} {agreed(there, 'is', 'are')} there"
    return f"group {group.name} starts with {counted(group.minimum, 'pod')}, and {here}"


def _told(refusal: Refusal, waiter: Waiter, standing: Standing) -> str:
    dimension = refusal.dimension
    thing = standing.plan.tree.dimensions.names[dimension]
    asked = waiter.amounts[dimension]
    match refusal.cause:
        case Cause.QUOTA:
            account = standing.books.ledger.accounts[refusal.queue]
            return (
                f"it asks {asked} of {thing}, and queue {refusal.queue} uses {account.used[dimension]} of the "
                f"{account.node.ceiling[dimension]} that it may have"
            )
        case Cause.FIRM:
            account = standing.books.ledger.accounts[refusal.queue]
            return (
                f"it asks {asked} of {thing} never to be taken back, and queue {refusal.queue} has given "
                f"{account.firm[dimension]} of its guarantee of {account.node.guarantee[dimension]} so"
            )
        case Cause.HELD_BACK:
            return f"it asks {asked} of {thing}; {_held_back(refusal, standing)}"
        case _:
            return f"others wait longer for the same: {refusal.cause}"


def _held_back(refusal: Refusal, standing: Standing) -> str:
    dimension, ledger = refusal.dimension, standing.books.ledger
    if refusal.queue == ROOT:
        free, capacity = standing.stock.free[dimension], standing.stock.capacity[dimension]
        left, held = f"{free} of {capacity} are free", ledger.held_back(dimension)
    else:
        account = ledger.accounts[refusal.queue]
        room = account.node.ceiling[dimension] - account.used[dimension]
        left, held = f"queue {refusal.queue} may use {room} more", min(room, account.held[dimension])
    return f"{left}, and {held} of that is held back for guarantees{_for_whom(refusal, standing)}"


def _for_whom(refusal: Refusal, standing: Standing) -> str:
    tree, accounts = standing.plan.tree, standing.books.ledger.accounts
    below = [name for name in accounts if tree.leaf(name) and refusal.queue in tree.path(name)]
    held = sorted(((accounts[name].held[refusal.dimension], name) for name in below), reverse=True)
    said = [f"{name} {amount}" for amount, name in held if amount]
    return f" ({', '.join(said[:NAMED])})" if said else ""


def quota_of_path(waiter: Waiter, standing: Standing) -> list[str]:
    """What each queue on the way up has of what the pod asks: its use, and what it may have."""
    lines = []
    tree, accounts = standing.plan.tree, standing.books.ledger.accounts
    for name in tree.path(waiter.queue):
        if name == ROOT or name not in accounts:
            continue
        account = accounts[name]
        for dimension, thing in enumerate(tree.dimensions.names[:2]):
            ceiling = account.node.ceiling[dimension]
            most = "no limit" if ceiling >= UNLIMITED else f"at most {ceiling}"
            lines.append(
                f"queue {name}: {account.used[dimension]} of {thing} in use, {account.node.guarantee[dimension]} "
                f"guaranteed, {most}"
            )
    return lines
