"""What the centre knows of requests, for the value of a place: followed event by event like the picture.

Theory of operation. Each request counts in the mix once. When enough has come, tables are to be worked out of the mix
anew (40 to 150 ms, some 40 times in the first 20,000 requests and every 1,000 after that): `due` hands that work out,
to be done beside the decisions, and `renew` takes in what came of it; until then the tables that are there go on. Only
where the hardware is another one, so that they can't be read, is it done at once. Prices of what is scarce are renewed
every 200 requests. What cores are free the picture says: less what is promised, and what is kept for somebody.

What must always hold: the same events give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from aliquot_core.errors import AliquotError
from aliquot_core.hosts import host_request
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import parse_request
from aliquot_scheduler.fit.appraisal import Appraisal, room_of, shape_of
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.picture.host_room import CPU, MILLI, UNTOLD
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.worth.learning import MixBook, expected_mix, next_look
from aliquot_scheduler.worth.mix import Mix
from aliquot_scheduler.worth.page import Page
from aliquot_scheduler.worth.room import Reals
from aliquot_scheduler.worth.scarcity import Scarcity, scarcity
from aliquot_scheduler.worth.tables import Kind, Tables, tables

# After so many requests prices are renewed; every 50: the same, every 1,000: 0.06 points less (facts of openb).
RENEWED = 200
_USUAL_CARD = 16_384


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """What tables are made for: their axes."""

    kinds: tuple[Kind, ...]
    gpus: int
    cores: float


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Tables, and from how many requests on they are to be worked out anew."""

    hardware: Hardware
    next_look: int
    tables: Tables


Work = Callable[[], Known]


def _known(hardware: Hardware, *, next_look: int, mix: Mix) -> Known:
    made = tables(mix, kinds=hardware.kinds, gpus=hardware.gpus, cores=hardware.cores)
    return Known(hardware=hardware, next_look=next_look, tables=made)


class Appraiser:
    """Says what a place is worth, as far as is known now."""

    def __init__(self, *, picture: Picture, names: Names, given: Mix | None = None) -> None:
        """Where a mix is given, what is learnt is kept and not used."""
        self._names = names
        self._given = given
        self._counted: set[str] = set()
        self._picture = picture
        self.book = MixBook()
        self._card = _USUAL_CARD
        self._tables: Known | None = None
        self._scarcity: tuple[int, Tables, Scarcity] | None = None
        # Of any node, as of so many changes of their sizes.
        self._most_cores: tuple[int, float] = -1, 0.0
        self._made_for: Hardware | None = None
        # Which kinds there were.
        self._made_of = -1

    def recall(self, page: Page) -> None:
        """Take over what an earlier leader has learnt, before the first pod is told of."""
        self.book = MixBook(page)

    # --- what the watches tell ---------------------------------------------------------------------------------------
    def pod_seen(self, pod: Pod) -> None:
        """Any pod is there, or is changed: what it asks for of GPUs counts in the mix, once."""
        if pod.metadata.uid not in self._counted:
            self._counted.add(pod.metadata.uid)
            self._count(pod)

    def pod_gone(self, pod: Pod) -> None:
        """A pod is gone."""
        self._counted.discard(pod.metadata.uid)
        self.book.gone(pod.metadata.uid)

    # --- what is asked -----------------------------------------------------------------------------------------------
    def look(self, pod: Pod) -> Appraisal:
        """All that is known now, for this pod."""
        known, hosts = self._tables_now(), self._picture.hosts
        return Appraisal(
            cells=self._picture.grid,
            # A place that was promised to it is looked at once more.
            free=hosts.cores_but(pod.metadata.uid),
            changes=hosts.changes,
            tables=known,
            scarcity=self._scarcity_now(known),
            cores=host_request(pod)[0] / MILLI,
        )

    # --- what is worked out beside ---------------------------------------------------------------------------------
    def due(self) -> Work | None:
        """Work that is to be done, if any: it touches nothing of ours, so it may be done in another thread."""
        if self._given or self._tables is None or self.book.requests < self._tables.next_look:
            return None
        return self._work()

    def renew(self, known: Known) -> None:
        """Take in what came of the work; if the hardware has changed meanwhile it is of no use."""
        if known.hardware == self._hardware():
            self._tables = known

    # --- how it is kept ----------------------------------------------------------------------------------------------
    def _count(self, pod: Pod) -> None:
        try:
            request = parse_request(pod, names=self._names)
        except AliquotError:
            # Whoever has to refuse it says why; nothing can be learnt of it.
            return
        if request.containers:
            shape = shape_of(demand_of(request), cores=host_request(pod)[0] / MILLI, card=self._card)
            self.book.seen(shape, uid=pod.metadata.uid, created=pod.metadata.creation_timestamp or "")

    def _tables_now(self) -> Tables:
        hardware = self._hardware()
        if self._tables is None or (self._tables.hardware is not hardware and self._tables.hardware != hardware):
            self._tables = self._work()()
        return self._tables.tables

    def _work(self) -> Work:
        grid, hardware = self._picture.grid, self._hardware()
        # Who comes to an instance of MIG comes to all of it: of cards alone is there more than one way to fill them.
        cards = grid.open & ~grid.cut
        gpus = int(cards.sum())
        self._card = int(np.median(grid.usable[cards])) if gpus else _USUAL_CARD
        per_gpu = float(self._cores_there().sum()) / max(1, gpus)
        return partial(
            _known,
            hardware,
            next_look=next_look(self.book.requests),
            mix=self._given or self.book.mix(expected=expected_mix(cores_per_gpu=per_gpu)),
        )

    def _hardware(self) -> Hardware:
        """The same object as long as nothing has changed: it is asked for with every pod."""
        grid, hosts, made = self._picture.grid, self._picture.hosts, self._made_for
        if self._most_cores[0] != hosts.sizes_version:
            self._most_cores = hosts.sizes_version, float(self._cores_there().max())
        most_cores = self._most_cores[1]
        if (
            made is None
            or made.cores != most_cores
            or made.gpus != grid.open.shape[1]
            or self._made_of != grid.kinds_version
        ):
            kinds = tuple(kind.models for kind in grid.kinds) or ((),)
            self._made_of = grid.kinds_version
            made = self._made_for = Hardware(kinds=kinds, gpus=grid.open.shape[1], cores=most_cores)
        return made

    def _scarcity_now(self, known: Tables) -> Scarcity:
        if self._scarcity is None or self._scarcity[1] is not known or self.book.requests >= self._scarcity[0]:
            rows = self._picture.grid.in_use
            room = room_of(self._picture.grid.part(rows), cores=self._picture.hosts.cores[rows])
            self._scarcity = self.book.requests + RENEWED, known, scarcity(room, known)
        return self._scarcity[2]

    def _cores_there(self) -> Reals:
        """By row; a node that says nothing of its cores has none to value."""
        cpu = self._picture.hosts.allocatable[:, CPU]
        cores: Reals = np.where(cpu == UNTOLD, 0.0, cpu / MILLI)
        return cores
