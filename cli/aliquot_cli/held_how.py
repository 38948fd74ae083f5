"""How the slices of a pod are held, in words: by what, what of it is hard and what cooperative. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_core.isolation import by_what, promised
from aliquot_core.quantities import Percent
from aliquot_core.request import quality_of
from aliquot_scheduler.resident import HeldSlice


def held_how(slices: Sequence[HeldSlice]) -> list[str]:
    """One line for containers that are held alike; none of grants from before modes were written into them.

    Then one for each reason why GPUs of theirs offer less than their node was told.
    """
    found, lacking = dict[str, list[str]](), dict[str, dict[str, None]]()
    for container in dict.fromkeys(one.container for one in slices):
        own = [one for one in slices if one.container == container]
        compute, limit = sum(one.compute for one in own), sum(one.limit for one in own)
        if mode := own[0].isolation:
            quality = quality_of(compute=Percent(compute), limit=Percent(limit))
            line = f"{mode}, {quality}: {promised(mode, quality)}; {by_what(mode)}"
            found.setdefault(line, []).append(container)
    for one in slices:
        if one.lack:
            lacking.setdefault(one.lack, {})[one.gpu] = None
    held = [f"{', '.join(containers)}: {line}" for line, containers in found.items()]
    return held + [f"less than the node was told to offer on {', '.join(gpus)}: {why}" for why, gpus in lacking.items()]
