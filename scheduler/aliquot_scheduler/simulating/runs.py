"""A run by the names that people use: which policy, which ties, which mix."""

from __future__ import annotations

from enum import StrEnum

import msgspec
import numpy as np

from aliquot_scheduler.rules.judging import NO_RULES, Rules
from aliquot_scheduler.simulating.fleet import Fleet
from aliquot_scheduler.simulating.fragments import typical_pods
from aliquot_scheduler.simulating.policies import AnyFit, BestFit, Fgd, GpuPacking, Policy
from aliquot_scheduler.simulating.replay import Outcome, Replay, Ties
from aliquot_scheduler.simulating.ruled import Ruled
from aliquot_scheduler.simulating.valued import Valued, mix_of
from aliquot_scheduler.simulating.workload import Longs, Workload
from aliquot_scheduler.worth.mix import Mix


class PolicyName(StrEnum):
    """The policies."""

    ALIQUOT = "aliquot"
    BESTFIT = "bestfit"
    GPUPACKING = "gpupacking"
    FGD = "fgd"
    RANDOM = "random"


class MixSource(StrEnum):
    """Where Aliquot's policy has the mix of requests from."""

    # The whole pod list, as the published policy has it too.
    GIVEN = "given"
    # What has arrived so far.
    LEARNT = "learnt"
    # Whoever begins a run.
    SETTINGS = "settings"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run; curves by how much had been asked for, in percent of the GPUs."""

    policy: str
    mix: str
    ties: str
    seed: int
    pods: int
    placed: int
    failed: int
    allocated_pct_at: dict[str, float]
    frag_pct_at: dict[str, float]
    seconds: float
    # Whether it was broken off: curves then end early.
    partial: bool
    # Of a cluster's own, that were heard; and how often one failed, and was silent.
    rules: list[str] = []
    rule_failures: dict[str, int] = {}


def begin(
    workload: Workload,
    *,
    policy: PolicyName,
    mix: MixSource,
    seed: int,
    line: Longs | None,
    rules: Rules = NO_RULES,
    settings: Mix | None = None,
) -> Replay:
    """Make a run ready; without a line of equals, ties are drawn from the seed. Rules are for our own policy.

    `settings` is the mix of `MixSource.SETTINGS`.
    """
    ties, draws = np.random.default_rng(seed).spawn(2)
    fleet = Fleet(workload.machines)
    known = mix_of(workload, fleet) if mix is MixSource.GIVEN else settings if mix is MixSource.SETTINGS else None
    chosen = _policy(workload, fleet, policy=policy, mix=known, random=draws)
    if rules and policy is PolicyName.ALIQUOT:
        chosen = Ruled(chosen, machines=workload.machines, rules=rules)
    return Replay(workload, fleet=fleet, policy=chosen, ties=Ties(line=line, random=ties))


def _policy(
    workload: Workload, fleet: Fleet, *, policy: PolicyName, mix: Mix | None, random: np.random.Generator
) -> Policy:
    match policy:
        case PolicyName.ALIQUOT:
            return Valued(fleet, mix=mix)
        case PolicyName.BESTFIT:
            return BestFit(fleet)
        case PolicyName.GPUPACKING:
            return GpuPacking(fleet)
        case PolicyName.FGD:
            return Fgd(fleet, typical=typical_pods(workload))
        case PolicyName.RANDOM:
            return AnyFit(fleet, random=random)


def report(
    outcome: Outcome,
    *,
    workload: Workload,
    policy: PolicyName,
    mix: MixSource,
    seed: int,
    line: bool,
    seconds: float,
    rules: Rules = NO_RULES,
) -> Report:
    """What is told of a run."""
    known = {PolicyName.ALIQUOT: str(mix), PolicyName.FGD: str(MixSource.GIVEN)}
    arrived = len(outcome.where)
    return Report(
        policy=policy,
        mix=known.get(policy, "none"),
        ties="line" if line else "fresh",
        seed=seed,
        pods=arrived,
        placed=arrived - outcome.failed,
        failed=outcome.failed,
        allocated_pct_at=_rounded(outcome.curve(outcome.allocated)),
        frag_pct_at=_rounded(outcome.curve(outcome.fragments)),
        seconds=round(seconds, 3),
        partial=arrived < len(workload.arrivals),
        rules=rules.names if policy is PolicyName.ALIQUOT else [],
        rule_failures=dict(rules.failures) if policy is PolicyName.ALIQUOT else {},
    )


def _rounded(curve: dict[int, float]) -> dict[str, float]:
    return {str(x): round(value, 4) for x, value in curve.items()}
