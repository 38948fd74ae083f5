"""Which processes use a GPU without a grant, and when such a one is asked to end, and ended. Pure.

A process that is stopped wrongly is worse than one that is stopped late. So only processes of pods are judged, and not
those of pods that are spared or whose own grant names the GPU; a process is known by pid and start, and what is not
seen at one sample begins anew: whoever ends, changes hands or gets a grant meanwhile is never met by an old judgement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

import msgspec

# Samples in a row: a process may be seen before its pod's grant is heard of.
LOOKS = 3
# Seconds between asking a process to end and ending it, as pods have by default.
GRACE = 30.0


class Trespasser(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a pod, on a GPU of which its pod holds nothing; `born` tells it from a later one of that pid."""

    pid: int
    born: int
    pod: str
    gpus: tuple[str, ...]


class Stage(IntEnum):
    """How far it has come with one of them."""

    SEEN = 0
    TOLD = 1
    ASKED = 2
    ENDED = 3


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one of them."""

    looks: int = 0
    stage: Stage = Stage.SEEN
    asked_at: float = 0.0


Cases = Mapping[Trespasser, Case]


def judged(before: Cases, seen: Iterable[Trespasser], *, stop: bool, now: float) -> dict[Trespasser, Case]:
    """One sample later; whoever rises by a stage is told of, asked to end, or ended."""
    return {one: _next(before.get(one, Case()), stop=stop, now=now) for one in seen}


def _next(case: Case, *, stop: bool, now: float) -> Case:
    looks = case.looks + 1
    if looks < LOOKS:
        return Case(looks=looks)
    if not stop:
        return Case(looks=looks, stage=Stage.TOLD)
    if case.stage < Stage.ASKED:
        return Case(looks=looks, stage=Stage.ASKED, asked_at=now)
    # Asked again at each sample: one that can't be ended is not forgotten.
    ended = now >= case.asked_at + GRACE
    return Case(looks=looks, stage=Stage.ENDED if ended else Stage.ASKED, asked_at=case.asked_at)
