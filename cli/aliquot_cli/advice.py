"""What a workload asks against what it uses, and what it could ask instead. Pure.

A workload is what one controller made: its pods are alike, so the one that uses most counts for all. What is known is
the use of this moment alone, and so it is said: advice to look, not to cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aliquot_cli.pod_rows import Used
from aliquot_core.errors import AliquotError
from aliquot_core.grant import ContainerGrant, decode_grant
from aliquot_core.names import Names
from aliquot_core.objects import OwnerReference, Pod

# Left beside what is used: a quarter of it.
_SPARE = 1.25
# More than a tenth must be gained, or it is not worth a word; of what is left with less, so much is full.
_WORTH, _FULL = 0.9, 0.95


class _Most(msgspec.Struct, frozen=True, kw_only=True):
    """The largest figures of a workload's pods."""

    compute: int | None
    memory: int | None


def advice(pod: Pod, *, pods: Iterable[Pod], used: Mapping[str, Used], names: Names) -> list[str]:
    """Some lines; none where nothing is known of the workload's use."""
    held = _held(pod, names=names)
    mates = [one for one in pods if _same(one, pod) and one.spec.node_name and not one.ended]
    known = [used[one.key] for one in mates if one.key in used]
    most = _Most(compute=_largest(one.compute for one in known), memory=_largest(one.memory for one in known))
    if not held or (most.compute is None and most.memory is None):
        return []
    compute, memory = sum(one.compute.value for one in held), sum(one.memory.value for one in held)
    uses = [
        *([] if most.memory is None else [f"{most.memory} of {memory} MiB"]),
        *([] if most.compute is None else [f"{most.compute} of {compute} % compute"]),
    ]
    who = _whose(pod, seen=len(known), pods=len(mates))
    told = [f"{who} now: {', '.join(uses)}"]
    return told + _could(names.memory, most.memory, memory) + _could(names.compute, most.compute, compute)


def _could(resource: str, used: int | None, asked: int) -> list[str]:
    if not used or not asked:
        return []
    enough = -(-used * _SPARE // 1)
    if enough < asked * _WORTH:
        return [f"{resource}: {enough:.0f} would leave a quarter; look again when it works hardest, before asking less"]
    if used > asked * _FULL:
        return [f"{resource}: next to nothing is left of {asked}; ask for more where it may grow"]
    return []


def _held(pod: Pod, *, names: Names) -> Sequence[ContainerGrant]:
    try:
        return list(decode_grant(pod.metadata.annotations.get(names.grant, "")).containers.values())
    except AliquotError:
        return []


def _maker(pod: Pod) -> OwnerReference | None:
    return next((one for one in pod.metadata.owner_references if one.controller), None)


def _same(one: Pod, other: Pod) -> bool:
    mine, theirs = _maker(one), _maker(other)
    if mine is None or theirs is None:
        return one.metadata.uid == other.metadata.uid
    return mine.uid == theirs.uid


def _whose(pod: Pod, *, seen: int, pods: int) -> str:
    maker = _maker(pod)
    if maker is None or pods == 1:
        return "it uses"
    return f"of {pods} pods of {maker.kind} {maker.name}, {seen} seen, the largest uses"


def _largest(figures: Iterable[int | None]) -> int | None:
    return max((one for one in figures if one is not None), default=None)
