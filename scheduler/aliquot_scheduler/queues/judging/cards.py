"""What the queues know of the cards: how much there is and is free, what a pod may come to, and whether it could fit.

Everything is worked out of the picture's arrays once for each version of them; in between, the answers are at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from aliquot_core.claims import Claim
from aliquot_core.inventory import Gpu
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.patterns import Patterns
from aliquot_core.request import PodRequest
from aliquot_scheduler.fit.causes import Causes
from aliquot_scheduler.fit.demand import Demand, Piece, admitted
from aliquot_scheduler.fit.emptied import Emptied
from aliquot_scheduler.fit.ground import Ground, HostAsk
from aliquot_scheduler.fit.obstacles import Obstacles
from aliquot_scheduler.fit.refusals import Refusal, Refusals
from aliquot_scheduler.fit.ruled import Ruled
from aliquot_scheduler.picture.grid import Bools, Cells, Ints
from aliquot_scheduler.picture.host_room import OWN_COMPUTE, OWN_MEMORY
from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.queues.charged.fair import Reach
from aliquot_scheduler.queues.judging.at_most import most_of
from aliquot_scheduler.queues.judging.fitting import Asked, ByRow, Fitting, asked_of
from aliquot_scheduler.queues.judging.hardware import kinds_of
from aliquot_scheduler.queues.said.tree import Dimensions
from aliquot_scheduler.rules.judging import NO_RULES, Rules

_NONE = -1


class Stock(msgspec.Struct, frozen=True, kw_only=True):
    """What there is in each dimension of GPUs, and what of it is free."""

    capacity: tuple[int, ...]
    free: tuple[int, ...]


class Away(msgspec.Struct, frozen=True, kw_only=True):
    """What of each dimension lies on nodes that take no pods now, and how many of these somebody has cordoned."""

    capacity: tuple[int, ...] = ()
    cordoned: int = 0
    out: int = 0


NOBODY_AWAY = Away()


class Cards:
    """The cards of a picture, as queues count them."""

    def __init__(self, *, picture: Picture, dimensions: Dimensions, names: Names, rules: Rules = NO_RULES) -> None:
        self.picture = picture
        self._names = names
        self._grid = picture.grid
        # A cluster's own rules on nodes.
        self.ruled = Ruled(picture=picture, rules=rules)
        # The nodes that they are in.
        self.ground = Ground(picture=picture)
        self.obstacles = Obstacles(picture=picture)
        # What several containers of a pod have room for where nobody is.
        self.emptied = Emptied()
        self._named = dimensions.models
        self._models = [Patterns(allowed=(model.casefold(),)) for model in dimensions.models]
        self._suitable: dict[Asked, tuple[int, frozenset[int]]] = {}
        self._fitting = Fitting(grid=picture.grid, kinds=self.kinds)
        self._largest: tuple[int, list[int]] = (_NONE, [])

    @property
    def version(self) -> int:
        """Changes whenever anything here may; of nodes, when they may take who was refused."""
        return self._grid.version + self.ground.version

    def hardware(self) -> int:
        """Changes whenever what there is changes, whoever holds it."""
        grid = self._grid
        return hash((grid.usable.tobytes(), grid.kind.tobytes(), grid.open.tobytes(), grid.kinds_version))

    # --- how much ----------------------------------------------------------------------------------------------------
    def stock(self) -> Stock:
        """Counted anew."""
        grid, capacity = self._grid, list[int]()
        for places in self._places():
            there = grid.open & places
            capacity += [int(part.sum(where=there, dtype=np.int64)) for part in (grid.total, grid.usable)]
        return Stock(capacity=tuple(capacity), free=self._all_free(grid.open))

    def sound(self) -> tuple[int, ...]:
        """What is free of GPUs that do not fail."""
        return self._all_free(self._grid.open & ~self._grid.failing)

    def _all_free(self, among: Bools) -> tuple[int, ...]:
        grid, free = self._grid, list[int]()
        usable = among & ~grid.closed & grid.bindable[:, np.newaxis]
        for places in self._places():
            left = usable & places
            free += [self._free(grid.compute, left, OWN_COMPUTE), self._free(grid.memory, left, OWN_MEMORY)]
        return tuple(free)

    def _free(self, part: Ints, where: Bools, column: int) -> int:
        """The sum; of a node no more than kube-scheduler counts as left."""
        left = self.picture.hosts.free[:, column].clip(0)
        return int(np.minimum(part.sum(axis=1, where=where, dtype=np.int64), left).sum())

    def away(self) -> Away:
        """What the stock counts as there and never as free."""
        grid = self._grid
        there = grid.open & ~grid.bindable[:, np.newaxis]
        if not there.any():
            return NOBODY_AWAY
        amounts = []
        for places in self._places():
            amounts += [int(part.sum(where=there & places, dtype=np.int64)) for part in (grid.total, grid.usable)]
        rows = set(np.flatnonzero(there.any(axis=1)).tolist())
        nodes = [known.node.spec.unschedulable for known in self.picture.nodes.values() if known.row in rows]
        return Away(capacity=tuple(amounts), cordoned=sum(nodes), out=len(nodes) - sum(nodes))

    def reach(self) -> Reach:
        """What pods can have: of nodes that take none for now, only what is in use there."""
        grid = self._grid
        takes = grid.bindable[:, np.newaxis]
        found = []
        for places in self._places():
            for total, free in ((grid.total, grid.compute), (grid.usable, grid.memory)):
                in_use = np.where(grid.closed, total, total - free)
                there = np.where(takes, total, in_use)
                found.append(int(there.sum(where=grid.open & places, dtype=np.int64)))
        return Reach(amounts=tuple(found), kinds=tuple(frozenset(kinds_of(one, self.picture)) for one in self._named))

    def amounts(self, demand: Demand) -> tuple[int, ...]:
        """The most that the pod may come to: memory left out or closed to others is the largest allowed card's.

        Who may have nothing but instances of MIG comes to the smallest that would do, and to a larger one only once it
        was granted that.
        """
        request = demand.request
        kinds = self.kinds(request)
        compute, memory = most_of(demand, lambda piece: self._smallest(piece, kinds) or self._most(piece, kinds))
        amounts = [compute, memory]
        for model in self._models:
            there = any(model.admits(*self._grid.kinds[number].models) for number in kinds)
            amounts += [compute, memory] if there else [0, 0]
        return tuple(amounts)

    def _most(self, piece: Piece, kinds: Iterable[int]) -> tuple[int, int]:
        """Of the largest of these cards."""
        largest = max((self._sizes()[number] for number in kinds), default=0)
        return piece.compute, max(piece.memory_on(largest), largest if piece.whole else 0)

    def _smallest(self, piece: Piece, kinds: Iterable[int]) -> tuple[int, int] | None:
        """The smallest instance that takes it; None where there is none, or cards are there that are not cut."""
        sizes = self._sizes()
        there = [(self._grid.kinds[number], sizes[number]) for number in kinds if sizes[number]]
        if not all(kind.cut for kind, _ in there):
            return None
        able = ((kind.compute, size) for kind, size in there if piece.memory_on(size) <= size)
        return min((one for one in able if one[0] >= piece.compute), default=None)

    def granted(self, pod: Pod) -> tuple[int, ...] | None:
        """What a pod has come to, by its grant; None if it has none."""
        # What the picture holds for it was read from the grant: to read it once more takes 50 us a pod.
        held = self.picture.holdings.of(pod.metadata.uid) if pod.spec.node_name else None
        if not held:
            return None
        return self.amounts_of(held)

    def amounts_of(self, held: Mapping[tuple[str, str], Claim]) -> tuple[int, ...]:
        """What claims on these GPUs come to."""
        amounts = [0] * (2 + 2 * len(self._models))
        for (node, uuid), claim in held.items():
            known = self.picture.nodes.get(node)
            gpu = known.inventory.gpu(uuid) if known else None
            memory = _memory(claim, card=gpu.memory if gpu else 0)
            for place in self.counted_in(gpu):
                amounts[place] += claim.compute.value
                amounts[place + 1] += memory
        return tuple(amounts)

    def counted_in(self, gpu: Gpu | None) -> list[int]:
        """The dimensions in which a GPU's compute counts, each with that of its memory after it."""
        return [0, *(2 + 2 * n for n, m in enumerate(self._models) if gpu and m.admits(*gpu.model_names))]

    def models_without(self, node: str, uuids: Iterable[str]) -> list[str]:
        """The models that queues name of which none of these GPUs of a node is; none if the node is gone."""
        if (known := self.picture.nodes.get(node)) is None:
            return []
        gpus = [gpu for gpu in map(known.inventory.gpu, uuids) if gpu]
        models = zip(self._named, self._models, strict=True)
        return [name for name, model in models if not any(model.admits(*gpu.model_names) for gpu in gpus)]

    # --- whether it fits ---------------------------------------------------------------------------------------------
    def able(self, demand: Demand) -> npt.NDArray[np.bool_]:
        """Which nodes, by their rows, could take the pod if they were empty."""
        return self.causes(demand).able()

    def roomy(self, demand: Demand, cells: Cells | None = None) -> npt.NDArray[np.bool_]:
        """Which nodes, by their rows, have enough cards with room for each of its pieces; now, or by these cells."""
        return self.causes(demand, cells).roomy() & (cells or self._grid).bindable

    def why_no_node(self, pod: Pod, demand: Demand, *, host: HostAsk) -> str:
        """Why no node takes the pod that has room on its GPUs, by what it asks of nodes or by rules; or nothing."""
        causes = self.causes(demand)

        def refused(nodes: Mapping[str, KnownNode]) -> Mapping[str, Refusal]:
            return Refusals(causes, names=self._names).of(nodes)

        # Each of its containers may have room, and all together not even on an empty node.
        roomy = causes.roomy() & causes.able() & self._grid.bindable
        among = roomy & self.ground.admits(host)
        if why := self.obstacles.why_none(host, roomy=roomy, refused=refused):
            return why
        if not (why := self.ruled.why_none(pod, demand, among=among)):
            return ""
        with_room = ", ".join(filter(None, (why, self.obstacles.why_not(host, roomy & ~among))))
        return "; ".join((with_room, *self.obstacles.others(host, but=roomy, refused=refused)))

    def causes(self, demand: Demand, cells: Cells | None = None) -> Causes:
        """Why nodes do not take it, by their GPUs as they are now, or by these cells."""
        named = self.picture.named(demand.request.uuids)
        return Causes(demand, grid=cells or self._grid, emptied=self.emptied, named=named)

    def register(self, demand: Demand) -> int:
        """A number for those that ask so, by which `fitting` answers."""
        return self._fitting.register(demand)

    @property
    def registered(self) -> int:
        """How many shapes have a number."""
        return self._fitting.registered

    def fitting(self) -> list[bool]:
        """By number, whether a card with room for the first piece may be there."""
        return self._fitting.all()

    def fits(self) -> npt.NDArray[np.bool_]:
        """The same as an array."""
        return self._fitting.fits()

    def few_fitting(self) -> frozenset[int] | None:
        """The numbers for which it says yes, where the cards are so full that these are few; else None."""
        return self._fitting.few()

    def fitting_by_row(self) -> ByRow:
        """The same of each node, as things are now."""
        return self._fitting.by_row()

    def are_taken(self, nodes: Sequence[str]) -> bool:
        """Whether each card of these nodes is one's whole: nobody else comes there, with whatever slice."""
        _, rows = self.picture.rows_of(nodes)
        return not bool((self._grid.open & ~self._grid.closed)[rows].any())

    def kinds(self, request: PodRequest) -> frozenset[int]:
        """The kinds of cards that the pod allows, and that allow it; some may have too little memory to give."""
        asked = asked_of(request)
        known = self._grid.kinds_version
        if self._suitable.get(asked, (_NONE, frozenset()))[0] != known:
            suitable = frozenset(number for number, kind in enumerate(self._grid.kinds) if admitted(kind, request))
            self._suitable[asked] = known, suitable
        return self._suitable[asked][1]

    # --- how it is worked out ----------------------------------------------------------------------------------------
    def _places(self) -> Iterable[Bools]:
        """All cards, then those of each model that some queue names."""
        yield np.ones_like(self._grid.open)
        for model in self._models:
            named = np.array([model.admits(*kind.models) for kind in self._grid.kinds] or [False], dtype=np.bool_)
            yield named[self._grid.kind]

    def _sizes(self) -> list[int]:
        """The largest card of each kind."""
        grid = self._grid
        if self._largest[0] != grid.version:
            largest = np.zeros(len(grid.kinds) or 1, dtype=np.int64)
            np.maximum.at(largest, grid.kind[grid.open], grid.usable[grid.open])
            self._largest = grid.version, largest.tolist()
        return self._largest[1]


def _memory(claim: Claim, *, card: int) -> int:
    """A card that is closed to others is used as a whole."""
    return max(claim.memory.value, card) if claim.closes else claim.memory.value
