"""From whom some nodes are kept in one sweep, by the sides of the tree on which heads' shares reach (`keeping.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from aliquot_scheduler.queues.letting_in.reaching import Reaching
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.said.tree import Tree
from aliquot_scheduler.queues.waiting.waiter import Candidate


class Sides:
    """Of these nodes; the first is the lowest bit."""

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        heads: Mapping[str, Iterable[str]],
        tree: Tree,
        memory: SweepMemory,
        reaching: Reaching,
        now: float,
    ) -> None:
        """`heads` are for whom each node is kept that is."""
        self._names = nodes
        self._tree = tree
        self._memory = memory
        self._reaching = reaching
        self._now = now
        self._nodes: dict[str, int] = {}
        for place, node in enumerate(nodes):
            for uid in heads.get(node, ()):
                self._nodes[uid] = self._nodes.get(uid, 0) | 1 << place
        # For whom they are kept from all, and others by their queue.
        self._from_all: list[str] = []
        self._near: dict[str, list[tuple[str, Candidate]]] = {}
        # By the queue below which ways part, and the child of it on whose side the head is; and what of that is kept
        # from each child, from each queue, and from each user.
        self._by_side: dict[str, dict[str, int]] = {}
        self._beside: dict[tuple[str, str], int] = {}
        # By that queue and a priority what is kept for any of no lower one, and for several: of 200 siblings each asks.
        self._kept_below: dict[tuple[str, int], tuple[int, int]] = {}
        self._far: dict[str, int] = {}
        self._known: dict[tuple[str, str, str], int] = {}
        self._named: dict[int, frozenset[str]] = {}
        self._sort()

    def kept_from(self, candidate: Candidate) -> frozenset[str]:
        """What of these nodes is."""
        kept = self.places_kept_from(candidate)
        if kept not in self._named:
            self._named[kept] = frozenset(node for place, node in enumerate(self._names) if kept >> place & 1)
        return self._named[kept]

    def places_kept_from(self, candidate: Candidate) -> int:
        """The same as bits; from others of the same user nothing else is kept."""
        first, uid = candidate.first, candidate.uid
        who = first.queue, first.user, uid if uid in self._nodes else ""
        if who not in self._known:
            if first.queue not in self._far:
                self._far[first.queue] = self._kept_far_from(first.queue)
            near = [
                other for other, head in self._near.get(first.queue, ()) if self._stands_back(candidate, other, head)
            ]
            kept = self._far[first.queue]
            for other in (*self._from_all, *near):
                kept |= self._nodes[other] if other != uid else 0
            self._known[who] = kept
        # Whatever shares are, who has lost a turn had room, and left it unused.
        return self._known[who] | self._for_heads_of_no_lost_turn if first.lost else self._known[who]

    @cached_property
    def _for_heads_of_no_lost_turn(self) -> int:
        found = 0
        for uid, nodes in self._nodes.items():
            if (keeping := self._memory.keeping(uid)) and not keeping[0].first.lost:
                found |= nodes
        return found

    def _sort(self) -> None:
        owed = self._memory.owed(now=self._now)
        for uid, nodes in self._nodes.items():
            keeping = self._memory.keeping(uid)
            if keeping is None or uid in owed:
                self._from_all.append(uid)
                continue
            head, reach = keeping
            self._near.setdefault(head.first.queue, []).append((uid, head))
            for name, parent in pairwise(self._tree.path(head.first.queue)):
                if name in reach or self._reaching.reaches(head, name, parent):
                    below = self._by_side.setdefault(parent, {})
                    below[name] = below.get(name, 0) | nodes

    def _kept_far_from(self, queue: str) -> int:
        """For heads of other queues: at each level for a sibling's, but from none with a higher priority."""
        found = 0
        for side in pairwise(self._tree.path(queue)):
            if side not in self._beside:
                self._beside[side] = self._kept_for_siblings_of(*side)
            found |= self._beside[side]
        return found

    def _kept_for_siblings_of(self, name: str, parent: str) -> int:
        below = self._by_side.get(parent)
        if not below:
            return 0
        priority = self._tree.nodes[name].priority
        if (parent, priority) not in self._kept_below:
            self._kept_below[parent, priority] = self._for_any_and_for_several(below, priority)
        for_any, for_several = self._kept_below[parent, priority]
        return for_several | (for_any & ~below.get(name, 0))

    def _for_any_and_for_several(self, below: Mapping[str, int], priority: int) -> tuple[int, int]:
        """What is kept for any of these sides of no lower priority, and what for more than one of them."""
        for_any = for_several = 0
        for side, kept in below.items():
            if self._tree.nodes[side].priority >= priority:
                for_several |= for_any & kept
                for_any |= kept
        return for_any, for_several

    def _stands_back(self, candidate: Candidate, uid: str, head: Candidate) -> bool:
        """Whether one of the same queue does: from its own user's pods it is kept in any case."""
        if head.first.user == candidate.first.user:
            return self._memory.patience.is_impatient(uid, now=self._now, beyond=True)
        return self._reaching.reaches(head, (head.first.queue, head.first.user), head.first.queue)
