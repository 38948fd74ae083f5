"""A survey after the rules were heard: some nodes do not fit any more, others cost more."""

from __future__ import annotations

import msgspec
import numpy as np

from aliquot_core.hosts import host_request
from aliquot_core.objects import Node, Pod
from aliquot_scheduler.fit.appraisal import distinct
from aliquot_scheduler.fit.cost import WORST
from aliquot_scheduler.fit.demand import Demand
from aliquot_scheduler.fit.survey import Survey
from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.rules.judging import Rules
from aliquot_scheduler.rules.rule import NodeFacts, PodFacts

_MILLI = 1000


class Ruled:
    """Asks the rules of the nodes that have room."""

    def __init__(self, *, picture: Picture, rules: Rules) -> None:
        self._picture = picture
        self._rules = rules
        # By name, good as long as the node's object is the same one.
        self._facts: dict[str, tuple[Node, NodeFacts]] = {}

    def heard(self, found: Survey, *, pod: Pod, demand: Demand) -> Survey:
        """The survey with what the rules say."""
        if not self._rules:
            return found
        nodes = self._picture.nodes
        with_room = [known for known in nodes.values() if found.fits[known.row]]
        judged = self._rules.judge(pod_facts(pod, demand), [self._told(known) for known in with_room])
        if not judged:
            return found
        fits, cost = found.fits.copy(), found.cost.copy()
        for name, one in judged.items():
            row = nodes[name].row
            fits[row] &= not one.refused
            cost[row] += one.cost
        cost -= cost.min(initial=WORST, where=fits)
        judgements = {name: one for name, one in judged.items() if one.refused or one.remarks}
        return msgspec.structs.replace(found, fits=fits, cost=np.clip(cost, 0.0, WORST), judgements=judgements)

    def _told(self, known: KnownNode) -> NodeFacts:
        kept = self._facts.get(known.name)
        if kept is None or kept[0] is not known.node:
            models = tuple(gpu.model for gpu in known.inventory.gpus)
            facts = NodeFacts(name=known.name, labels=known.node.metadata.labels, models=models)
            kept = self._facts[known.name] = known.node, facts
        return kept[1]


def pod_facts(pod: Pod, demand: Demand) -> PodFacts:
    """What rules are told of a pod."""
    pieces = [piece for piece, _ in distinct(demand)]
    return PodFacts(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels,
        annotations=pod.metadata.annotations,
        gpus=len(demand.pieces) if demand.pieces else 1,
        compute=max(piece.compute for piece in pieces),
        memory=max(piece.memory for piece in pieces),
        cores=host_request(pod)[0] / _MILLI,
    )
