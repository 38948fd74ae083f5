"""What must have come about round the centre a while after the last fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.deciding.promises import Stage
from simulation.universe.api import ApiServer
from simulation.universe.books import Books, Held
from simulation.universe.placer import Placer
from simulation.universe.replica import SimReplica


class CentreEnds:
    """Says what is not as it must be by now."""

    def __init__(
        self, *, replicas: Sequence[SimReplica], api: ApiServer, books: Books, placers: Sequence[Placer]
    ) -> None:
        self._replicas = replicas
        self._api = api
        self._books = books
        self._placers = placers

    def shortcomings(self) -> Iterator[str]:
        """Each in a sentence; none when all is well."""
        for replica in self._replicas:
            for life in replica.undead():
                yield f"{replica.name} was killed and goes on: {[task.get_name() for task in life.tasks]}"
        reigns = [reign for replica in self._replicas if (reign := replica.reign) is not None]
        if len(reigns) != 1:
            yield f"{len(reigns)} replicas decide"
            return
        yield from self._picture(reigns[0])
        yield from self._waiting()

    def _picture(self, reign: Reign) -> Iterator[str]:
        """What the leader knows of is what is granted, and it keeps room for nobody who is not on its way."""
        under_way = {promise.pod.metadata.uid: promise.stage for promise in reign.desk.promises}
        for stage in under_way.values():
            if stage is not Stage.OFFERED:
                yield f"a promise of the leader is still {stage}"
        known, right = _held_by(reign), self._books.held()
        for uid in (known.keys() | right.keys()) - under_way.keys():
            if known.get(uid) != right.get(uid):
                yield f"the leader takes {uid} to hold {known.get(uid)}, and it holds {right.get(uid)}"
        for name, node in reign.picture.nodes.items():
            if node.out:
                yield f"the leader keeps {name} out: {node.out}"

    def _waiting(self) -> Iterator[str]:
        """A pod waits only where there is no room for it."""
        for pod in self._api.pods():
            if not pod.spec.node_name and any(placer.has_room(pod) for placer in self._placers):
                yield f"{pod.key} waits though there is room for it"


def _held_by(reign: Reign) -> dict[str, Held]:
    """Who holds what by the leader's picture."""
    return {
        uid: {gpu: (claim.compute.value, claim.memory.value, claim.closes) for gpu, claim in held.items()}
        for uid, held in reign.picture.holdings.everything().items()
    }
