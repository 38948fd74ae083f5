"""Groups of which some went for others while the rest was not asked yet, when the leader died.

Of a group that lacks members nothing else says why: one of it may have finished and been deleted. So whoever leads next
would leave those alone who run on below their minimum, and hold cards for nothing. Before anybody of a group is asked,
some who go of it are put down (`centre/torn_keeper.py`): if some of those are gone and some are there, the group was
torn by that. It is put down on no pod: the one for whom they go may be deleted while nobody leads.

Names are UIDs, so no later group of the same name is meant; of a large group who is asked first and who last will do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter

# A ConfigMap holds 1 MiB, and more is in it than this: from each end of a group so many, and so many groups. That is
# 190 KiB.
_NAMED = 4
MOST_GROUPS = 500


class Going(msgspec.Struct, frozen=True, kw_only=True):
    """Of one group some who go, as they are asked (UIDs); `whose` is for whom, the first of them by UID."""

    whose: str
    named: tuple[str, ...]


class TornGroups:
    """Those that go, until no leader need know of them any more."""

    def __init__(self) -> None:
        # In the order in which they were put down.
        self._going: dict[Going, None] = {}

    def __iter__(self) -> Iterator[Going]:
        return iter(list(self._going))

    def put_down(self, going: Iterable[Going]) -> None:
        """These go from now on, or went for the leader before."""
        self._going |= dict.fromkeys(going)

    def of(self, whose: str) -> list[Going]:
        """Those that go for this pod."""
        return [one for one in self._going if one.whose == whose]

    def forget(self, is_over: Callable[[Going], bool]) -> None:
        """No leader need know of these."""
        self._going = {one: None for one in self._going if not is_over(one)}


def going_for(clearing: Clearing) -> list[Going]:
    """Groups of which several go for it; of who goes alone nobody is left who was to go too."""
    by_gang = defaultdict[GangKey, list[str]](list)
    for one in sorted(clearing.victims, key=lambda one: one.uid not in clearing.covered):
        if one.gang:
            by_gang[one.gang].append(one.uid)
    several = (some for some in by_gang.values() if len(some) > 1)
    named = (tuple(dict.fromkeys([*some[:_NAMED], *some[-_NAMED:]])) for some in several)
    return [Going(whose=clearing.uid, named=one) for one in named]


def torn(groups: Iterable[Sequence[str]], *, bound: Mapping[str, Waiter]) -> set[GangKey]:
    """Of these groups, of which some are gone and some are there."""
    found = set[GangKey]()
    for group in groups:
        there = [bound[uid] for uid in group if uid in bound]
        if len(there) < len(group):
            found |= {one.gang for one in there if one.gang}
    return found


def words_of_going(going: Iterable[Going]) -> str:
    """What is to be kept of them, the first ones if they are too many; empty if there are none."""
    kept = list(islice(going, MOST_GROUPS))
    return msgspec.json.encode(kept).decode() if kept else ""


def going_said(words: str) -> list[Going]:
    """What was kept of them; what can't be read says nothing."""
    try:
        return msgspec.json.decode(words, type=list[Going]) if words else []
    except msgspec.DecodeError:
        return []
