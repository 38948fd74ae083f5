"""The cards as they will be once some have gone and others have come: what is asked before anybody is sent away.

Whoever leaves already is gone here from the beginning, and what is kept for others is taken. Victims are tried and
spared, so every change can be undone; nothing of the picture is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from aliquot_core.claims import NOTHING, Claim
from aliquot_core.inventory import Gpu, Health
from aliquot_scheduler.fit.card import Card
from aliquot_scheduler.fit.demand import Demand, suits
from aliquot_scheduler.fit.ground import NOBODY
from aliquot_scheduler.fit.left import Left
from aliquot_scheduler.picture.host_room import HostAmounts, enough
from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.queues.room.clearings import GpuKey, Place
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.reclaim.residents import Resident


def failing_gpus(picture: Picture) -> frozenset[GpuKey]:
    """Those that are degraded by what is the matter with the card."""
    failing = picture.grid.failing
    rows = set(np.flatnonzero(failing.any(axis=1)).tolist())
    there = (known for known in picture.nodes.values() if known.row in rows) if rows else ()
    return frozenset(
        (known.name, gpu) for known in there for gpu, at in known.columns.items() if failing[known.row, at]
    )


class Scene:
    """One supposition."""

    def __init__(
        self,
        *,
        picture: Picture,
        leaving: Iterable[Resident],
        only_healthy: bool = False,
        shut: Collection[GpuKey] = (),
    ) -> None:
        """With `only_healthy` GPUs that are degraded have no room, whatever is free of them, nor those of `shut`."""
        self.picture = picture
        self._only_healthy = only_healthy
        self.shut = frozenset(shut)
        self.gone: set[str] = set()
        # By the UID of whom it is for: once a clearing stands, the picture keeps the same room for the same pod.
        self._coming: defaultdict[GpuKey, dict[str, Claim]] = defaultdict(dict)
        # CPU, main memory and places for pods that are given back, and what those take who come; by node.
        self._hosts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(NOBODY.on_node))
        self._guests: defaultdict[str, dict[str, HostAmounts]] = defaultdict(dict)
        # By UID, what a node has once more when somebody goes.
        self._given_back: dict[str, HostAmounts] = {}
        for one in leaving:
            self.goes(one)

    @contextmanager
    def without(self, gpus: frozenset[GpuKey]) -> Iterator[None]:
        """While these have no room, whatever is free of them."""
        before, self.shut = self.shut, gpus
        try:
            yield
        finally:
            self.shut = before

    def goes(self, one: Resident) -> None:
        """It is gone."""
        self.gone.add(one.uid)
        self._count(one, sign=+1)

    def stays(self, one: Resident) -> None:
        """It is there still."""
        self.gone.remove(one.uid)
        self._count(one, sign=-1)

    def comes(self, place: Place, *, key: str = "") -> None:
        """A pod lies there; `key` is by what the picture will keep the room, if not by its UID."""
        by = key or place.waiter.uid
        for gpu, claim in place.room.items():
            self._coming[gpu][by] = claim
        self._guests[place.node][by] = place.waiter.shape.host.on_node

    def leaves(self, place: Place, *, key: str = "") -> None:
        """It does not after all."""
        by = key or place.waiter.uid
        for gpu in place.room:
            del self._coming[gpu][by]
        del self._guests[place.node][by]

    # --- questions ---------------------------------------------------------------------------------------------------
    def cards(self, known: KnownNode, demand: Demand, *, only: Sequence[str] = ()) -> list[tuple[int, Gpu]]:
        """The node's GPUs that the pod allows, with their columns."""
        kinds = self.picture.grid.kinds
        suitable = [suits(kind, demand.request) for kind in kinds]
        row = self.picture.grid.kind[known.row].tolist()
        return [
            (column, gpu)
            for column, gpu in enumerate(known.inventory.gpus)
            if suitable[row[column]]
            and gpu.health is not Health.SICK
            and not (self._only_healthy and gpu.health is Health.DEGRADED)
            and not gpu.mig
            and (known.name, gpu.uuid) not in self.shut
            and demand.request.uuids.admits(gpu.uuid)
            and (not only or gpu.uuid in only)
        ]

    def left(self, key: GpuKey, *, compute: int, usable: int) -> Left:
        """What is left of a GPU that has so many percent and so many MiB."""
        left = Left(compute=compute, usable=usable)
        for claim in self._claims(key):
            left.take(claim)
        return left

    def card(self, known: KnownNode, gpu: Gpu) -> Card:
        """The GPU, to be laid out on."""
        there = self._claims((known.name, gpu.uuid))
        held = NOTHING
        for claim in there:
            held = held.beside(claim)
        return Card(gpu=gpu, held=held, holders=len(there))

    def host_takes(self, known: KnownNode, waiter: Waiter) -> bool:
        """Whether the node has the CPU, the memory and a place for the pod."""
        return enough(waiter.shape.host.on_node, self._host_left(known))

    def has_room_for(self, one: Resident) -> bool:
        """Whether somebody who goes could as well stay, beside all who come."""
        for key, claim in one.claims.items():
            known = self.picture.nodes.get(key[0])
            if known is None or key[1] not in known.columns:
                continue
            # A card that fell sick gives nothing any more, but who runs there may stay.
            gpu = known.inventory.gpus[known.columns[key[1]]]
            left = self.left(key, compute=gpu.compute.value, usable=gpu.memory)
            if left.closed or (claim.closes and left.holders):
                return False
            if left.compute < claim.compute.value or left.memory < claim.memory.value:
                return False
        return all(self._host_spares(node, one) for node in _nodes(one))

    def _claims(self, key: GpuKey) -> list[Claim]:
        """What lies on a GPU, and what is to come to it."""
        holdings = self.picture.holdings
        there = [claim for uid, claim in holdings.on(key).items() if uid not in self.gone]
        kept = {uid: claim for uid, claim in holdings.kept(key).items() if uid not in self.gone}
        return [*there, *{**kept, **self._coming.get(key, {})}.values()]

    def _host_spares(self, node: str, one: Resident) -> bool:
        known = self.picture.nodes.get(node)
        return known is None or enough(self._gives_back(one), self._host_left(known))

    def _host_left(self, known: KnownNode) -> list[int]:
        """CPU, memory and places that the node will have left."""
        hosts = self.picture.hosts
        nothing = [0] * len(NOBODY.on_node)
        back = self._hosts.get(known.name, nothing)
        # Once a clearing stands, the picture keeps it for the same pod.
        guests = [amounts for uid, amounts in self._guests.get(known.name, {}).items() if not hosts.is_kept(uid)]
        taken = [sum(column) for column in zip(*guests, strict=True)] or nothing
        free = hosts.free[known.row].tolist()
        return [there + more - less for there, more, less in zip(free, back, taken, strict=True)]

    def _count(self, one: Resident, *, sign: int) -> None:
        for node in _nodes(one):
            self._add(node, self._gives_back(one), sign=sign)

    def _gives_back(self, one: Resident) -> HostAmounts:
        """All that it takes of its node, but what the node tells of on account of it alone: that goes with it."""
        if (amounts := self._given_back.get(one.uid)) is None:
            host, on_sick = one.waiter.shape.host, self.picture.on_sick(one.waiter.pod)
            own = (asked - less for asked, less in zip(host.own, on_sick, strict=True))
            amounts = self._given_back[one.uid] = (*host.beside_own, *own)
        return amounts

    def _add(self, node: str, amounts: HostAmounts, *, sign: int) -> None:
        back = self._hosts[node]
        for column, amount in enumerate(amounts):
            back[column] += sign * amount


def _nodes(one: Resident) -> set[str]:
    return {node for node, _ in one.claims}
