"""What a workload asks against what it uses, and what it could ask instead. Pure.

A workload is what one controller made: its pods are alike, so the one that uses most counts for all. Where the page
has watched it for an hour or longer, what counts is the most memory of that time, and what compute mostly kept within.
Where not, it is the use of this moment, and so it is said: advice to look, not to cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from aliquot_cli.pod_rows import Used
from aliquot_core.counting import agreed
from aliquot_core.grant import ContainerGrant, readable_grant
from aliquot_core.names import Names
from aliquot_core.objects import OwnerReference, Pod

# Left beside what is used: a quarter of it.
_SPARE = 1.25
# More than a tenth must be gained, or it is not worth a word; of what is left with less, so much is full.
_WORTH, _FULL = 0.9, 0.95
# What was seen for less than an hour may not have worked hard yet.
_LONG = 3600.0


class _Most(msgspec.Struct, frozen=True, kw_only=True):
    """The largest figures of a workload's pods; `hours` is for how long they were watched, 0 for this moment alone."""

    compute: int | None
    memory: int | None
    hours: float


def advice(pod: Pod, *, pods: Iterable[Pod], used: Mapping[str, Used], names: Names, wall: float) -> list[str]:
    """Some lines; none where nothing is known of the workload's use."""
    return [*_asked_and_used(pod, pods=pods, used=used, names=names, wall=wall), *_unpaid(used.get(pod.key, Used()))]


def _asked_and_used(pod: Pod, *, pods: Iterable[Pod], used: Mapping[str, Used], names: Names, wall: float) -> list[str]:
    held = _held(pod, names=names)
    mates = [one for one in pods if _same(one, pod) and one.spec.node_name and not one.ended]
    known = [used[one.key] for one in mates if one.key in used]
    most = _most(known, wall=wall)
    if not held or (most.compute is None and most.memory is None):
        return []
    compute, memory = sum(one.compute.value for one in held), sum(one.memory.value for one in held)
    who = _whose(pod, seen=len(known), pods=len(mates), hours=most.hours)
    return [
        f"{who}: {', '.join(_uses(most, compute=compute, memory=memory))}",
        *_could(names.memory, most.memory, memory, hours=most.hours),
        *_could(names.compute, most.compute, compute, hours=most.hours, more=not _whole(held)),
    ]


def _unpaid(own: Used) -> Iterator[str]:
    """Of this pod alone: mates may have other inputs."""
    if own.unpaid_launches:
        launches = agreed(own.unpaid_launches, "launch", "launches")
        yield (
            f"{own.unpaid_launches} {launches} passed before being paid for: its kernels ran for ten seconds without a"
            " gap, and might have waited for the next; if it is slow, a whole GPU holds nothing back"
        )


def _uses(most: _Most, *, compute: int, memory: int) -> Iterator[str]:
    if most.memory is not None:
        yield f"{most.memory} of {memory} MiB" + (" at most" if most.hours else "")
    if most.compute is not None:
        yield f"{most.compute} of {compute} % compute" + (" or less nineteen times of twenty" if most.hours else "")


def _most(known: Sequence[Used], *, wall: float) -> _Most:
    """Over time where all of them are known for long enough: the youngest may not have begun its work."""
    began = [one.since for one in known if one.since is not None]
    watched = wall - max(began) if began and len(began) == len(known) else 0.0
    if watched < _LONG:
        return _Most(
            compute=_largest(one.compute for one in known), memory=_largest(one.memory for one in known), hours=0.0
        )
    return _Most(
        compute=_largest(one.high_compute for one in known),
        memory=_largest(one.most_memory for one in known),
        hours=watched / _LONG,
    )


def _whole(held: Sequence[ContainerGrant]) -> bool:
    """Whether it has nothing but whole GPUs: it uses those to the full by right, and has no more of them to ask for."""
    return all(part.whole for one in held for part in one.slices)


def _could(resource: str, used: int | None, asked: int, *, hours: float, more: bool = True) -> list[str]:
    if not used or not asked:
        return []
    enough = -(-used * _SPARE // 1)
    if enough < asked * _WORTH:
        doubt = "if these hours were like others" if hours else "look again when it works hardest, before asking less"
        return [f"{resource}: {enough:.0f} would leave a quarter; {doubt}"]
    if more and used > asked * _FULL:
        return [f"{resource}: next to nothing is left of {asked}; ask for more where it may grow"]
    return []


def _held(pod: Pod, *, names: Names) -> Sequence[ContainerGrant]:
    grant = readable_grant(pod.metadata.annotations.get(names.grant))
    return list(grant.containers.values()) if grant else []


def _maker(pod: Pod) -> OwnerReference | None:
    return next((one for one in pod.metadata.owner_references if one.controller), None)


def _same(one: Pod, other: Pod) -> bool:
    mine, theirs = _maker(one), _maker(other)
    if mine is None or theirs is None:
        return one.metadata.uid == other.metadata.uid
    return mine.uid == theirs.uid


def _whose(pod: Pod, *, seen: int, pods: int, hours: float) -> str:
    maker, verb = _maker(pod), f"used in the last {hours:.0f} h" if hours else "uses now"
    if maker is None or pods == 1:
        return f"it {verb}"
    return f"of {pods} pods of {maker.kind} {maker.name}, {seen} seen, the largest {verb}"


def _largest(figures: Iterable[int | None]) -> int | None:
    return max((one for one in figures if one is not None), default=None)
