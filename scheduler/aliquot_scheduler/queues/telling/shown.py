"""Who is shown to a cluster autoscaler, and who not since others are, by what is written on the pods.

As the leader does it: those whose time runs hold the quota that they were shown by, first shown first, and whoever has
none beside them is put out and holds it all the same. What is held back for others below a limit is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from aliquot_core.instants import second_time
from aliquot_scheduler.queues.said.tree import ROOT, Tree
from aliquot_scheduler.queues.said.units import spoken
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.showings import MINUTE, Said
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter, summed


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """One whose time may run: as it waits now, and what is written on it."""

    waiter: Waiter
    said: Said


class Shown:
    """All of them at one instant."""

    def __init__(self, holders: Iterable[Holder], *, books: Books, wall: float) -> None:
        self._books = books
        self._tree: Tree = books.ledger.tree
        self._held: dict[str, list[int]] = {}
        self._holders = [one for one in sorted(holders, key=_since) if self._until(one) > wall]
        self._uids = {one.waiter.uid for one in self._holders}
        self._shown: set[str] = set()
        for one in self._holders:
            self._look_at(one)
        for one in self._holders:
            if one.waiter.uid not in self._shown:
                self._hold(one.said.queue or one.waiter.queue, one.waiter.amounts)

    def __contains__(self, uid: str) -> bool:
        return uid in self._shown

    def instead_of(self, waiter: Waiter) -> str:
        """That others are shown, who leave a pod no quota that would have some; empty if none do."""
        node = self._tree.nodes.get(waiter.queue)
        if node is None or node.stop or not node.spec.autoscale or waiter.uid in self._uids:
            return ""
        if self._books.ledger.over(waiter.queue, waiter.amounts):
            return ""
        for name in self._tree.path(waiter.queue):
            for dim, amount in enumerate(waiter.amounts):
                ceiling = self._tree.nodes[name].ceiling[dim]
                if amount and self._used(name, dim) + amount > ceiling:
                    return self._of(name, dim)
        return ""

    def _of(self, name: str, dim: int) -> str:
        below = [one for one in self._holders if name in self._tree.path(one.said.queue or one.waiter.queue)]
        some = sorted((one for one in below if one.waiter.amounts[dim]), key=self._until)
        amount, until = spoken(self._held[name][dim], dim, of=self._tree.dimensions), second_time(self._until(some[0]))
        more = f", and for {len(some) - 1} more" if len(some) > 1 else ""
        whose = f"{some[0].waiter.pod.key} until {until}{more}"
        return f"it is not shown to a cluster autoscaler: {amount} of queue {name} are shown for {whose}"

    def _look_at(self, one: Holder) -> None:
        node, waiter = self._tree.nodes.get(one.waiter.queue), one.waiter
        elsewhere = one.said.queue not in {"", waiter.queue}
        if node is None or node.stop or not node.spec.autoscale or elsewhere or waiter.uid in self._shown:
            return
        members = self._with_its_gang(waiter)
        amounts = summed(members) if members else ()
        path = self._tree.path(waiter.queue)
        fits = all(
            not amount or self._used(name, dim) + amount <= self._tree.nodes[name].ceiling[dim]
            for name in path
            for dim, amount in enumerate(amounts)
        )
        if members and fits:
            self._shown |= {member.uid for member in members}
            self._hold(waiter.queue, amounts)

    def _with_its_gang(self, waiter: Waiter) -> Sequence[Waiter]:
        if (gang := waiter.gang) is None:
            return (waiter,)
        mates = self._mates(gang, waiter)
        needed = self._books.runs.still_needed(waiter)
        return mates[:needed] if len(mates) >= needed else ()

    def _mates(self, gang: GangKey, waiter: Waiter) -> Sequence[Waiter]:
        found = [one.waiter for one in self._holders if one.waiter.gang == gang and one.waiter.queue == waiter.queue]
        return sorted(found, key=lambda mate: mate.place)

    def _used(self, name: str, dim: int) -> int:
        held = self._held.get(name)
        return self._books.ledger.accounts[name].used[dim] + (held[dim] if held else 0)

    def _hold(self, queue: str, amounts: Sequence[int]) -> None:
        for name in self._tree.path(queue):
            held = self._held.setdefault(name, [0] * len(amounts))
            for dim, amount in enumerate(amounts):
                held[dim] += amount

    def _until(self, one: Holder) -> float:
        node = self._tree.nodes.get(one.said.queue or one.waiter.queue) or self._tree.nodes[ROOT]
        return one.said.since + MINUTE * node.spec.autoscale_minutes


def _since(one: Holder) -> tuple[float, str]:
    return one.said.since, one.waiter.uid
