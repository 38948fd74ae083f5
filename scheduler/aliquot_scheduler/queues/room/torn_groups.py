"""Groups of which some went for others while the rest was not asked yet, when the leader died.

Of a group that lacks members nothing else says why: one of it may have finished and been deleted. So whoever leads next
would leave those alone who run on below their minimum, and hold cards for nothing. The pod for whom they go names them
(`recalling.py`): if some of those named are gone and some are there, the group was torn by that.

Names are UIDs, so no later group of the same name is meant; of a large group who is asked first and who last will do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter

# From each end of a group: a pod bears no more than 256 KiB of annotations, and a group may have thousands of pods.
_NAMED = 20


def groups_of(clearing: Clearing) -> tuple[tuple[str, ...], ...]:
    """By group, some who go (UIDs), as they are asked; of who goes alone nobody is left who was to go too."""
    by_gang = defaultdict[GangKey, list[str]](list)
    for one in sorted(clearing.victims, key=lambda one: one.uid not in clearing.covered):
        if one.gang:
            by_gang[one.gang].append(one.uid)
    return tuple(tuple(dict.fromkeys([*some[:_NAMED], *some[-_NAMED:]])) for some in by_gang.values() if len(some) > 1)


def torn(groups: Iterable[Sequence[str]], *, bound: Mapping[str, Waiter]) -> set[GangKey]:
    """Of these groups, of which some are gone and some are there."""
    found = set[GangKey]()
    for group in groups:
        there = [bound[uid] for uid in group if uid in bound]
        if len(there) < len(group):
            found |= {one.gang for one in there if one.gang}
    return found
