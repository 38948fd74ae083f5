"""What keeps a pod off nodes that is not their GPUs, in words: `ground` finds it, and counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from aliquot_core.counting import agreed, counted, listed
from aliquot_core.node_rules import barrier, why_absent, why_unsuited
from aliquot_scheduler.fit.counted import why_short
from aliquot_scheduler.fit.ground import AMOUNTS, Against, Barrier, Ground, HostAsk
from aliquot_scheduler.fit.refusals import Refusal, told_often
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.host_room import MILLI
from aliquot_scheduler.picture.picture import KnownNode, Picture

_GIB = 2**30
# For so many reasons nodes that are out are named.
_REASONS = 2
_COLUMNS = {what: column for column, what in AMOUNTS}
_FREE = "free"

# Why GPUs of these nodes do not take a pod.
Refused = Callable[[Mapping[str, KnownNode]], Mapping[str, Refusal]]


class Obstacles:
    """Asks a picture."""

    def __init__(self, *, picture: Picture) -> None:
        self._picture = picture
        self._ground = Ground(picture=picture)

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
        those = self._ground.admits_beside_gpus(ask) & self._picture.grid.bindable & ~but
        nodes = self._picture.nodes
        yield from _of_others(refused({name: known for name, known in nodes.items() if those[known.row]}))
        rest = [known for known in nodes.values() if not (those | but)[known.row]]
        if out := [known for known in rest if known.out]:
            yield f"{len(out)} more {agreed(len(out), 'takes', 'take')} nobody ({_whose(out)})"
        if neither := len(rest) - len(out):
            yield f"{neither} more would not take it either"

    def why_not(self, ask: HostAsk, rows: Bools) -> str:
        """What speaks against these nodes, none of which takes it, in numbers."""
        return self._told(ask, self._ground.barriers(ask, rows), word=_FREE)

    def why_never(self, ask: HostAsk, *, able: Bools) -> str:
        """Why none of the nodes could take it that have such GPUs, in numbers; empty if one could, or none has."""
        why = self._told(ask, self._ground.lasting_barriers(ask, able), word="in all")
        return why and f"{_nodes(able)} such GPUs: {why}"

    def of_node(self, ask: HostAsk, known: KnownNode) -> str:
        """Why this node does not take it now, in words for operators; empty if it does."""
        row = np.zeros(len(self._picture.hosts.free), dtype=np.bool_)
        row[known.row] = True
        for one in self._ground.barriers(ask, row):
            match one.what:
                case Barrier.TAINT:
                    taint = barrier(known.node.spec.taints, ask.tolerations)
                    return f"tainted {taint}, which the pod does not tolerate"
                case Barrier.PLACE:
                    return why_unsuited(ask.wanted, name=known.name, labels=known.node.metadata.labels)
                case Barrier.COUNTED:
                    return why_short(ask.own, [known.name], picture=self._picture, named=True)
                case _:
                    return _amount(one, word=_FREE) + self._meant(one, named=True)
        return ""

    def _told(self, ask: HostAsk, found: Sequence[Against], *, word: str) -> str:
        return ", ".join(self._of_nodes(ask, one, word=word) for one in found)

    def _of_nodes(self, ask: HostAsk, one: Against, *, word: str) -> str:
        match one.what:
            case Barrier.TAINT:
                return f"{_are(one.rows)} tainted ({self._taint(one.rows, ask)})"
            case Barrier.PLACE:
                nobody = why_absent(ask.wanted, nodes=self._picture.nodes)
                return nobody or f"{_are(one.rows)} not what its nodeSelector or its affinity to nodes names"
            case Barrier.COUNTED:
                names = [name for name, known in self._picture.nodes.items() if one.rows[known.row]]
                return why_short(ask.own, names, picture=self._picture)
            case _:
                meant = self._meant(one) if word == _FREE else ""
                return _have_at_most(one.rows) + _amount(one, word=word) + meant

    def _meant(self, one: Against, *, named: bool = False) -> str:
        """What of it is kept there for pods that are only nominated: `kubectl describe node` shows it as free.

        Only to operators they are `named`: conditions are read by other tenants.
        """
        hosts, nodes = self._picture.hosts, self._picture.nodes
        there = (name for name in hosts.nominated.keys() & nodes.keys() if one.rows[nodes[name].row])
        if one.what not in _COLUMNS or not (kept := hosts.kept_for_nominated(there, _COLUMNS[one.what])):
            return ""
        amount = _number(sum(held for _, held in kept), one.what)
        whom = listed([pod for pod, _ in kept]) if named else counted(len(kept), "pod")
        return f" ({amount} {'is' if amount == '1' else 'are'} kept for {whom}, nominated there)"

    def _taint(self, rows: Bools, ask: HostAsk) -> str:
        """The one that keeps it off most of these nodes."""
        marks = self._picture.marks
        kinds = Counter(marks.taints_of(row) for row in np.flatnonzero(rows).tolist())
        found = Counter[str]()
        for taints, count in kinds.items():
            found[str(barrier(taints, ask.tolerations))] += count
        (taint, _), *more = found.most_common()
        return f"{taint} and others" if more else taint


def _whose(out: Sequence[KnownNode]) -> str:
    """Which nodes are out and why, the most frequent reasons."""
    names: dict[str, list[str]] = defaultdict(list)
    for known in out:
        names[known.out].append(known.name)
    often = sorted(names, key=lambda why: (-len(names[why]), why))
    others = sum(len(names[why]) for why in often[_REASONS:])
    told = [f"{listed(sorted(names[why]))}: {why}" for why in often[:_REASONS]]
    return "; ".join([*told, *([f"other reasons ({others})"] if others else [])])


def _of_others(refusals: Mapping[str, Refusal]) -> Iterator[str]:
    """Room may come; where an empty node would not take it either, that is no lack of room."""
    if full := sum(not one.final for one in refusals.values()):
        none = agreed(full, "the one that would take it has no room", f"of {full} that would take it none has room")
        yield f"{none} on its GPUs"
    if never := Counter(one.why for one in refusals.values() if one.final):
        yield f"{never.total()} more can't take it: {told_often(never)}"


def _have_at_most(rows: Bools) -> str:
    count = np.count_nonzero(rows)
    return "1 has " if count == 1 else f"{count} have at most "


def _amount(one: Against, *, word: str) -> str:
    """Begun GiB as they are, so that 8.0 is never said to be less than 8."""
    there, asked = (_number(amount, one.what) for amount in (max(0, one.most), one.asked))
    match one.what:
        case Barrier.CPU:
            return f"{there} CPUs {word} of {asked} asked"
        case Barrier.MEMORY:
            return f"{there} GiB of memory {word} of {asked} asked"
        case Barrier.EXTENDED:
            return f"{there} {one.resource} in all of {asked} asked"
        case _:
            return "no place for one more pod"


def _number(amount: int, what: Barrier) -> str:
    match what:
        case Barrier.CPU:
            return f"{amount / MILLI:g}"
        case Barrier.MEMORY:
            return f"{amount / _GIB:.6g}"
        case _:
            return str(amount)


def _nodes(rows: Bools) -> str:
    count = int(np.count_nonzero(rows))
    return f"{counted(count, 'node')} {agreed(count, 'has', 'have')}"


def _are(rows: Bools) -> str:
    count = int(np.count_nonzero(rows))
    return f"{count} {agreed(count, 'is', 'are')}"
