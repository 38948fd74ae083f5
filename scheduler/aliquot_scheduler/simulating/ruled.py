"""A policy that hears the rules of a cluster's own, as the centre does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aliquot_scheduler.rules.judging import Rules
from aliquot_scheduler.rules.rule import NodeFacts, PodFacts
from aliquot_scheduler.simulating.fleet import Some
from aliquot_scheduler.simulating.policies import Policy, Rating
from aliquot_scheduler.simulating.workload import MILLI, Machine, Need

_PERCENT = MILLI // 100


class Ruled:
    """Another policy, whose costs are in GPUs, with what the rules say on top."""

    def __init__(self, policy: Policy, *, machines: Sequence[Machine], rules: Rules) -> None:
        self._policy = policy
        self._rules = rules
        self._facts = [
            NodeFacts(name=one.name, labels=dict(one.labels), models=(one.model,) * one.gpus) for one in machines
        ]
        self._rows = {one.name: row for row, one in enumerate(machines)}

    @property
    def version(self) -> int:
        """The policy's own: rules remember nothing."""
        return self._policy.version

    def arrived(self, need: Need) -> None:
        """Tell the policy."""
        self._policy.arrived(need)

    def rate(self, need: Need, some: Some) -> Rating:
        """By the policy, and the rules of those with room; without GPUs a pod is not ours to judge."""
        found = self._policy.rate(need, some)
        if not need.gpus:
            return found
        cost = np.full(len(self._facts), np.inf)
        cost[some] = found.cost
        facts = [self._facts[row] for row in np.flatnonzero(np.isfinite(cost)).tolist()]
        for name, one in self._rules.judge(_facts_of(need), facts).items():
            cost[self._rows[name]] += np.inf if one.refused else one.cost
        return Rating(cost=cost[some], gpu=found.gpu)


def _facts_of(need: Need) -> PodFacts:
    compute = -(-need.milli // _PERCENT)
    return PodFacts(gpus=need.gpus, compute=compute, memory=need.card, cores=need.cores / MILLI)
