"""What somebody has used lately: an average that forgets, half of it each half-life.

An hour ago counts half of now if the half-life is an hour. Who holds 300 % all the time has a usage of 300 %, and who
stops has 150 % left after a half-life. On admission a penalty counts at once, as if the pod had run for a while: else
a thousand jobs that are submitted at the same instant would all be let in before the first of them counted.

Pure: it is told the time; a clock that jumps back makes nobody's usage grow or shrink.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Annotated, Generic, TypeVar

import msgspec

Who = TypeVar("Who", bound=Hashable)
Seconds = Annotated[float, msgspec.Meta(gt=0, le=366 * 86_400)]


class Forgetting(msgspec.Struct, frozen=True, kw_only=True):
    """How fast usage is forgotten, and for how long a pod is taken to run when it is let in."""

    half_life: Seconds = 24 * 3600.0
    penalty: Seconds = 60.0

    def kept(self, seconds: float) -> float:
        """Which part is left after so long."""
        kept: float = 0.5 ** (max(0.0, seconds) / self.half_life)
        return kept


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's usage at an instant, and what they hold since."""

    average: tuple[float, ...]
    holds: tuple[int, ...]
    at: float


class Usage(Generic[Who]):
    """Everybody's usage; amounts are as wide as the first that is told."""

    def __init__(self, *, width: int, forgetting: Forgetting) -> None:
        self._nothing = Record(average=(0.0,) * width, holds=(0,) * width, at=0.0)
        self._forgetting = forgetting
        self._records: dict[Who, Record] = {}

    def holds(self, who: Who, amounts: Sequence[int], *, now: float) -> None:
        """From now on they hold so much."""
        self._records[who] = Record(average=self.of(who, now=now), holds=tuple(amounts), at=now)

    def admitted(self, who: Who, amounts: Sequence[int], *, now: float) -> None:
        """A pod of theirs that asks so much was let in: the penalty."""
        self.held_for(who, amounts, seconds=self._forgetting.penalty, now=now)

    def held_for(self, who: Who, amounts: Sequence[int], *, seconds: float, now: float, ago: float = 0.0) -> None:
        """They have held so much more for so long, until so long ago, which nobody told."""
        part = (1.0 - self._forgetting.kept(seconds)) * self._forgetting.kept(ago)
        record = self._records.get(who, self._nothing)
        average = tuple(old + part * more for old, more in zip(self.of(who, now=now), amounts, strict=True))
        self._records[who] = Record(average=average, holds=record.holds, at=now)

    def of(self, who: Who, *, now: float) -> tuple[float, ...]:
        """Their usage."""
        record = self._records.get(who)
        if record is None:
            return self._nothing.average
        kept = self._forgetting.kept(now - record.at)
        return tuple([kept * old + (1.0 - kept) * held for old, held in zip(record.average, record.holds, strict=True)])

    def record(self, who: Who, *, now: float) -> Record:
        """Their usage at this instant, and what they hold: so it goes on while they hold that."""
        record = self._records.get(who)
        if record is None:
            return Record(average=self._nothing.average, holds=self._nothing.holds, at=now)
        return Record(average=self.of(who, now=now), holds=record.holds, at=max(now, record.at))

    def restore(self, who: Who, average: Sequence[float], *, now: float) -> None:
        """What was put down of them before a restart."""
        record = self._records.get(who, self._nothing)
        self._records[who] = Record(average=tuple(average), holds=record.holds, at=now)

    def everybody(self) -> Iterable[Who]:
        """Of whom anything is known."""
        return self._records.keys()

    def prune(self, *, now: float, least: float) -> list[Who]:
        """Forget who holds nothing and whose usage is as good as forgotten; who that is."""
        idle = [who for who, record in self._records.items() if not any(record.holds)]
        forgotten = [who for who in idle if max(self.of(who, now=now)) < least]
        self.forget(forgotten)
        return forgotten

    def forget(self, who: Iterable[Who]) -> None:
        """They are gone."""
        for one in who:
            self._records.pop(one, None)
