"""How the slices of a pod are held, in words: by what, what of it is hard and what cooperative. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_core.isolation import by_what, promised
from aliquot_core.quantities import Percent
from aliquot_core.request import quality_of
from aliquot_scheduler.resident import HeldSlice


def held_how(slices: Sequence[HeldSlice]) -> list[str]:
    """One line for containers that are held alike; none of grants from before modes were written into them."""
    found: dict[str, list[str]] = {}
    for container in dict.fromkeys(one.container for one in slices):
        own = [one for one in slices if one.container == container]
        compute, limit = sum(one.compute for one in own), sum(one.limit for one in own)
        if mode := own[0].isolation:
            quality = quality_of(compute=Percent(compute), limit=Percent(limit))
            line = f"{mode}, {quality}: {promised(mode, quality)}; {by_what(mode)}"
            found.setdefault(line, []).append(container)
    return [f"{', '.join(containers)}: {line}" for line, containers in found.items()]
