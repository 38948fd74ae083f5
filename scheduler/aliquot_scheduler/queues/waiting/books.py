"""Who is charged with what: the ledger of the queues, what each user holds, who of a gang is in, and usage in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from aliquot_scheduler.queues.charged.askers import Ask
from aliquot_scheduler.queues.charged.ledger import Charge, Ledger
from aliquot_scheduler.queues.charged.usage import Forgetting, Usage
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, Tree
from aliquot_scheduler.queues.waiting.order import Shares, borrowed
from aliquot_scheduler.queues.waiting.runs import Runs
from aliquot_scheduler.queues.waiting.users import Users, Whose
from aliquot_scheduler.queues.waiting.waiter import GangKey, GroupKey, Waiter

_WIDTH = 2
_NOTHING = (0, 0)


class Books:
    """Everything that is kept of those who were let in."""

    def __init__(self, *, tree: Tree, forgetting: Forgetting) -> None:
        self.ledger = Ledger(tree)
        self.let_in: dict[GangKey, set[str]] = {}
        self.runs = Runs()
        # By group: as many as disagree about it.
        self._gangs: dict[GroupKey, set[GangKey]] = {}
        # A queue's is what it used beyond its guarantee.
        self.usage: Usage[str] = Usage(width=_WIDTH, forgetting=forgetting)
        self.users = Users(forgetting=forgetting)
        self._holders: dict[str, Waiter] = {}
        # What stands idle for heads of lines, by their first pods: whose it is, and how much.
        self._idle: dict[str, tuple[Whose, tuple[int, int]]] = {}
        self._idle_queues: dict[str, tuple[int, int]] = {}
        # By namespace and queue: compute, memory, and how many pods hold them.
        self.of_namespaces: dict[tuple[str, str], list[int]] = {}
        # What there is of compute and memory.
        self.capacity: Sequence[int] = (0, 0)
        self._queues_touched: set[str] = set()

    def replant(self, tree: Tree, *, capacity: Sequence[int]) -> None:
        """Another tree, of other dimensions: everybody who holds something is to be put down again."""
        self._begin_anew(tree, capacity=capacity)
        self.users.nobody_holds()
        self.of_namespaces.clear()

    def graft(self, tree: Tree, *, capacity: Sequence[int]) -> None:
        """Another tree of the same dimensions: everybody holds what they did; who asks is to be told again."""
        charges = self.ledger.charges()
        self._begin_anew(tree, capacity=capacity)
        self.ledger.charge_all(charges)

    def put(self, waiter: Waiter, charge: Charge) -> None:
        """Charge a pod with exactly this."""
        self._put_down(waiter.uid, self.ledger.of(waiter.uid))
        self.ledger.charge(waiter.uid, charge)
        self._holders[waiter.uid] = waiter
        if gang := waiter.gang:
            self.let_in.setdefault(gang, set()).add(waiter.uid)
            self._gangs.setdefault(gang[:2], set()).add(gang)
            self.runs.enter(waiter)
        self._holds(waiter, charge, sign=+1)

    def admit(self, waiter: Waiter, charge: Charge, *, now: float) -> None:
        """Charge a pod that is let in now, with the penalty that goes with it."""
        self.put(waiter, charge)
        amounts = charge.amounts[:_WIDTH]
        for name in self.ledger.tree.path(charge.queue):
            beyond = borrowed(self.ledger.accounts[name])
            self.usage.admitted(name, [min(part) for part in zip(amounts, beyond, strict=True)], now=now)
        self.users.admitted((charge.queue, waiter.user), amounts, now=now)
        self.settle(now)

    def set_apart(
        self, charges: Mapping[Whose, Charge], asks: Iterable[tuple[str, Ask]], *, back: bool = False
    ) -> None:
        """So much more is charged to these users, and these ask no more; `back`: all of that is as it was again."""
        for who, charge in charges.items():
            self.users.hold(who, [-part if back else part for part in charge.amounts[:_WIDTH]])
        self.ledger.set_apart(charges.values(), asks, back=back)

    def goes(self, waiter: Waiter) -> bool:
        """One that is in is on the way out: it is charged, and nobody's mate; whether that is new."""
        known = waiter.gang is not None and waiter.uid in self.runs.staying(waiter.gang)
        self.runs.leave(waiter)
        return known

    def release(self, uid: str) -> Waiter | None:
        """Charge a pod with nothing; who it was, if it was charged."""
        waiter = self._put_down(uid, self.ledger.of(uid))
        if waiter:
            self.ledger.release(uid)
        return waiter

    def said_by_those_in(self, gang: GangKey) -> Counter[tuple[int, int]]:
        """How many of a user's group are in who say which size and minimum of it, whatever run they are of."""
        said = Counter[tuple[int, int]]()
        for one in self._gangs.get(gang[:2], ()):
            if one[4] == gang[4]:
                said[one[2:4]] += len(self.let_in[one])
        return said

    def of_other_users(self, gang: GangKey) -> int:
        """How many are in of the same name who are not this user's."""
        return sum(len(self.let_in[one]) for one in self._gangs.get(gang[:2], ()) if one[4] != gang[4])

    def going(self, gang: GangKey) -> int:
        """How many of a gang are in who are on the way out, of whichever run they are."""
        those_in = sum(len(self.let_in[one]) for one in self._gangs.get(gang[:2], ()) if one[:5] == gang[:5])
        return those_in - self.runs.staying_in_others(gang) - len(self.runs.staying(gang))

    def keep_idle(self, idle: Mapping[str, tuple[Whose, tuple[int, int]]], *, now: float) -> None:
        """So much stands idle for heads from now on: nobody else can use it, so it counts in usage as if they did."""
        if idle == self._idle:
            return
        self._idle = dict(idle)
        queues, users = self._idle_sums()
        self._queues_touched |= {name for name, _ in queues.items() ^ self._idle_queues.items()}
        self._idle_queues = queues
        self.users.keep_idle(users)
        self.settle(now)

    def settle(self, now: float) -> None:
        """What has changed counts from now on."""
        for name in self._queues_touched & self.ledger.accounts.keys():
            self.usage.holds(
                name, borrowed(self.ledger.accounts[name], idle=self._idle_queues.get(name, _NOTHING)), now=now
            )
        self._queues_touched.clear()
        self.users.settle(now)

    def shares(self, *, now: float) -> Shares:
        """Everybody's shares, to order a round of turns by."""
        return Shares(ledger=self.ledger, usage=self.usage, users=self.users, capacity=self.capacity, now=now)

    def _begin_anew(self, tree: Tree, *, capacity: Sequence[int]) -> None:
        self.capacity = capacity
        self._queues_touched |= self.ledger.accounts.keys() | tree.nodes.keys()
        self.usage.forget(self.ledger.accounts.keys() - tree.nodes.keys())
        self.ledger = Ledger(tree)

    def _idle_sums(self) -> tuple[dict[str, tuple[int, int]], dict[Whose, tuple[int, int]]]:
        """What stands idle for those who wait in each queue and below it, and for each user."""
        queues: dict[str, tuple[int, int]] = {}
        users: dict[Whose, tuple[int, int]] = {}
        for who, (compute, memory) in self._idle.values():
            users[who] = _more(users.get(who, _NOTHING), compute, memory)
            for name in self.ledger.tree.path(who[0]) if who[0] in self.ledger.accounts else ():
                queues[name] = _more(queues.get(name, _NOTHING), compute, memory)
        return queues, users

    def _put_down(self, uid: str, charge: Charge | None) -> Waiter | None:
        """It holds nothing by these books, whatever the ledger says."""
        waiter = self._holders.pop(uid, None)
        if waiter and (gang := waiter.gang) and gang in self.let_in:
            self.runs.leave(waiter)
            self._leaves(uid, gang)
        if charge and waiter:
            self._holds(waiter, charge, sign=-1)
        return waiter

    def _leaves(self, uid: str, gang: GangKey) -> None:
        self.let_in[gang].discard(uid)
        if self.let_in[gang]:
            return
        del self.let_in[gang]
        gangs = self._gangs[gang[:2]]
        gangs.remove(gang)
        if not gangs:
            del self._gangs[gang[:2]]

    def _holds(self, waiter: Waiter, charge: Charge, *, sign: int) -> None:
        who, amounts = (charge.queue, waiter.user), charge.amounts
        where = waiter.pod.metadata.namespace, charge.queue
        self.users.hold(who, [sign * amounts[COMPUTE], sign * amounts[MEMORY]])
        _add(self.of_namespaces, where, [sign * amounts[COMPUTE], sign * amounts[MEMORY], sign])
        self._queues_touched.update(self.ledger.tree.path(who[0]))


def _more(amounts: tuple[int, int], compute: int, memory: int) -> tuple[int, int]:
    return amounts[COMPUTE] + compute, amounts[MEMORY] + memory


def _add(sums: dict[tuple[str, str], list[int]], who: tuple[str, str], amounts: Sequence[int]) -> None:
    """Who comes to nothing is not kept."""
    held = sums.setdefault(who, [0] * len(amounts))
    for place, amount in enumerate(amounts):
        held[place] += amount
    if not any(held):
        del sums[who]
