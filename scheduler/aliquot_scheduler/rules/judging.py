"""The word of all rules on the nodes that have room for a pod.

What must always hold: a rule that fails, or takes too long, costs no pod its place. It counts as silent for that pod
and is told. What fails is often the pod's own words (`int()` of a label), so a failure never ends a rule for others.
Only who takes too long three times in a row is set aside: each time it holds up all decisions for as long as its limit.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import msgspec

from aliquot_scheduler.rules.expressions import ExpressionRule
from aliquot_scheduler.rules.limit import RuleError, RuleTooSlowError
from aliquot_scheduler.rules.rule import ALL_WORDS, MOST_COST, NodeFacts, Opinion, PodFacts, Rule, Word, is_cost

log = logging.getLogger(__name__)

_TOO_OFTEN = 3

# Breaks off what is done inside when it takes too long, by a `RuleTooSlowError`.
Limit = Callable[[], AbstractContextManager[None]]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that has failed on a pod of this namespace, so many times so far; whether it is asked no more for that."""

    rule: str
    why: str
    namespace: str
    times: int
    set_aside: bool


def log_failure(failure: Failure) -> None:
    """As processes tell of it; the sentence is whole by itself where a command has no log with fields."""
    facts = {
        "rule": failure.rule,
        "error": failure.why,
        "namespace": failure.namespace,
        "times": failure.times,
        "set_aside": failure.set_aside,
    }
    log.error("rule %s has failed: %s", failure.rule, failure.why, extra=facts)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """All rules together on one node."""

    refused: str = ""
    cost: float = 0.0
    remarks: tuple[str, ...] = ()


_NOTHING = Judgement()


class Rules:
    """The rules that are installed, by their names."""

    def __init__(
        self,
        rules: Mapping[str, Rule],
        *,
        limit: Limit = nullcontext,
        failed: Callable[[Failure], None] = log_failure,
    ) -> None:
        """`limit` is put round what one rule says of all nodes; `failed` is told of failures, ever more seldom."""
        self._rules = dict(rules)
        self._limit = limit
        self._tell = failed
        self._slow_in_a_row = dict.fromkeys(rules, 0)
        self.set_aside: set[str] = set()
        # How often each has failed so far, of those that have.
        self.failures: Counter[str] = Counter()
        # The words of a pod by which these may tell pods apart that ask for the same.
        self.reads: frozenset[Word] = frozenset().union(*map(_reads, rules.values()))

    def __bool__(self) -> bool:
        return bool(self._rules)

    @property
    def names(self) -> list[str]:
        """Those that are asked."""
        return sorted(self._rules)

    @property
    def readers_of_labels(self) -> list[str]:
        """Those that may look at labels of nodes; who wrote a function need not say."""
        return [name for name in self.names if _may_read_labels(self._rules[name])]

    def judge(self, pod: PodFacts, nodes: Iterable[NodeFacts]) -> dict[str, Judgement]:
        """By node what is said against it; of whom nothing is said there is nothing."""
        nodes = list(nodes)
        judged: dict[str, Judgement] = {}
        # Who is asked of no node has not shown that it works.
        for name in self.names if nodes else ():
            # Few opinions for many nodes: writing each one's sentence anew was half of the time.
            told: dict[tuple[Judgement, Opinion], Judgement] = {}
            for node, opinion in self._asked(name, pod, nodes).items():
                key = judged.get(node, _NOTHING), opinion
                if (found := told.get(key)) is None:
                    found = told[key] = _with(*key, rule=name)
                judged[node] = found
        return judged

    def _asked(self, name: str, pod: PodFacts, nodes: Iterable[NodeFacts]) -> dict[str, Opinion]:
        rule, said = self._rules[name], {}
        try:
            with self._limit():
                for node in nodes:
                    if (opinion := rule(pod, node)) is not None:
                        said[node.name] = _understood(opinion)
        except Exception as error:  # noqa: BLE001 - it is somebody else's code; it is told and counted
            self._failed(name, error, namespace=pod.namespace)
            return {}
        self._slow_in_a_row[name] = 0
        return said

    def _failed(self, name: str, error: Exception, *, namespace: str) -> None:
        self._slow_in_a_row[name] = self._slow_in_a_row[name] + 1 if isinstance(error, RuleTooSlowError) else 0
        self.failures[name] += 1
        times, set_aside = self.failures[name], self._slow_in_a_row[name] >= _TOO_OFTEN
        if set_aside:
            self.set_aside.add(name)
            del self._rules[name]
        # At 1, 2, 4, 8, … times: it fails on a pod that waits at each look for a place, twice a second.
        if set_aside or times.bit_count() == 1:
            why = repr(error)[:500]
            self._tell(Failure(rule=name, why=why, namespace=namespace, times=times, set_aside=set_aside))


def _reads(rule: Rule) -> frozenset[Word]:
    """Who wrote a function need not say what it reads."""
    return rule.reads if isinstance(rule, ExpressionRule) else ALL_WORDS


def _may_read_labels(rule: Rule) -> bool:
    return rule.reads_node_labels if isinstance(rule, ExpressionRule) else True


def _understood(opinion: object) -> Opinion:
    """As it counts."""
    if not isinstance(opinion, Opinion) or math.isnan(opinion.cost):
        what = f"it said {opinion!r:.100}"
        raise RuleError(what, where="rule", remedy=f"return None, or an Opinion with a cost from 0 to {MOST_COST:g}")
    if is_cost(opinion.cost):
        return opinion
    return msgspec.structs.replace(opinion, cost=min(MOST_COST, max(0.0, opinion.cost)))


def _with(so_far: Judgement, opinion: Opinion, *, rule: str) -> Judgement:
    why = f": {opinion.why}" if opinion.why else ""
    if opinion.refused:
        return msgspec.structs.replace(so_far, refused=so_far.refused or f"rule {rule}{why}")
    if not opinion.cost:
        return so_far
    remark = f"{opinion.cost:g} GPUs dearer by rule {rule}{why}"
    return msgspec.structs.replace(so_far, cost=so_far.cost + opinion.cost, remarks=(*so_far.remarks, remark))


NO_RULES = Rules({})
