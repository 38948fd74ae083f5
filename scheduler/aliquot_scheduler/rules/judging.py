"""The word of all rules on the nodes that have room for a pod.

What must always hold: a rule that fails, or takes too long, costs no pod its place. It counts as silent for that pod,
is told, and is set aside after the third time in a row: each time it holds up every decision for as long as its limit.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import msgspec

from aliquot_scheduler.rules.expressions import ExpressionRule
from aliquot_scheduler.rules.limit import RuleError
from aliquot_scheduler.rules.rule import ALL_WORDS, MOST_COST, NodeFacts, Opinion, PodFacts, Rule, Word, is_cost

log = logging.getLogger(__name__)

_FAILURES = 3

# Breaks off what is done inside when it takes too long, by a `RuleError`.
Limit = Callable[[], AbstractContextManager[None]]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that has failed on a pod, and whether it is asked no more for that."""

    rule: str
    why: str
    set_aside: bool


def log_failure(failure: Failure) -> None:
    """As processes tell of it; the sentence is whole by itself where a command has no log with fields."""
    facts = {"rule": failure.rule, "error": failure.why, "set_aside": failure.set_aside}
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
        """`limit` is put round what one rule says of all nodes, `failed` is told of each that fails."""
        self._rules = dict(rules)
        self._limit = limit
        self._tell = failed
        self._in_a_row = dict.fromkeys(rules, 0)
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
                        said[node.name] = _checked(opinion)
        except Exception as error:  # noqa: BLE001 - it is somebody else's code; it is told, counted and set aside
            self._failed(name, error)
            return {}
        self._in_a_row[name] = 0
        return said

    def _failed(self, name: str, error: Exception) -> None:
        self._in_a_row[name] += 1
        self.failures[name] += 1
        given_up = self._in_a_row[name] >= _FAILURES
        if given_up:
            del self._rules[name]
        self._tell(Failure(rule=name, why=repr(error)[:500], set_aside=given_up))


def _reads(rule: Rule) -> frozenset[Word]:
    """Who wrote a function need not say what it reads."""
    return rule.reads if isinstance(rule, ExpressionRule) else ALL_WORDS


def _may_read_labels(rule: Rule) -> bool:
    return rule.reads_node_labels if isinstance(rule, ExpressionRule) else True


def _checked(opinion: object) -> Opinion:
    if not isinstance(opinion, Opinion) or not is_cost(opinion.cost):
        what = f"it said {opinion!r:.100}"
        raise RuleError(what, where="rule", remedy=f"return None, or an Opinion with a cost from 0 to {MOST_COST:g}")
    return opinion


def _with(so_far: Judgement, opinion: Opinion, *, rule: str) -> Judgement:
    why = f": {opinion.why}" if opinion.why else ""
    if opinion.refused:
        return msgspec.structs.replace(so_far, refused=so_far.refused or f"rule {rule}{why}")
    if not opinion.cost:
        return so_far
    remark = f"{opinion.cost:g} GPUs dearer by rule {rule}{why}"
    return msgspec.structs.replace(so_far, cost=so_far.cost + opinion.cost, remarks=(*so_far.remarks, remark))


NO_RULES = Rules({})
