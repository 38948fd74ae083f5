"""Where a pod waits and with whom: its queue, and the group that starts together or not at all.

Both are labels, so that people can select by them; how the group is to start is said in annotations. What is said of
a group without naming one is an error: the pod would start alone, and wait for the others while it holds a GPU.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from aliquot_core.errors import UserError
from aliquot_core.names import Names
from aliquot_core.objects import ObjectMeta
from aliquot_core.quantities import QUOTED, parse_count

# More pods than any one job was seen to have: what lies above is a mistake, and each must be waited for.
LARGEST_GROUP = 100_000

# A label's value holds 63 characters, a Queue's name is a DNS name in lower case.
_LONGEST_QUEUE = 63
_QUEUE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class MembershipError(UserError):
    """A queue or a group that can't be meant."""


class Topology(StrEnum):
    """How a group wants to lie: wherever there is room, on one node, on one NVLink island, or apart."""

    ANY = ""
    NODE = "node"
    NVLINK = "nvlink"
    SPREAD = "spread"


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A gang: `minimum` of its `size` pods start together, the others join as they can."""

    name: str
    size: int
    minimum: int
    topology: Topology = Topology.ANY


def parse_queue(meta: ObjectMeta, *, names: Names) -> str:
    """The queue that the pod names; empty means its namespace's."""
    queue = meta.labels.get(names.queue, "")
    if queue and (len(queue) > _LONGEST_QUEUE or not _QUEUE.fullmatch(queue)):
        raise MembershipError(
            f"{queue[:QUOTED]!r} can't be the name of a queue",
            where=f"label {names.queue}",
            remedy="write the name of a Queue, or drop the label",
        )
    return queue


def parse_group(meta: ObjectMeta, *, names: Names) -> Group | None:
    """The group that the pod belongs to, if any."""
    name = meta.labels.get(names.group, "")
    of_groups = (names.group_size, names.group_min, names.group_topology)
    if not name:
        if stray := next((note for note in of_groups if note in meta.annotations), None):
            raise MembershipError(
                "says how a group starts, but the pod is in none",
                where=f"annotation {stray}",
                remedy=f"set the label {names.group}, or drop the annotation",
            )
        return None
    size = _count(meta, names.group_size)
    if size is None:
        raise MembershipError(
            f"group {name[:QUOTED]!r} does not say how many pods it has",
            where=f"label {names.group}",
            remedy=f"set the annotation {names.group_size}",
        )
    return Group(
        name=name,
        size=size,
        minimum=_minimum(meta, size=size, names=names),
        topology=_topology(meta, names=names),
    )


def _minimum(meta: ObjectMeta, *, size: int, names: Names) -> int:
    minimum = _count(meta, names.group_min)
    if minimum is not None and minimum > size:
        raise MembershipError(
            f"{minimum} is more than the group's {size} pods",
            where=f"annotation {names.group_min}",
            remedy=f"write 1 to {size}",
        )
    return minimum or size


def _topology(meta: ObjectMeta, *, names: Names) -> Topology:
    text = meta.annotations.get(names.group_topology, "")
    try:
        return Topology(text)
    except ValueError:
        raise MembershipError(
            f"{text[:QUOTED]!r} is unknown",
            where=f"annotation {names.group_topology}",
            remedy="write node, nvlink or spread",
        ) from None


def _count(meta: ObjectMeta, note: str) -> int | None:
    text = meta.annotations.get(note)
    if text is None:
        return None
    count = parse_count(text, where=f"annotation {note}", unit="pods")
    if count > LARGEST_GROUP:
        raise MembershipError(
            f"{count} pods are more than {LARGEST_GROUP}", where=f"annotation {note}", remedy="write the group's size"
        )
    return count
