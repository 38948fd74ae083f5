"""Who is shown to a cluster autoscaler: by which quota, since when, for how long, and what becomes of them after that.

| state | from | ends when |
|---|---|---|
| shown | it had no room, and its gate is lifted (`showing.py`) | others have its quota: put out; time is over |
| put out | others came in with room; or its user has changed it, or its group | it is as before: shown; time is over |
| over | so many minutes after it was shown first, as its queue says | it may be shown anew |

A gate that is lifted stays so, and an autoscaler goes on seeing the pod; so the time belongs to the pod, and runs on
while it is put out, and when another leader begins: since when, how often, and by which queue's quota is written on it
with the lifted gate. As long as its time runs that queue is charged with what it asked then, wherever it waits by now.

Nobody of its queue who asks the same is shown anew before a pause is over that is as long as it was shown, and twice as
long with each time more: no autoscaler has brought a node for that. The pause outlives the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from math import inf

import msgspec

from aliquot_core.instants import second_time, seconds_of
from aliquot_scheduler.queues.waiting.waiter import Shape, Waiter

MINUTE = 60.0
_LONGEST_PAUSE = 86_400.0
# More often is not counted: the pause has long been a day.
_MOST_TIMES = 99

# What is asked, by whose showing in vain others need not be shown: a shape in a queue, of a group also how it starts.
Asked = tuple[str, Shape, tuple[int, str] | None]
# How long a queue shows pods, in minutes.
Minutes = Callable[[str], float]


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What is written on a pod that is shown; of one that an older leader has shown the queue is not."""

    since: float
    times: int
    queue: str = ""


class Showing(msgspec.Struct, frozen=True, kw_only=True):
    """Of one pod: since when, which time it is; and once that is over, how long nobody is shown who asks the same."""

    since: float
    times: int
    # Of those who are shown at one instant by this leader, in which order.
    number: int = 0
    over: bool = False
    again: float = 0.0


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds quota by being shown: as it is charged, and what it asked then."""

    holder: Waiter
    asked: Asked


class Showings:
    """Of all pods, by UID."""

    def __init__(self) -> None:
        self._known: dict[str, Showing] = {}
        self._begun = 0
        self._held: dict[str, _Held] = {}
        self._holders_in: dict[str, set[str]] = {}
        # How often who asks so was shown in vain; and until when nobody else is who asks it.
        self._in_vain: dict[Asked, tuple[int, float]] = {}
        self._pausing: set[Asked] = set()
        # For whom there is quota beside all who have room, and beside each other, by the last look; by uppermost queue.
        self.shown: set[str] = set()
        self._shown_below: dict[str, set[str]] = {}
        # Before that no time is over, and no pause.
        self._soonest = -inf
        # Who waits and has no gate any more, for whatever reason.
        self.lifted: set[str] = set()

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def waits(self, uid: str, *, lifted: bool) -> None:
        """It waits, with our gate or without."""
        (self.lifted.add if lifted else self.lifted.discard)(uid)

    def begin(self, holder: Waiter, *, asked: Asked, now: float, times: int) -> None:
        """It is shown from now on, by the quota of the queue in which it waits now."""
        self._begun += 1
        self._known[holder.uid] = Showing(since=now, times=min(times, _MOST_TIMES), number=self._begun)
        self._hold(_Held(holder=holder, asked=asked))

    def found(self, holder: Waiter, said: Said, *, now: float, wall: float) -> None:
        """A pod that another leader has shown, by what is written on it; `holder` as its queue is charged with it."""
        # A clock that was set back since must not show it for longer.
        since = min(now, said.since - wall + now)
        self._known[holder.uid] = Showing(since=since, times=said.times)
        self._hold(_Held(holder=holder, asked=what_it_asks(holder)))

    def forget(self, uid: str) -> None:
        """It has room, or is gone."""
        self._known.pop(uid, None)
        self.lifted.discard(uid)
        self._let_go(uid)

    def replant(self, anew: Callable[[Waiter], Waiter]) -> None:
        """There are other queues or cards: who is shown counts otherwise, and who still is, the next look finds."""
        self.none_but_below(())
        self._soonest = -inf
        for uid, held in self._held.items():
            self._held[uid] = msgspec.structs.replace(held, holder=anew(held.holder))

    def shown_below(self, top: str, uids: Iterable[str]) -> None:
        """These are shown below an uppermost queue, by the last look there."""
        self.shown -= self._shown_below.get(top, set())
        self._shown_below[top] = set(uids)
        self.shown |= self._shown_below[top]

    def put_out(self, uid: str) -> None:
        """It is not shown until the next look; below another uppermost queue, maybe."""
        if uid in self.shown:
            self.shown.remove(uid)
            for uids in self._shown_below.values():
                uids.discard(uid)

    def none_but_below(self, tops: Collection[str]) -> None:
        """Below others nobody who waits could be."""
        for top in self._shown_below.keys() - tops:
            self.shown -= self._shown_below.pop(top)

    def since(self, uid: str) -> float:
        """When it was shown the last time."""
        return self._known[uid].since

    def times(self, waiter: Waiter) -> int:
        """How often it was shown, or who asks the same was."""
        own = self._known[waiter.uid].times if waiter.uid in self._known else 0
        return max(own, self._in_vain.get(what_it_asks(waiter), (0, 0.0))[0])

    def runs(self, uid: str) -> bool:
        """Whether its time runs, and it is shown or put out."""
        return uid in self._held

    def of(self, uid: str) -> Showing | None:
        """What is known of a pod."""
        return self._known.get(uid)

    def holder(self, uid: str) -> Waiter | None:
        """One whose time runs, as its queue is charged with it."""
        return held.holder if (held := self._held.get(uid)) else None

    def is_as_shown(self, waiter: Waiter) -> bool:
        """Whether one whose time runs waits where it was shown, for what it was."""
        held = self._held.get(waiter.uid)
        return held is not None and held.asked == what_it_asks(waiter)

    def pauses(self, waiter: Waiter, *, now: float) -> bool:
        """Whether the same was shown in vain lately."""
        return bool(self._in_vain) and self._in_vain.get(what_it_asks(waiter), (0, now))[1] > now

    def in_order(self, queues: Iterable[str]) -> list[Waiter]:
        """Whose time runs of these queues, who was shown first first."""
        uids = (uid for queue in queues for uid in self._holders_in.get(queue, ()))
        in_time = sorted(uids, key=lambda uid: (self._known[uid].since, self._known[uid].number, uid))
        return [self._held[uid].holder for uid in in_time]

    def tell_time(self, now: float, *, minutes: Minutes) -> tuple[set[str], list[str]]:
        """It is so late; the queues in which a time, or a pause, is over, and whose time it is."""
        ended, uids_ended = set[str](), list[str]()
        if now < self._soonest:
            return ended, uids_ended
        for queue, uids in self._holders_in.items():
            lasts = minutes(queue)
            for uid in [uid for uid in uids if self._known[uid].since + MINUTE * lasts <= now]:
                self._end(uid, minutes=lasts)
                ended.add(queue)
                uids_ended.append(uid)
        for asked in [asked for asked in self._pausing if self._in_vain[asked][1] <= now]:
            self._pausing.remove(asked)
            ended.add(asked[0])
        # How often is forgotten a day after the pause.
        for asked in [asked for asked, (_, again) in self._in_vain.items() if again + _LONGEST_PAUSE <= now]:
            del self._in_vain[asked]
        self._soonest = min(self._ends(minutes), default=inf)
        return ended, uids_ended

    def _ends(self, minutes: Minutes) -> Iterator[float]:
        for queue, uids in self._holders_in.items():
            lasts = MINUTE * minutes(queue)
            yield from (self._known[uid].since + lasts for uid in uids)
        yield from (self._in_vain[asked][1] for asked in self._pausing)
        yield from (again + _LONGEST_PAUSE for _, again in self._in_vain.values())

    def _end(self, uid: str, *, minutes: float) -> None:
        known, asked = self._known[uid], self._held[uid].asked
        again = known.since + _until_again(known.times, minutes=minutes)
        self._known[uid] = msgspec.structs.replace(known, over=True, again=again)
        times, until = self._in_vain.get(asked, (0, 0.0))
        self._in_vain[asked] = max(times, known.times), max(until, again)
        self._pausing.add(asked)
        self._let_go(uid)

    def _hold(self, held: _Held) -> None:
        self._let_go(held.holder.uid)
        self._held[held.holder.uid] = held
        self._holders_in.setdefault(held.holder.queue, set()).add(held.holder.uid)
        # No queue shows for less.
        self._soonest = min(self._soonest, self._known[held.holder.uid].since + MINUTE)

    def _let_go(self, uid: str) -> None:
        if held := self._held.pop(uid, None):
            self._holders_in[held.holder.queue].remove(uid)
            self.put_out(uid)


def what_it_asks(waiter: Waiter) -> Asked:
    """Who asks the same as another is shown in vain as that one was."""
    group = waiter.group
    return waiter.queue, waiter.shape, (group.minimum, group.topology) if group else None


def written(*, wall: float, times: int, queue: str) -> str:
    """What is written on a pod that is shown: since when, which time it is, and by which queue's quota."""
    return f"{second_time(wall)} {times} {queue}".rstrip()


def read(said: str) -> Said | None:
    """The same, read; by the clock on the wall. None where that is nothing."""
    since, _, rest = said.partition(" ")
    times, _, queue = rest.partition(" ")
    if (at := seconds_of(since)) is None or not (times.isascii() and times.isdigit() and len(times) <= len("99")):
        return None
    return Said(since=at, times=max(1, int(times)), queue=queue)


def told(said: str, *, minutes: float, wall: float) -> Showing | None:
    """What is written on a pod, by the clock on the wall; None where that is nothing."""
    if (found := read(said)) is None:
        return None
    since, times = found.since, found.times
    over = since + MINUTE * minutes <= wall
    return Showing(since=since, times=times, over=over, again=since + _until_again(times, minutes=minutes))


def _until_again(times: int, *, minutes: float) -> float:
    """How long after it was shown it may be shown again at the earliest."""
    lasts = MINUTE * minutes
    return lasts + min(_LONGEST_PAUSE, lasts * 2.0 ** (times - 1))
