"""Those who come are laid where somebody leaves more than is taken, so that others need not go for them.

Who lies on several cards leaves all of them, and so does a group that goes as a whole. Places are found one card after
the other, so others may have been taken before, each for a card of its own: `b` for one card of a pod that wants two,
then `a`, who had two, for the other. With `a` gone the pod may lie on both of those, and `b` may stay.

Asked once nobody else can be spared, so all who leave something over have to go in any case; and once those who come
are held to the models on which they lie, of which queues say something (`Enrolment.held_to`).

What must always hold: nobody more goes for it, and whoever comes has room beside all who stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from aliquot_scheduler.queues.room.clearings import GpuKey, Place
from aliquot_scheduler.queues.waiting.waiter import GangKey
from aliquot_scheduler.reclaim.residents import Resident
from aliquot_scheduler.reclaim.scene import Scene
from aliquot_scheduler.reclaim.trying import Trying

# So many of those who go are tried for staying: each costs a millisecond, and of hundreds most have nothing left over.
_MOST_TRIED = 64
_MOST_NODES = 8

# Where else a pod may lie, of those nodes.
Elsewhere = Callable[[Place, Collection[str]], Iterable[str]]


class Gathering:
    """Of one search; `victims` go, and those of `places` come."""

    def __init__(
        self,
        *,
        scene: Scene,
        trying: Trying,
        victims: Mapping[str, Resident],
        places: list[Place],
        elsewhere: Elsewhere,
    ) -> None:
        self._scene = scene
        self._trying = trying
        self._victims = victims
        self._places = places
        self._elsewhere = elsewhere
        self._staying: list[Resident] = []

    def gather(self) -> bool:
        """Whether anybody lies elsewhere now; who need not go for that is supposed to be gone still."""
        if len(self._victims) == 1:
            # It was free to lie where nobody has to go.
            return False
        for unit in most_harmful_first(self._victims.values(), trying=self._trying)[:_MOST_TRIED]:
            if not (nodes := self._with_left_overs()):
                break
            # Of a gang that stays as a whole each is a unit by itself, too.
            if unit[0] not in self._staying and self._makes_way(unit, nodes=nodes):
                self._staying += unit
        self._trying.go_together(self._staying)
        return bool(self._staying)

    def _with_left_overs(self) -> list[str]:
        """Nodes on which somebody leaves more of a GPU than is taken, as far as they are looked at."""
        stay = {one.uid for one in self._staying}
        left = {gpu for one in self._victims.values() if one.uid not in stay for gpu in one.claims}
        return sorted({node for node, gpu in left if self._is_left_over(node, gpu)})[:_MOST_NODES]

    def _is_left_over(self, node: str, gpu: str) -> bool:
        known = self._scene.picture.nodes.get(node)
        if known is None or gpu not in known.columns:
            return False
        card = known.inventory.gpus[known.columns[gpu]]
        left = self._scene.left((node, gpu), compute=card.compute.value, usable=card.usable.value)
        return left.compute > 0 and not left.closed

    def _makes_way(self, unit: Sequence[Resident], *, nodes: Collection[str]) -> bool:
        """Whether all who come to the GPUs of these, or else to their node, may lie elsewhere: then these stay."""
        theirs: set[GpuKey] = {gpu for one in unit for gpu in one.claims}
        nodes_of = {node for node, _ in theirs}
        # Where nobody comes to their GPUs they go for the CPU or memory of their node.
        coming = [place for place in self._places if not theirs.isdisjoint(place.room)] or [
            place for place in self._places if place.node in nodes_of
        ]
        for place in coming:
            self._scene.leaves(place)
        self._trying.stay_together(unit)
        laid = self._laid(coming, nodes=nodes) if self._trying.runs(unit[0]) else []
        if coming and len(laid) == len(coming):
            self._places[:] = [*(place for place in self._places if place not in coming), *laid]
            return True
        for place in laid:
            self._scene.leaves(place)
        self._trying.go_together(unit)
        for place in coming:
            self._scene.comes(place)
        return False

    def _laid(self, coming: Iterable[Place], *, nodes: Collection[str]) -> list[Place]:
        """Places with nobody more gone, as far as there are any."""
        laid: list[Place] = []
        for place in coming:
            found = self._free_place(place, nodes=nodes)
            if found is None:
                break
            self._scene.comes(found)
            laid.append(found)
        return laid

    def _free_place(self, place: Place, *, nodes: Collection[str]) -> Place | None:
        for name in self._elsewhere(place, nodes):
            option = self._trying.option(place.waiter, self._scene.picture.nodes[name], only=place.gpus)
            if option is not None and not option.victims:
                return option.place
        return None


def most_harmful_first(victims: Iterable[Resident], *, trying: Trying) -> list[list[Resident]]:
    """Those of a gang together, and each by itself."""
    everybody = list(victims)
    gangs: dict[GangKey, list[Resident]] = {}
    for one in everybody:
        if one.waiter.gang is not None:
            gangs.setdefault(one.waiter.gang, []).append(one)
    together = [unit for unit in gangs.values() if len(unit) > 1]
    units = [*together, *([one] for one in everybody)]
    return sorted(units, key=lambda unit: (-sum(map(trying.harm, unit)), unit[0].uid))
