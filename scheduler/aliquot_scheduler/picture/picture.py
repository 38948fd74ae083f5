"""The picture: nodes with their GPUs, and what is held of them, followed event by event.

Theory of operation. Watches tell of nodes, heart-beats and pods; each event changes the few places of the grid that it
is about. What a pod holds is read from its grant alone, and only if the grant is the pod's own and for the node it is
bound to, so a picture built from the API server after a restart is the one that was lost. On top lie promises
(reservations), which are kept by their maker under a holder's name; a pod's grant takes its promise's place.

What must always hold:
 1. The claims on a GPU are those of its holders, whether or not the GPU is known at the moment.
 2. A holder holds on one GPU at most once, and a pod that has ended or is gone holds nothing.
 3. A pod takes CPU and memory of one node at most, whether it uses GPUs or not.
 4. Time is told from outside; a heart-beat that grows old takes its node out without any event.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from aliquot_core.claims import Claim
from aliquot_core.errors import AliquotError
from aliquot_core.held_on_sick import Held, held_on_sick
from aliquot_core.hosts import host_request, own_request
from aliquot_core.inventory import Gpu, Inventory, decode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Lease, Node, Pod
from aliquot_core.patterns import Patterns
from aliquot_scheduler.picture.grants import Grants
from aliquot_scheduler.picture.grid import Bools, Grid, Rows, kind_of
from aliquot_scheduler.picture.hearing import Hearing, told_all
from aliquot_scheduler.picture.holdings import GpuKey, Holdings
from aliquot_scheduler.picture.host_room import HostRoom, Ungranted
from aliquot_scheduler.picture.marks import Marks
from aliquot_scheduler.picture.named import Named
from aliquot_scheduler.picture.signs import SILENT, UNHEARD, Beat, beat_seen, is_fault, lost_gpus, why_out

log = logging.getLogger(__name__)

_GONE = -1
NO_GPUS = Inventory(problem="the node has published no GPUs")


class KnownNode:
    """One node: its object, its GPUs, and its row in the grid."""

    def __init__(self, *, node: Node, row: int) -> None:
        self.node = node
        self.row = row
        self.inventory = NO_GPUS
        self.columns: dict[str, int] = {}
        self.text: str | None = None
        # Which of its GPUs can't be given, in words: read of its inventory once, asked for every pod that is refused.
        self.lost = ""
        # Why no pod may be bound to it; it is not judged yet.
        self.out = "the node is new"

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name


class Picture:
    """What the centre knows."""

    def __init__(self, *, names: Names, hearing: Hearing) -> None:
        """`hearing` tells a node that is silent from a cluster of whom nobody is heard."""
        self._names = names
        self._hearing = hearing
        # Who is out only because nobody is heard.
        self._unheard = set[str]()
        self.grid = Grid()
        self.hosts = HostRoom(rows=self.grid.rows, own=names.resources())
        self.marks = Marks(rows=self.grid.rows)
        self._named = Named(rows=self.grid.rows)
        self.holdings = Holdings()
        self.grants = Grants(names=names)
        self.nodes: dict[str, KnownNode] = {}
        self._rows: dict[str, int] = {}
        # By their leases' names: a beat may be told of before its node is.
        self._beats: dict[str, Beat] = {}
        self._whose: dict[str, str] = {}
        self._expiries: list[tuple[float, str]] = []
        self._now = 0.0

    # --- nodes -------------------------------------------------------------------------------------------------------
    def node_seen(self, node: Node) -> None:
        """A node is there, or is changed."""
        name = node.metadata.name
        known = self.nodes.get(name)
        if known is None:
            known = self.nodes[name] = KnownNode(node=node, row=self.grid.take_row(gpus=0))
            self._rows[name] = known.row
            self._whose[self._names.lease(name)] = name
        known.node = node
        self.hosts.node_seen(node, row=known.row, rows=self.grid.rows)
        self.marks.node_seen(node, row=known.row, rows=self.grid.rows)
        text = node.metadata.annotations.get(self._names.inventory)
        if text != known.text:
            known.text = text
            self._take_inventory(known, self._read(text, node=name))
        self._judge(known)

    def node_gone(self, name: str) -> None:
        """A node's object is deleted; what its pods hold is theirs until they are gone too."""
        if known := self.nodes.pop(name, None):
            self._unheard.discard(name)
            self.hosts.node_gone(name)
            self.marks.node_gone(known.row)
            self._named.gpus_seen((), row=known.row, rows=self.grid.rows)
            self._whose.pop(self._names.lease(name), None)
            self.grid.give_row(self._rows.pop(name))
            self.grid.tidy()

    def lease_seen(self, lease: Lease, *, wall: float) -> None:
        """A heart-beat has come, or was found; other leases of the namespace do no harm."""
        name = lease.metadata.name
        beat = beat_seen(lease, before=self._beats.get(name), names=self._names, now=self._now, wall=wall)
        self._beats[name] = beat
        heapq.heappush(self._expiries, (beat.until, name))
        self._judge_owner(name)

    def lease_gone(self, name: str) -> None:
        """A heart-beat's lease is deleted."""
        self._beats.pop(name, None)
        self._judge_owner(name)

    @property
    def beating(self) -> int:
        """How many nodes have a heart-beat, whatever else is the matter with them."""
        return sum(lease in self._beats for lease in self._whose)

    def tell_time(self, now: float) -> list[str]:
        """Let time pass: which nodes went out because their heart-beats grew old."""
        self._now = now
        gone: list[str] = []
        if not self._hearing.deaf(now):
            for name in sorted(self._unheard):
                self._judge(self.nodes[name])
        while self._expiries and self._expiries[0][0] <= now:
            _, lease = heapq.heappop(self._expiries)
            if (known := self._owner(lease)) and self._judge(known) and known.out:
                gone.append(known.name)
        return gone

    # --- who holds what ----------------------------------------------------------------------------------------------
    def pod_seen(self, pod: Pod) -> None:
        """A pod is there, or is changed: what it holds is what its grant says."""
        held = self.grants.held(pod)
        if held is not None or pod.spec.node_name:
            self.hold(pod.metadata.uid, held or {})
        self.pod_lies(pod, granted=held is not None)

    def pod_lies(self, pod: Pod, *, granted: bool = False) -> None:
        """Any pod is there, or is changed: while it is bound its node has so much less, with a grant or without.

        And while one without slices is nominated for it: kube-scheduler keeps that from others. Of those with slices we
        have promised the room.

        Whose priority is higher than that one's, kube-scheduler would let in there; here nobody is. Who asks alike is
        judged alike, thousands at once, whatever the PriorityClass; and between users that gives nobody anything.
        """
        if pod.ended:
            self.hosts.release(pod.metadata.uid)
        elif pod.spec.node_name:
            self.lies(pod, node=pod.spec.node_name, granted=granted)
        elif not any(own_request(pod, names=self._names)):
            if nominated := pod.status.nominated_node_name:
                self.lies(pod, node=nominated, granted=False, nominated=True)
            else:
                self.hosts.release(pod.metadata.uid)

    def lies(self, pod: Pod, *, node: str, granted: bool, nominated: bool = False) -> None:
        """It takes so much of this node, or is to; without slices it may be only nominated there."""
        uid, own = pod.metadata.uid, own_request(pod, names=self._names)
        is_stray = any(own) and not granted
        stray = Ungranted(pod.key, own, later=self.grants.is_of_later(pod)) if is_stray else None
        meant = pod.key if nominated else ""
        self.hosts.hold(uid, node=node, amounts=host_request(pod), own=own, stray=stray, nominated=meant)

    def pod_gone(self, pod: Pod) -> None:
        """A pod is gone, and all it held is free."""
        self.hold(pod.metadata.uid, {})
        self.hosts.release(pod.metadata.uid)

    def hold(self, holder: str, held: Mapping[GpuKey, Claim]) -> None:
        """Let a holder hold exactly this."""
        for gpu in self.holdings.put(holder, held):
            self._count(gpu)

    def keep(self, whom: str, room: Mapping[GpuKey, Claim]) -> None:
        """Keep exactly this for somebody, though others may hold it still."""
        for gpu in self.holdings.keep(whom, room):
            self._count(gpu)

    def on_sick(self, pod: Pod) -> Held:
        """What of our resources it holds on sick GPUs: its node tells of that no longer than the pod is there."""
        known = self.nodes.get(pod.spec.node_name)
        if known is None or all(self._is_well(known, gpu) for _, gpu in self.holdings.of(pod.metadata.uid)):
            return Held()
        return Held().beside(*held_on_sick([pod], inventory=known.inventory, names=self._names).values())

    def named(self, uuids: Patterns) -> Bools | None:
        """The GPUs that are allowed by their uuids; None if all are."""
        return self._named.places(uuids, shape=self.grid.open.shape)

    def changed_at(self, node: str) -> int:
        """When anything changed last of what can be given of a node: the same number, and all is as it was."""
        row = self._rows.get(node)
        return _GONE if row is None else self.grid.changes.of(row)

    def rows_of(self, names: Sequence[str]) -> tuple[Sequence[str], Rows]:
        """Those of these nodes that are known, and the row of each."""
        # Asked of every node for every pod: looking into each `KnownNode` took three times as long.
        try:
            return names, np.fromiter(map(self._rows.__getitem__, names), dtype=np.intp, count=len(names))
        except KeyError:
            return self.rows_of([name for name in names if name in self._rows])

    # --- how it is kept ----------------------------------------------------------------------------------------------
    def _owner(self, lease: str) -> KnownNode | None:
        name = self._whose.get(lease)
        return self.nodes.get(name) if name else None

    def _judge_owner(self, lease: str) -> None:
        if known := self._owner(lease):
            self._judge(known)

    def _read(self, text: str | None, *, node: str) -> Inventory:
        if text is None:
            return NO_GPUS
        try:
            return decode_inventory(text)
        except AliquotError as error:
            log.error("a node's inventory can't be used", extra={"node": node, "error": str(error)})  # noqa: TRY400 - it says all
            return Inventory(problem=f"its inventory can't be used: {error}")

    def _take_inventory(self, known: KnownNode, inventory: Inventory) -> None:
        before, known.inventory = known.inventory, inventory
        known.lost = lost_gpus(inventory)
        known.columns = {gpu.uuid: column for column, gpu in enumerate(inventory.gpus)}
        self._named.gpus_seen(inventory.gpus, row=known.row, rows=self.grid.rows)
        self.grid.widen(len(inventory.gpus))
        self.grid.clear(known.row)
        for column, gpu in enumerate(inventory.gpus):
            self._write(known, column=column, gpu=gpu)
        # It goes over all nodes, so not whenever a GPU only fares otherwise.
        if len(inventory.gpus) < len(before.gpus) or not {*map(kind_of, before.gpus)} <= {
            *map(kind_of, inventory.gpus)
        }:
            self.grid.tidy()

    def _count(self, gpu: GpuKey) -> None:
        known = self.nodes.get(gpu[0])
        column = known.columns.get(gpu[1]) if known else None
        if known and column is not None:
            self._write(known, column=column, gpu=known.inventory.gpus[column])

    def _is_well(self, known: KnownNode, gpu: str) -> bool:
        column = known.columns.get(gpu)
        return column is not None and bool(self.grid.open[known.row, column])

    def _write(self, known: KnownNode, *, column: int, gpu: Gpu) -> None:
        held, holders = self.holdings.total((known.name, gpu.uuid))
        self.grid.write(known.row, column, gpu=gpu, held=held, holders=holders)

    def _judge(self, known: KnownNode) -> bool:
        """Whether pods may be bound to it; tells if that is another answer than before."""
        beat = self._beats.get(self._names.lease(known.name))
        # Who was silent before we became deaf is so still.
        deaf = known.out != SILENT and self._hearing.deaf(self._now)
        out = why_out(known.node, beat=beat, problem=known.inventory.problem, now=self._now, deaf=deaf)
        turned = bool(out) != bool(known.out)
        if turned or (is_fault(out) and not is_fault(known.out)):
            about: dict[str, object] = {"node": known.name, "reason": out}
            # By our own clock, as its age is judged.
            about |= {"silent_s": round(self._now - beat.seen, 2)} if beat and out else {}
            log.log(_level(out), "node out" if out else "node in", extra=about)
        if turned:
            self.grid.allow(known.row, bindable=not out)
        known.out = out
        if out == UNHEARD:
            self._unheard.add(known.name)
        else:
            self._unheard.discard(known.name)
        return turned


def _level(out: str) -> int:
    """Of what is somebody's will nobody need be woken."""
    return logging.WARNING if is_fault(out) else logging.INFO


def picture_of(
    *, nodes: Iterable[Node], leases: Iterable[Lease], pods: Iterable[Pod], names: Names, wall: float
) -> Picture:
    """What the leader would know, of all that is on the cluster."""
    picture = Picture(names=names, hearing=told_all())
    for lease in leases:
        picture.lease_seen(lease, wall=wall)
    for node in nodes:
        picture.node_seen(node)
    for pod in pods:
        picture.pod_seen(pod)
    return picture
