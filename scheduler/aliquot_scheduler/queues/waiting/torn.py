"""Runs that are torn between makers: one of several makers has the whole group by itself, and a part of it is in.

Where two Jobs of one name come at once, and the first pods of each are as many as the group starts with, they start as
one (`makers.py` knows no better then). When the others have come, each Job holds cards and waits for those of the
other. So all but one of them give theirs back, and start anew with their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from aliquot_scheduler.queues.waiting.makers import maker_of
from aliquot_scheduler.queues.waiting.runs import Runs
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter


def of_several(gangs: Iterable[GangKey], *, runs: Runs) -> list[GangKey]:
    """Those of them that may be torn."""
    return [gang for gang in gangs if len(runs.makers(gang)) > 1]


def who_gives_way(gangs: Iterable[GangKey], *, runs: Runs, waiting: Iterable[Waiter]) -> Mapping[GangKey, set[str]]:
    """Of these runs, whoever makes pods that are to give their cards back."""
    come = Counter((one.gang, maker_of(one.pod)) for one in waiting)
    found: dict[GangKey, set[str]] = {}
    for gang in gangs:
        _, _, size, minimum, _, _ = gang
        inside = runs.makers(gang)
        torn = [maker for maker, there in inside.items() if maker and there < minimum]
        torn = [maker for maker in torn if come[gang, maker] and inside[maker] + come[gang, maker] >= size]
        # Where all are so, the one that lacks least goes on.
        stays = min(torn, key=lambda maker: (-inside[maker], maker)) if len(torn) == len(inside) else None
        if gives := set(torn) - {stays}:
            found[gang] = gives
    return found
