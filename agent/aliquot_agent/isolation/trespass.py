"""Which pods use a GPU without a grant, and when their processes are asked to end, and ended. Pure.

A process that is stopped wrongly is worse than one that is stopped late. So only processes of pods are judged, and not
those of pods that are spared or whose own grant names the GPU; and a pod that has none at one sample begins anew:
whoever gets a grant meanwhile is never met by an old judgement. It is the pod that is judged, for one with a process
for each piece of work is as much without a grant as one with a single process. What is signalled is a process, known by
pid and start, and each has its own time to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

import msgspec

# Samples in a row: a process may be seen before its pod's grant is heard of.
LOOKS = 3
# Seconds between asking a process to end and ending it, as pods have by default.
GRACE = 30.0


class Process(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A process; `born` tells it from a later one of that pid."""

    pid: int
    born: int


class Trespasser(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a pod, on GPUs of which its pod holds nothing."""

    process: Process
    pod: str
    gpus: tuple[str, ...]


class Stage(IntEnum):
    """How far it has come with a pod, or with one of its processes."""

    SEEN = 0
    TOLD = 1
    ASKED = 2
    ENDED = 3


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one pod."""

    # Samples in a row at which it had such a process.
    looks: int = 0
    stage: Stage = Stage.SEEN
    # Those it has now, by when each was asked to end.
    asked: Mapping[Process, float] = {}


Cases = Mapping[str, Case]


def judged(before: Cases, seen: Iterable[Trespasser], *, stop: bool, now: float) -> dict[str, Case]:
    """One sample later, by pod; who rises by a stage is told of."""
    there: dict[str, list[Process]] = {}
    for one in seen:
        there.setdefault(one.pod, []).append(one.process)
    return {pod: _next(before.get(pod, Case()), there[pod], stop=stop, now=now) for pod in there}


def stage_of(process: Process, *, case: Case, now: float) -> Stage:
    """How far it has come with one of a pod's processes, which is signalled accordingly."""
    asked_at = case.asked.get(process)
    if asked_at is None:
        return case.stage
    # Again at each sample: one that can't be ended is not forgotten.
    return Stage.ENDED if now >= asked_at + GRACE else Stage.ASKED


def _next(case: Case, there: Sequence[Process], *, stop: bool, now: float) -> Case:
    looks = case.looks + 1
    if looks < LOOKS:
        return Case(looks=looks)
    if not stop:
        return Case(looks=looks, stage=Stage.TOLD)
    after = Case(looks=looks, asked={one: case.asked.get(one, now) for one in there})
    furthest = max(stage_of(one, case=after, now=now) for one in there)
    return msgspec.structs.replace(after, stage=max(case.stage, furthest))
