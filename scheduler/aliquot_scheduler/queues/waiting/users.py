"""What the users of each queue hold and used lately, and in which order that puts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

from aliquot_scheduler.queues.charged.usage import Forgetting, Usage
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.waiting.user_order import Course, UserOrder

_BOTH = (COMPUTE, MEMORY)
_NOTHING = (0, 0)

# A queue, and a user of it.
Whose = tuple[str, str]


class Users:
    """All users of all queues."""

    def __init__(self, *, forgetting: Forgetting) -> None:
        self._forgetting = forgetting
        self._usage: Usage[Whose] = Usage(width=len(_BOTH), forgetting=forgetting)
        # By queue.
        self._held: dict[str, dict[str, list[int]]] = {}
        # What stands idle for heads of theirs.
        self._idle: Mapping[Whose, tuple[int, int]] = {}
        self._unsettled: set[Whose] = set()
        # The order in each queue where it was asked for, by what there was then; and who was charged since.
        self._orders: dict[str, UserOrder] = {}
        self._touched: dict[str, set[str]] = {}
        self._capacity: tuple[int, ...] = ()

    # --- events ------------------------------------------------------------------------------------------------------
    def hold(self, who: Whose, amounts: Sequence[int]) -> None:
        """A user holds so much more, or less; it counts in what was used lately once that is settled."""
        queue, user = who
        held = self._held.setdefault(queue, {}).setdefault(user, [0, 0])
        for dim in _BOTH:
            held[dim] += amounts[dim]
        if not any(held):
            del self._held[queue][user]
        self._unsettled.add(who)
        self._touch(who)

    def nobody_holds(self) -> None:
        """All are to be put down again."""
        self._unsettled |= {(queue, user) for queue, users in self._held.items() for user in users}
        self._held.clear()
        self._orders.clear()
        self._touched.clear()

    def keep_idle(self, idle: Mapping[Whose, tuple[int, int]]) -> None:
        """So much stands idle for heads of theirs from now on."""
        self._unsettled |= {who for who, _ in idle.items() ^ self._idle.items()}
        self._idle = idle

    def settle(self, now: float) -> None:
        """What has changed counts from now on."""
        for who in self._unsettled:
            held, idle = self._held_by(who), self._idle.get(who, _NOTHING)
            self._usage.holds(who, [held[dim] + idle[dim] for dim in _BOTH], now=now)
            self._touch(who)
        self._unsettled.clear()

    def admitted(self, who: Whose, amounts: Sequence[int], *, now: float) -> None:
        """A pod of theirs that asks so much was let in: the penalty."""
        self._usage.admitted(who, amounts, now=now)
        self._touch(who)

    def restore(self, who: Whose, average: Sequence[float], *, now: float) -> None:
        """What was put down of them before a restart."""
        self._usage.restore(who, average, now=now)
        self._touch(who)

    def prune(self, *, now: float, least: float) -> None:
        """Forget who holds nothing and whose usage is as good as forgotten."""
        for who in self._usage.prune(now=now, least=least):
            self._touch(who)

    # --- questions ---------------------------------------------------------------------------------------------------
    def everybody(self) -> Iterable[Whose]:
        """Of whom anything is known to have been used."""
        return self._usage.everybody()

    def of(self, who: Whose, *, now: float) -> tuple[float, ...]:
        """What they used lately."""
        return self._usage.of(who, now=now)

    def held_in(self, queue: str) -> Mapping[str, Sequence[int]]:
        """What each user holds of compute and memory in a queue."""
        return self._held.get(queue, {})

    def share(self, who: Whose, *, capacity: Sequence[int], now: float) -> float:
        """Of all there is: held now and lately, the larger part of both."""
        self._measure(capacity)
        return self._course(who, now=now).share(kept=1.0)

    def in_order(self, queue: str, users: AbstractSet[str], *, capacity: Sequence[int], now: float) -> Sequence[str]:
        """These of one queue, the smallest share first, until this is asked of it again."""
        self._measure(capacity)
        if queue not in self._orders:
            self._orders[queue] = UserOrder(forgetting=self._forgetting)
        course = partial(self._course_in, queue, now)
        return self._orders[queue].of(users, touched=self._touched.pop(queue, set()), course=course, now=now)

    # --- how it is done ----------------------------------------------------------------------------------------------
    def _measure(self, capacity: Sequence[int]) -> None:
        """Other hardware makes other parts of it."""
        measured = tuple(max(1, capacity[dim]) for dim in _BOTH)
        if measured != self._capacity:
            self._capacity = measured
            self._orders.clear()
            self._touched.clear()

    def _touch(self, who: Whose) -> None:
        queue, user = who
        if queue in self._orders:
            self._touched.setdefault(queue, set()).add(user)

    def _held_by(self, who: Whose) -> Sequence[int]:
        return self._held.get(who[0], {}).get(who[1], _NOTHING)

    def _course_in(self, queue: str, now: float, user: str) -> Course:
        return self._course((queue, user), now=now)

    def _course(self, who: Whose, *, now: float) -> Course:
        held, record = self._held_by(who), self._usage.record(who, now=now)
        return Course(
            ends=tuple([(held[dim] + record.holds[dim]) / self._capacity[dim] for dim in _BOTH]),
            fades=tuple([(record.average[dim] - record.holds[dim]) / self._capacity[dim] for dim in _BOTH]),
            at=record.at,
        )
