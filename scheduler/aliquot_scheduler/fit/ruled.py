"""A survey after the rules were heard: some nodes do not fit any more, others cost more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from aliquot_core.hosts import host_request
from aliquot_core.objects import Node, Pod
from aliquot_scheduler.fit.appraisal import distinct
from aliquot_scheduler.fit.cost import WORST
from aliquot_scheduler.fit.demand import Demand
from aliquot_scheduler.fit.survey import Survey
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.host_room import MILLI
from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.rules.judging import Judgement, Rules
from aliquot_scheduler.rules.rule import NodeFacts, PodFacts


class Ruled:
    """Asks the rules of the nodes that have room."""

    def __init__(self, *, picture: Picture, rules: Rules) -> None:
        self._picture = picture
        self._rules = rules
        # By row, as nodes come and go under ever new names; good as long as the node's object is the same one.
        self._facts: dict[int, tuple[Node, NodeFacts]] = {}

    def heard(self, found: Survey, *, pod: Pod, demand: Demand) -> Survey:
        """The survey with what the rules say."""
        if not self._rules:
            return found
        nodes = self._picture.nodes
        judged = self._judged(pod, demand, among=found.fits)
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

    def admits(self, pod: Pod, demand: Demand, *, among: Bools) -> Bools:
        """Which of these rows no rule refuses to the pod."""
        refused = [name for name, one in self._judged(pod, demand, among=among).items() if one.refused]
        if not refused:
            return among
        admitted = among.copy()
        admitted[[self._picture.nodes[name].row for name in refused]] = False
        return admitted

    def all_admitted(self, asking: Iterable[tuple[Pod, Demand]], *, among: Bools) -> Bools:
        """Which of these rows no rule refuses to any of the pods; equals are asked for once."""
        if not self._rules:
            return among
        told: set[tuple[object, ...]] = set()
        for pod, demand in asking:
            if (what := (demand.request, host_request(pod), *self.words(pod))) not in told:
                told.add(what)
                among = self.admits(pod, demand, among=among)
        return among

    def why_none(self, pod: Pod, demand: Demand, *, among: Bools) -> str:
        """Why rules leave none of these rows to the pod, in their words; empty if they leave one, or there is none."""
        if not among.any() or self.admits(pod, demand, among=among).any():
            return ""
        said = Counter(one.refused for one in self._judged(pod, demand, among=among).values())
        return "all nodes with room are refused: " + ", ".join(f"{count} by {why}" for why, count in said.most_common())

    def words(self, pod: Pod) -> tuple[object, ...]:
        """What rules may tell the pod from others by that ask for the same."""
        meta = pod.metadata
        told: dict[str, Any] = {"namespace": meta.namespace, "labels": meta.labels, "annotations": meta.annotations}
        return tuple(
            told[field] if field == "namespace" else told[field].get(key) if key else frozenset(told[field].items())
            for field, key in sorted(self._rules.reads)
        )

    def _judged(self, pod: Pod, demand: Demand, *, among: Bools) -> dict[str, Judgement]:
        if not self._rules:
            return {}
        asked = [self._told(known) for known in self._picture.nodes.values() if among[known.row]]
        return self._rules.judge(pod_facts(pod, demand), asked)

    def _told(self, known: KnownNode) -> NodeFacts:
        kept = self._facts.get(known.row)
        if kept is None or kept[0] is not known.node:
            models = tuple(gpu.model for gpu in known.inventory.gpus)
            facts = NodeFacts(name=known.name, labels=known.node.metadata.labels, models=models)
            kept = self._facts[known.row] = known.node, facts
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
        cores=host_request(pod)[0] / MILLI,
    )
