"""Whether a node would take a pod by all that is not its GPUs: taints, labels, CPU, memory, places for pods and more.

kube-scheduler has the last word: here it is only foreseen, so that no turn is given for a node that it would refuse.
Of extended resources (`example.com/fpga`) it is foreseen whether a node has enough in all, not what of it is in use;
of our own what kube-scheduler counts as taken (`counted.py`), beside what its GPUs say.
Affinity between pods, topology spread, volumes and ports are not foreseen: a turn that they spoil is taken back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import msgspec
import numpy as np

from aliquot_core.counting import agreed, counted
from aliquot_core.errors import AliquotError
from aliquot_core.hosts import extended_request, host_request, own_request
from aliquot_core.names import Names
from aliquot_core.node_rules import ANY_NODE, Wanted, barrier, tolerations_of, wanted_by, why_absent, why_unsuited
from aliquot_core.objects import Pod, Toleration
from aliquot_scheduler.fit.counted import is_short, short_rows, why_short
from aliquot_scheduler.fit.refusals import Refusal, told_often
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.host_room import (
    CPU,
    MEMORY,
    MILLI,
    NOTHING_OWN,
    PODS,
    HostAmounts,
    HostInts,
    Own,
)
from aliquot_scheduler.picture.picture import KnownNode, Picture

_GIB = 2**30

# Why GPUs of these nodes do not take a pod.
Refused = Callable[[Mapping[str, KnownNode]], Mapping[str, Refusal]]


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
        return self._admits_beside_gpus(ask) & ~short_rows(ask.own, self._picture.hosts.free)

    def suits(self, ask: HostAsk) -> Bools:
        """The rows whose nodes would take such a pod if no other were there but who lies without a grant."""
        hosts, nodes = self._picture.hosts, self._picture.nodes
        suits = self._suits(ask) & self._has_extended(ask) & _enough(hosts.allocatable, ask.on_node)
        for name in hosts.ungranted.keys() & nodes.keys():
            suits[nodes[name].row] &= not is_short(ask.own, hosts.own_beside(name))
        return suits

    def could(self, ask: HostAsk) -> Bools:
        """The same if no node were tainted: taints come and go, labels and sizes last."""
        hosts = self._picture.hosts
        return (
            self._picture.marks.wanted(ask.wanted)
            & self._has_extended(ask)
            & _enough(hosts.allocatable, ask.beside_own)
        )

    def digest(self, ask: HostAsk) -> int:
        """Another number once `could` says anything else."""
        return hash(self.could(ask).tobytes())

    def why_none(self, ask: HostAsk, *, roomy: Bools, refused: Refused) -> str:
        """Why none of the nodes takes it that have room on their GPUs, in numbers; empty if one does, or none has.

        Of the others it is told how many would take it: once room is there, or not even then.
        """
        if not (why := self.why_not(ask, roomy)):
            return ""
        whose = agreed(int(np.count_nonzero(roomy)), "its", "their")
        return "; ".join(
            (f"{_nodes(roomy)} room on {whose} GPUs: {why}", *self.others(ask, but=roomy, refused=refused))
        )

    def others(self, ask: HostAsk, *, but: Bools, refused: Refused) -> Iterator[str]:
        """What is to be said of the nodes but these, so that the numbers add up to all that there are."""
        # Where GPUs have no room, kube-scheduler counts none of ours left either.
        those = self._admits_beside_gpus(ask) & self._picture.grid.bindable & ~but
        nodes = self._picture.nodes
        yield from _of_others(refused({name: known for name, known in nodes.items() if those[known.row]}))
        rest = [known for known in nodes.values() if not (those | but)[known.row]]
        if out := sum(bool(known.out) for known in rest):
            yield f"{out} more {agreed(out, 'takes', 'take')} nobody"
        if neither := len(rest) - out:
            yield f"{neither} more would not take it either"

    def why_not(self, ask: HostAsk, rows: Bools) -> str:
        """What speaks against these nodes, none of which takes it, in numbers."""
        return self._told(ask, rows, tolerating=True, of=self._picture.hosts.free, word="free")

    def why_never(self, ask: HostAsk, *, able: Bools) -> str:
        """Why none of the nodes could take it that have such GPUs, in numbers; empty if one could, or none has."""
        why = self._told(ask, able, tolerating=False, of=self._picture.hosts.allocatable, word="in all")
        return why and f"{_nodes(able)} such GPUs: {why}"

    def obstacle(self, ask: HostAsk, known: KnownNode) -> str:
        """Why this node does not take it now, in words for operators; empty if it does."""
        if taint := barrier(known.node.spec.taints, ask.tolerations):
            return f"tainted {taint}, which the pod does not tolerate"
        unsuited = why_unsuited(ask.wanted, name=known.name, labels=known.node.metadata.labels)
        for resource, asked in ask.extended:
            if (there := int(self._picture.hosts.there_is(resource)[known.row])) < asked:
                return unsuited or f"{there} {resource} in all of {asked} asked"
        short = unsuited or _short(ask, *self._picture.hosts.free[known.row].tolist())
        return short or why_short(ask.own, [known.name], picture=self._picture, named=True)

    def _admits_beside_gpus(self, ask: HostAsk) -> Bools:
        hosts = self._picture.hosts
        return self._suits(ask) & self._has_extended(ask) & _enough(hosts.free, ask.beside_own)

    def _suits(self, ask: HostAsk) -> Bools:
        marks = self._picture.marks
        return marks.tolerating(ask.tolerations) & marks.wanted(ask.wanted)

    def _has_extended(self, ask: HostAsk) -> Bools:
        enough: Bools = np.ones(len(self._picture.hosts.free), dtype=np.bool_)
        for resource, asked in ask.extended:
            enough &= self._picture.hosts.there_is(resource) >= asked
        return enough

    def _told(self, ask: HostAsk, rows: Bools, *, tolerating: bool, of: HostInts, word: str) -> str:
        """Each of these nodes counts for the first thing that speaks against it."""
        marks, left, parts = self._picture.marks, rows, []
        if tolerating and (out := left & ~marks.tolerating(ask.tolerations)).any():
            parts.append(f"{_are(out)} tainted ({self._taint(out, ask)})")
            left = left & ~out
        if (out := left & ~marks.wanted(ask.wanted)).any():
            nobody = why_absent(ask.wanted, nodes=self._picture.nodes)
            parts.append(nobody or f"{_are(out)} not what its nodeSelector or its affinity to nodes names")
            left = left & ~out
        for resource, asked in ask.extended:
            there = self._picture.hosts.there_is(resource)
            if (out := left & (there < asked)).any():
                parts.append(f"{_have_at_most(out)}{int(there[out].max())} {resource} in all of {asked} asked")
                left = left & ~out
        for column, asked in enumerate((*ask.amounts, 1)):
            if asked and (out := left & (of[:, column] < asked)).any():
                parts.append(_lacks(out, column, asked=asked, most=int(of[out, column].max()), word=word))
                left = left & ~out
        if tolerating and (out := left & short_rows(ask.own, of)).any():
            parts.append(why_short(ask.own, self._names(out), picture=self._picture))
            left = left & ~out
        return "" if left.any() else ", ".join(parts)

    def _names(self, rows: Bools) -> list[str]:
        return [name for name, known in self._picture.nodes.items() if rows[known.row]]

    def _taint(self, rows: Bools, ask: HostAsk) -> str:
        """The one that keeps it off most of these nodes."""
        marks = self._picture.marks
        kinds = Counter(marks.taints_of(row) for row in np.flatnonzero(rows).tolist())
        found = Counter[str]()
        for taints, count in kinds.items():
            found[str(barrier(taints, ask.tolerations))] += count
        (taint, _), *more = found.most_common()
        return f"{taint} and others" if more else taint


def _of_others(refusals: Mapping[str, Refusal]) -> Iterator[str]:
    """Room may come; where an empty node would not take it either, that is no lack of room."""
    if full := sum(not one.final for one in refusals.values()):
        none = agreed(full, "the one that would take it has no room", f"of {full} that would take it none has room")
        yield f"{none} on its GPUs"
    if never := Counter(one.why for one in refusals.values() if one.final):
        yield f"{never.total()} more can't take it: {told_often(never)}"


def _enough(there: HostInts, amounts: HostAmounts) -> Bools:
    """Where each amount is there; of what is not asked for nothing need be."""
    enough: Bools = there[:, PODS] >= 1
    for column, asked in enumerate(amounts):
        if asked:
            enough &= there[:, column] >= asked
    return enough


def _short(ask: HostAsk, *free: int) -> str:
    """What one node has too little of, but for our own; empty if nothing."""
    for column, asked in enumerate((*ask.amounts, 1)):
        if asked and free[column] < asked:
            return _amount(column, asked=asked, there=free[column], word="free")
    return ""


def _lacks(rows: Bools, column: int, *, asked: int, most: int, word: str) -> str:
    return _have_at_most(rows) + _amount(column, asked=asked, there=most, word=word)


def _have_at_most(rows: Bools) -> str:
    count = np.count_nonzero(rows)
    return "1 has " if count == 1 else f"{count} have at most "


def _amount(column: int, *, asked: int, there: int, word: str) -> str:
    """Begun GiB as they are, so that 8.0 is never said to be less than 8."""
    there = max(0, there)
    if column == CPU:
        return f"{there / MILLI:g} CPUs {word} of {asked / MILLI:g} asked"
    if column == MEMORY:
        return f"{there / _GIB:.6g} GiB of memory {word} of {asked / _GIB:.6g} asked"
    return "no place for one more pod"


def _nodes(rows: Bools) -> str:
    count = int(np.count_nonzero(rows))
    return f"{counted(count, 'node')} {agreed(count, 'has', 'have')}"


def _are(rows: Bools) -> str:
    count = int(np.count_nonzero(rows))
    return f"{count} {agreed(count, 'is', 'are')}"
