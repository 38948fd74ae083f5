"""Whether a node would take a pod by all that is not its GPUs, and what keeps it off: taints, labels, CPU and more.

kube-scheduler has the last word: here it is only foreseen, so that no turn is given for a node that it would refuse.
Of extended resources (`example.com/fpga`) it is foreseen whether a node has enough in all, not what of it is in use;
of our own what kube-scheduler counts as taken (`counted.py`), beside what its GPUs say.
Affinity between pods, topology spread, volumes and ports are not foreseen: a turn that they spoil is taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

import msgspec
import numpy as np

from aliquot_core.errors import AliquotError
from aliquot_core.hosts import extended_request, host_request, own_request
from aliquot_core.names import Names
from aliquot_core.node_rules import ANY_NODE, Wanted, tolerations_of, wanted_by
from aliquot_core.objects import Pod, Toleration
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.host_room import (
    CPU,
    MEMORY,
    NOTHING_OWN,
    OWN,
    PODS,
    HostAmounts,
    HostInts,
    Own,
    enough,
    enough_rows,
)
from aliquot_scheduler.picture.picture import Picture


class Barrier(Enum):
    """What keeps a pod off a node, in the order in which it is looked for."""

    TAINT = auto()
    # Its labels or its name.
    PLACE = auto()
    EXTENDED = auto()
    CPU = auto()
    MEMORY = auto()
    PODS = auto()
    # Of our own resources kube-scheduler counts too little left.
    COUNTED = auto()


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """What speaks first against some nodes; of an amount what is asked, and the most that any of them has."""

    what: Barrier
    rows: Bools
    asked: int = 0
    most: int = 0
    # The extended one.
    resource: str = ""


class _Test(NamedTuple):
    """The nodes that fail it; of an amount what each has, and what is asked."""

    what: Barrier
    failing: Bools
    there: HostInts | None = None
    asked: int = 0
    resource: str = ""


# The amounts of `host_room` that pods ask, as what keeps them off.
AMOUNTS = ((CPU, Barrier.CPU), (MEMORY, Barrier.MEMORY), (PODS, Barrier.PODS))


class HostAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod asks of its node beside GPUs: CPU in thousandths, memory in bytes and more; labels, taints."""

    amounts: tuple[int, int] = (0, 0)
    # Of our own resources what kube-scheduler counts.
    own: Own = NOTHING_OWN
    # Extended resources that are not ours.
    extended: tuple[tuple[str, int], ...] = ()
    wanted: Wanted = ANY_NODE
    tolerations: tuple[Toleration, ...] = ()

    @property
    def beside_own(self) -> HostAmounts:
        """What it takes of a node but for our resources, in the columns of `host_room`."""
        return (*self.amounts, 1)

    @property
    def on_node(self) -> HostAmounts:
        """All that it takes of a node, in those columns."""
        return (*self.beside_own, *self.own)

    @property
    def lasting(self) -> HostAsk:
        """What of it `could` asks: many ask the same of all but GPUs."""
        return msgspec.structs.replace(self, own=NOTHING_OWN)


NOBODY = HostAsk()


def host_ask(pod: Pod, *, names: Names) -> HostAsk:
    """Read a pod; an affinity that can't be read is kube-scheduler's to refuse."""
    try:
        wanted = wanted_by(pod)
    except AliquotError:
        wanted = ANY_NODE
    return HostAsk(
        amounts=host_request(pod),
        own=own_request(pod, names=names),
        extended=extended_request(pod, but=names.resources()),
        wanted=wanted,
        tolerations=tolerations_of(pod, names=names),
    )


class Ground:
    """Asks a picture."""

    def __init__(self, *, picture: Picture) -> None:
        self._picture = picture

    @property
    def version(self) -> int:
        """Changes whenever a node may take a pod that it did not take before."""
        return self._picture.hosts.version + self._picture.marks.version

    @property
    def lasting(self) -> int:
        """Changes whenever what `could` says may."""
        return self._picture.hosts.sizes_version + self._picture.marks.labels_version

    def admits(self, ask: HostAsk) -> Bools:
        """The rows whose nodes take such a pod now."""
        return self.admits_beside_gpus(ask) & enough_rows(ask.own, self._picture.hosts.free[:, OWN])

    def suits(self, ask: HostAsk) -> Bools:
        """The rows whose nodes would take such a pod if no other were there but who lies without a grant."""
        hosts, nodes = self._picture.hosts, self._picture.nodes
        suits = self._suits(ask) & self._has_extended(ask) & enough_rows(ask.on_node, hosts.allocatable)
        for name in hosts.ungranted.keys() & nodes.keys():
            suits[nodes[name].row] &= enough(ask.own, hosts.own_beside(name))
        return suits

    def could(self, ask: HostAsk) -> Bools:
        """The same if no node were tainted: taints come and go, labels and sizes last."""
        hosts = self._picture.hosts
        return (
            self._picture.marks.wanted(ask.wanted)
            & self._has_extended(ask)
            & enough_rows(ask.beside_own, hosts.allocatable)
        )

    def digest(self, ask: HostAsk) -> int:
        """Another number once `could` says anything else."""
        return hash(self.could(ask).tobytes())

    def barriers(self, ask: HostAsk, rows: Bools) -> list[Against]:
        """What keeps it off these nodes now; nothing where one of them takes it, or where there are none."""
        free = self._picture.hosts.free
        taint = _Test(Barrier.TAINT, ~self._picture.marks.tolerating(ask.tolerations))
        count = _Test(Barrier.COUNTED, ~enough_rows(ask.own, free[:, OWN]))
        return _first_of(rows, (taint, *self._tests(ask, free), count))

    def lasting_barriers(self, ask: HostAsk, rows: Bools) -> list[Against]:
        """What would if nobody were there and nothing were tainted."""
        return _first_of(rows, self._tests(ask, self._picture.hosts.allocatable))

    def admits_beside_gpus(self, ask: HostAsk) -> Bools:
        """The rows whose nodes take it by all but our own resources."""
        hosts = self._picture.hosts
        return self._suits(ask) & self._has_extended(ask) & enough_rows(ask.beside_own, hosts.free)

    def _suits(self, ask: HostAsk) -> Bools:
        marks = self._picture.marks
        return marks.tolerating(ask.tolerations) & marks.wanted(ask.wanted)

    def _has_extended(self, ask: HostAsk) -> Bools:
        enough: Bools = np.ones(len(self._picture.hosts.free), dtype=np.bool_)
        for resource, asked in ask.extended:
            enough &= self._picture.hosts.there_is(resource) >= asked
        return enough

    def _tests(self, ask: HostAsk, of: HostInts) -> Iterator[_Test]:
        """Of the place, and of each amount that is asked."""
        yield _Test(Barrier.PLACE, ~self._picture.marks.wanted(ask.wanted))
        for resource, asked in ask.extended:
            there = self._picture.hosts.there_is(resource)
            yield _Test(Barrier.EXTENDED, there < asked, there, asked, resource)
        for (column, what), asked in zip(AMOUNTS, (*ask.amounts, 1), strict=True):
            if asked:
                yield _Test(what, of[:, column] < asked, of[:, column], asked)


def _first_of(rows: Bools, tests: Iterable[_Test]) -> list[Against]:
    """Each of these nodes counts for the first test that it fails; nothing is told where one fails none."""
    found, left = [], rows
    for what, failing, there, asked, resource in tests:
        if (out := left & failing).any():
            most = 0 if there is None else int(there[out].max())
            found.append(Against(what=what, rows=out, asked=asked, most=most, resource=resource))
            left = left & ~out
    return [] if left.any() else found
