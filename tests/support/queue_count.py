"""All that a centre's queues are charged with and asked for, worked out anew from pods and charges."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from aliquot_core.membership import parse_group
from aliquot_scheduler.queues.charged.ledger import Charge
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.waiting.waiter import Waiter, asked_by
from support.centre import NAMES
from support.guarantee_oracle import Guarantees, Portion, demanding, wishes
from support.queue_stage import Stage

Amounts = dict[str, list[int]]


class Count:
    """Everything that is charged and asked for, counted anew."""

    def __init__(self, world: Stage) -> None:
        ledger = world.queues.books.ledger
        self.tree = ledger.tree
        self._width = len(self.tree.dimensions)
        self.free = world.queues.stock().free
        charges = ledger.charges().values()
        self._charged = self._sum((charge.queue, charge.amounts) for charge in charges)
        # By queue, what is asked at once by those who demand guarantees.
        everybody = self._asking(world)
        self.asking = [one for one in everybody if not one.quiet]
        self._asks = self._sum((one.queue, one.amounts) for one in everybody)
        self.used = self._with_those_below(self._charged)
        self.asked = self._with_those_below(self._asks)
        self.firm = self._sum((charge.queue, charge.amounts) for charge in charges if charge.firm)
        self.holders = set(ledger.charges())
        # Who rests while room is made for it, by UID: it asks for nothing meanwhile.
        self._resting = {one.uid: self._kept_for(world, one) for one in world.queues.register.clearings}

    def _kept_for(self, world: Stage, clearing: Clearing) -> tuple[Portion, list[int]]:
        """What one will ask that rests, and how much of what there is is kept for it until then."""
        portion = Portion(clearing.candidate.first.queue, *asked_by(clearing.candidate.members))
        kept, nodes = [0] * len(self.free), world.picture.nodes
        for (node, uuid), claim in (room for place in clearing.places for room in place.room.items()):
            gpu = nodes[node].inventory.gpu(uuid) if node in nodes and not nodes[node].out else None
            memory = gpu.usable.value if gpu and claim.closes else claim.memory.value
            for dimension in world.queues.register.cards.counted_in(gpu) if gpu else ():
                kept[dimension] += claim.compute.value
                kept[dimension + 1] += memory
        return portion, kept

    def _asking(self, world: Stage) -> list[Portion]:
        """What is asked at once: by a pod, or by all that a gang needs to start; one that can't asks for nothing."""
        askers: dict[object, list[Waiter]] = defaultdict(list)
        for waiter in sorted(world.queues.waiting(), key=lambda one: one.place):
            if world.queues.is_in_line(waiter.uid) and not self.tree.nodes[waiter.queue].stop:
                askers[(waiter.queue, waiter.user, waiter.gang) if waiter.gang else waiter.uid].append(waiter)
        charged = ((uid, world.pods[uid].metadata) for uid in world.queues.books.ledger.charges())
        staying = ((uid, meta) for uid, meta in charged if not meta.deletion_timestamp)
        groups = ((self._run_of(world, uid), meta.namespace, parse_group(meta, names=NAMES)) for uid, meta in staying)
        # Here whoever has the namespace is the user.
        gangs_in = Counter((user, one.name, one.size, one.minimum, user, run) for run, user, one in groups if one)
        found: list[Portion] = []
        for first, *others in askers.values():
            needed = max(1, first.group.minimum - gangs_in[first.gang]) if first.group and first.gang else 1
            if len(others) + 1 >= needed and world.queues.notice(first).reason != "NeverFits":
                start, rest = [first, *others][:needed], others[needed - 1 :]
                awaits = world.queues.register.enrolment.awaits_node
                quiet, alone = world.queues.register.hall.in_vain.is_quiet(first), awaits(start)
                asks = [(some, alone or awaits(some)) for some in (start, *([one] for one in rest))]
                for some, node in asks:
                    found.append(Portion(first.queue, *asked_by(some, quiet=quiet, awaits_node=node)))
        return found

    def _run_of(self, world: Stage, uid: str) -> str:
        """As its turn said, or as the pod says since."""
        turn = world.turns.get(uid)
        return turn.run if turn and turn.promise else world.pods[uid].metadata.annotations.get(NAMES.group_run, "")

    def _sum(self, parts: Iterable[tuple[str, Sequence[int]]]) -> Amounts:
        found: Amounts = {}
        for name, amounts in parts:
            # What is in a queue that is there no more counts for all together.
            known = self.tree.path(name)[0]
            found[known] = [sum(pair) for pair in zip(found.get(known, [0] * self._width), amounts, strict=True)]
        return found

    def _with_those_below(self, own: Amounts) -> Amounts:
        found = {name: [0] * self._width for name in self.tree.nodes}
        for leaf, amounts in own.items():
            for name in self.tree.path(leaf):
                found[name] = [sum(pair) for pair in zip(found[name], amounts, strict=True)]
        return found

    def guarantees(self, dimension: int, *, up: Sequence[tuple[Portion, list[int]]] = ()) -> Guarantees:
        """What is guaranteed, demanded, and still there to serve it; with those who rest no more (`up`)."""
        charged = {name: amounts[dimension] for name, amounts in self._charged.items()}
        asking = [*self.asking, *(portion for portion, _ in up)]
        asked = wishes(demanding(asking, self.tree, used=self.used, firm=self.firm), dimension)
        free = self.free[dimension] + sum(kept[dimension] for _, kept in up)
        return Guarantees(self.tree, dimension=dimension, used=charged, asked=asked, free=free)

    def check_limits(self, after: Count, charges: Mapping[str, Charge]) -> None:
        """Those who were charged since took nobody over a limit."""
        for uid in after.holders - self.holders:
            charge = charges[uid]
            for name in after.tree.path(charge.queue):
                node = after.tree.nodes[name]
                for dimension, amount in enumerate(charge.amounts):
                    assert not amount or after.used[name][dimension] <= node.ceiling[dimension], (uid, name, dimension)
            if charge.firm:
                due = after.tree.nodes[charge.queue].due
                for dimension, amount in enumerate(charge.amounts[: after.tree.dimensions.cards]):
                    assert not amount or after.firm[charge.queue][dimension] <= due[dimension], (uid, dimension)

    def check_next(self, after: Count) -> None:
        """Those who were let in since took nothing that is others'.

        Who rested asks at the instant at which its room is there: it is let in, or stands in line again.
        """
        up = [rested for uid, rested in self._resting.items() if uid not in after._resting]
        for dimension in range(after.tree.dimensions.cards):
            was, now = self.guarantees(dimension, up=up), after.guarantees(dimension)
            assert now.lacking() <= was.lacking(), dimension
            assert now.unasked().lacking() <= was.unasked().lacking(), dimension
