"""What is found of a node that does not take a pod: a cause of one closed list, with the numbers that show it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from aliquot_scheduler.fit.demand import Piece
from aliquot_scheduler.fit.emptied import Fill
from aliquot_scheduler.picture.grid import Kind


class NodeCause(Enum):
    """In the order in which they are looked for."""

    # Whoever asks, or by something else than its GPUs.
    UNKNOWN = "nobody knows such a node"
    OUTSIDE = "it is not the pod's to have"
    OUT = "it takes nobody"
    RULE = "a rule of the cluster's own refuses it"
    # By its GPUs, whoever is on them.
    NONE_GIVEN = "none of its GPUs can be given"
    NOT_MEANT = "too few of them are what the pod allows"
    ISOLATION = "too few of them are of an isolation that takes the pod"
    CONTEXT = "on too many of them a CUDA context takes all that it asks"
    TOO_SMALL = "too few of them are large enough"
    NO_SHARED_MODE = "too few of those share an isolation mode"
    NOT_TOGETHER = "its containers do not lie on them together"
    INIT_STUCK = "one of its init containers does not"
    # By who is there now.
    COUNTED = "its GPUs have room, and kube-scheduler counts too little left", False
    NO_ROOM = "too few of them have room", False
    NO_ROOM_IN_A_MODE = "too few of those with room share an isolation mode", False
    NO_ROOM_TOGETHER = "they have room for each container and not for all", False
    NO_WAY_FOUND = "nobody is on them, and there were too many ways to look at all of them", False

    def __init__(self, _: str, final: bool = True) -> None:  # noqa: FBT001, FBT002 - as members are written
        # Whether that stays so whoever is evicted; asked of each node that refuses a pod.
        self.final = final


class Part(NamedTuple):
    """Pieces of one size, and how many GPUs of one node have to take such a one: with those for larger pieces."""

    piece: Piece
    needed: int


class Counts(NamedTuple):
    """How many of a node's GPUs there are, are meant, and so on: of each but the first what is left of the last."""

    total: int
    meant: int
    # By their isolation they take the pod.
    taking: int
    # And a context leaves it something.
    allowed: int
    # And nobody is on them.
    untouched: int


class PartCounts(NamedTuple):
    """How many of the GPUs that are allowed are large enough for a part, and have room: of memory, of compute, both."""

    large: int
    roomy: int
    free: int
    both: int


class Spread(NamedTuple):
    """For how many of the GPUs that one container needs there are such, by mode: large enough ones, and with room."""

    large: int
    both: int


OfModes = tuple[tuple[str, int], ...]
NO_PART, NO_COUNTS, NOBODY = Part(Piece(compute=0), 0), PartCounts(0, 0, 0, 0), Fill(staying=0)


@dataclass(frozen=True, eq=False)
class Finding:
    """The cause and its numbers; to nodes that are alike it is the same one, and is asked for by that."""

    cause: NodeCause
    counts: Counts
    # Where one part is the cause.
    part: Part = NO_PART
    of_part: PartCounts = NO_COUNTS
    # Where one container needs GPUs of one mode: by mode, how many of those it needs there are.
    modes: OfModes = ()
    # Where containers do not lie together.
    fill: Fill = NOBODY
    # How many of the GPUs that fail are of each kind, where that is the cause.
    kinds: tuple[tuple[Kind, int], ...] = ()
