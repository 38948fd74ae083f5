"""Who is shown to a cluster autoscaler: since when, for how long, and what becomes of them when that time is over.

| state | from | ends when |
|---|---|---|
| shown | it had no room, and its gate is lifted (`showing.py`) | others have its quota: put out; time is over |
| put out | others came in with room, by the quota that it was shown by | there is quota again: shown; time is over |
| over | so many minutes after it was shown first, as its queue says | it may be shown anew |

A gate that is lifted stays so, and an autoscaler goes on seeing the pod; so the time belongs to the pod, and runs on
while it is put out, and when another leader begins: since when, and how often, is written on it with the lifted gate.
Whose time is over is shown anew when GPUs or queues have changed since, and no sooner than after a pause that is as
long as it was shown, and twice as long with each time more; or not at all. In that pause nobody else of its queue who
asks the same is shown either: no autoscaler has brought a node for it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aliquot_core.instants import second_time, seconds_of

MINUTE = 60.0
_LONGEST_PAUSE = 86_400.0
# More often is not counted: the pause has long been a day.
_MOST_TIMES = 99

# What was there of queues and GPUs when somebody's time was over: only whether it is another now counts.
World = tuple[int, tuple[int, ...]]


class Showing(msgspec.Struct, frozen=True, kw_only=True):
    """Of one pod: since when, which time it is; and once that is over, what was there then, and how long it pauses."""

    since: float
    times: int
    over: World | None = None
    again: float = 0.0


class Showings:
    """Of all pods, by UID."""

    def __init__(self) -> None:
        self._known: dict[str, Showing] = {}
        # For whom there is quota beside all who have room, and beside each other, by the last look.
        self.shown: frozenset[str] = frozenset()
        # Who waits and has no gate any more, for whatever reason.
        self.lifted: set[str] = set()

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def waits(self, uid: str, *, lifted: bool) -> None:
        """It waits, with our gate or without."""
        (self.lifted.add if lifted else self.lifted.discard)(uid)

    def begin(self, uid: str, *, now: float, times: int) -> None:
        """It is shown from now on."""
        self._known[uid] = Showing(since=now, times=min(times, _MOST_TIMES))

    def found(self, uid: str, said: str, *, now: float, wall: float) -> None:
        """A pod that another leader has shown, by what is written on it."""
        if (read := _read(said)) is not None:
            since, times = read
            # A clock that was set back since must not show it for longer.
            self._known[uid] = Showing(since=min(now, since - wall + now), times=times)

    def forget(self, uid: str) -> None:
        """It has room, or is gone."""
        self._known.pop(uid, None)
        self.lifted.discard(uid)
        self.shown -= {uid}

    def nobody_is_sure(self) -> None:
        """There are other queues: who is shown still is found at the next look."""
        self.shown = frozenset()

    def times(self, uid: str) -> int:
        """How often it was shown."""
        return self._known[uid].times if uid in self._known else 0

    def runs(self, uid: str) -> bool:
        """Whether its time runs, and it is shown or put out."""
        return uid in self._known and self._known[uid].over is None

    def of(self, uid: str) -> Showing | None:
        """What is known of a pod."""
        return self._known.get(uid)

    def over(self) -> dict[str, Showing]:
        """Whose time is over."""
        return {uid: one for uid, one in self._known.items() if one.over is not None}

    def may_be_shown(self, uid: str, *, world: World) -> bool:
        """Whether it never was, or may be anew once nobody pauses who asks the same."""
        known = self._known.get(uid)
        return known is None or (known.over is not None and known.over != world)

    def in_order(self) -> list[str]:
        """Whose time runs, who was shown first first."""
        return sorted((uid for uid in self._known if self.runs(uid)), key=lambda uid: (self._known[uid].since, uid))

    def tell_time(self, now: float, *, minutes: Callable[[str], float], world: World) -> None:
        """It is so late: whose time is over is shown no more."""
        for uid, known in [(uid, one) for uid, one in self._known.items() if one.over is None]:
            if known.since + MINUTE * minutes(uid) <= now:
                again = known.since + _until_again(known.times, minutes=minutes(uid))
                self._known[uid] = msgspec.structs.replace(known, over=world, again=again)
                self.shown -= {uid}


def written(*, wall: float, times: int) -> str:
    """What is written on a pod that is shown: since when, and which time it is."""
    return f"{second_time(wall)} {times}"


def told(said: str, *, minutes: float, wall: float) -> Showing | None:
    """What is written on a pod, by the clock on the wall; None where that is nothing."""
    if (read := _read(said)) is None:
        return None
    since, times = read
    # Of what there was of queues and GPUs then nothing is written.
    over: World | None = (0, ()) if since + MINUTE * minutes <= wall else None
    return Showing(since=since, times=times, over=over, again=since + _until_again(times, minutes=minutes))


def _until_again(times: int, *, minutes: float) -> float:
    """How long after it was shown it may be shown again at the earliest."""
    lasts = MINUTE * minutes
    return lasts + min(_LONGEST_PAUSE, lasts * 2.0 ** (times - 1))


def _read(said: str) -> tuple[float, int] | None:
    since, _, times = said.partition(" ")
    if (at := seconds_of(since)) is None or not (times.isascii() and times.isdigit() and len(times) <= len("99")):
        return None
    return at, max(1, int(times))
