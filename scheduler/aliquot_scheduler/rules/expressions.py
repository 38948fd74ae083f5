"""Rules in CEL, as settings write them.

An expression is looked at as a whole before anybody is placed by it: it must be understood, read nothing but what rules
are told, and have a value for a pod and a node that say nothing. What fails for every node without some label would
else be a rule that is silent on the very cluster that it was written for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from aliquot_core.cel.compiling import CelError, Program, compile_cel
from aliquot_core.cel.values import is_number
from aliquot_core.settings import UnusableValueError, of_kind
from aliquot_scheduler.rules.limit import RuleError, alarm
from aliquot_scheduler.rules.rule import (
    ALL_WORDS,
    MOST_COST,
    WORDS,
    NodeFacts,
    Opinion,
    PodFacts,
    Rule,
    Word,
    is_cost,
)

# Much for one node, little for who waits at a start.
_TRIAL_SECONDS = 1.0
_LONGEST = 10_000
# Nodes come and go under ever new names.
_MOST_KEPT = 50_000

Text = Annotated[str, msgspec.Meta(max_length=_LONGEST)]


class Expression(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule: what refuses a node, and how much dearer (in GPUs, 0 to 2) it is otherwise; `why` is for people."""

    name: Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)]
    refuse: Text = ""
    cost: Text = ""
    why: Annotated[str, msgspec.Meta(max_length=200)] = ""


class ExpressionRule:
    """An expression that is asked as rules are."""

    def __init__(self, written: Expression) -> None:
        self._refuse = compile_cel(written.refuse) if written.refuse else None
        self._cost = compile_cel(written.cost) if written.cost else None
        self._refusal = Opinion(refused=True, why=written.why)
        self._why = written.why
        # All nodes are asked about one pod.
        self._pod: tuple[PodFacts | None, dict[str, Any]] = None, {}
        programs = [one for one in (self._refuse, self._cost) if one]
        read = {path for one in programs for path in one.reads}
        self._of_node_alone = all(path[0] == "node" for path in read)
        self.reads = _words_of(read)
        self.reads_node_labels = any(path in {("node",), ("node", "labels")} for path in (one[:2] for one in read))
        self._kept: dict[str, tuple[NodeFacts, Opinion | None]] = {}

    def __call__(self, pod: PodFacts, node: NodeFacts) -> Opinion | None:
        """What it says; where it reads nothing of pods, what it said of that node before (3 us less of 3.5)."""
        if not self._of_node_alone:
            return self._asked(pod, node)
        kept = self._kept.get(node.name)
        if kept is None or kept[0] is not node:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            kept = self._kept[node.name] = node, self._asked(pod, node)
        return kept[1]

    def _asked(self, pod: PodFacts, node: NodeFacts) -> Opinion | None:
        if self._pod[0] is not pod:
            self._pod = pod, _members(pod)
        names = {"pod": self._pod[1], "node": _members(node)}
        if self._refuse and self._refuse.holds(names):
            return self._refusal
        cost = _number(self._cost.value(names)) if self._cost else 0.0
        return Opinion(cost=cost, why=self._why) if cost else None


def _words_of(paths: Iterable[tuple[str, ...]]) -> frozenset[Word]:
    """Which of a pod's words these are; whoever takes the pod as a whole may look at any."""
    found: set[Word] = set()
    for name, *members in paths:
        if name == "pod" and not members:
            return ALL_WORDS
        if name == "pod" and members[0] in WORDS:
            found.add((members[0], members[1] if len(members) > 1 else ""))
    return frozenset(found)


def _members(facts: PodFacts | NodeFacts) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.structs.asdict(facts)
    if "models" in members:
        members["models"] = list(members["models"])
    return members


def _number(value: Any) -> float:
    if not is_number(value):
        raise CelError(f"expected a number, not {value!r:.40}")
    return float(value)


# --- what is looked at beforehand ------------------------------------------------------------------------------------

_KNOWN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"pod": PodFacts.__struct_fields__, "node": NodeFacts.__struct_fields__}
)
_REMEDY = 'let refuse be true or false and cost a number; read labels as in node.labels[?"disktype"].orValue("")'
_TRIAL = PodFacts(gpus=1, compute=100), NodeFacts(name="n", models=("m",))


def check(expressions: tuple[Expression, ...]) -> None:
    """Refuse what could not be asked."""
    seen: set[str] = set()
    for one in expressions:
        if one.name in seen:
            raise UnusableValueError(f"two rules are named {one.name}", remedy="give each a name of its own")
        seen.add(one.name)
        if not (one.refuse or one.cost):
            told = f"rule {one.name} has neither refuse nor cost"
            raise UnusableValueError(told, remedy="write one of them, or both")
        for what in ("refuse", "cost"):
            if text := getattr(one, what):
                _check(text, where=f"rule {one.name}, {what}")
        _try(one)


def _check(text: str, *, where: str) -> None:
    try:
        program = compile_cel(text)
    except CelError as error:
        raise UnusableValueError(f"{where}: {error}", remedy="write it in CEL, as docs/placement.md shows") from None
    if told := _unknown(program):
        what, known = told
        raise UnusableValueError(f"{where}: {what} is not known", remedy=f"known are {', '.join(known)}")


def _unknown(program: Program) -> tuple[str, tuple[str, ...]] | None:
    """What it reads that no rule is told, and what there is instead."""
    for name, *members in sorted(program.reads):
        if name not in _KNOWN:
            return name, tuple(_KNOWN)
        if members and members[0] not in _KNOWN[name]:
            return f"{name}.{members[0]}", tuple(f"{name}.{one}" for one in _KNOWN[name])
    return None


def _try(written: Expression) -> None:
    pod, node = _TRIAL
    try:
        with alarm(_TRIAL_SECONDS):
            # Each by itself, since a refusal leaves the cost unasked.
            for alone in (msgspec.structs.replace(written, cost=""), msgspec.structs.replace(written, refuse="")):
                opinion = ExpressionRule(alone)(pod, node)
                if opinion is not None and not is_cost(opinion.cost):
                    told = f"rule {written.name}, cost: a pod and a node without labels cost {opinion.cost:g}"
                    raise UnusableValueError(told, remedy=f"let it be from 0 to {MOST_COST:g} GPUs")
    except CelError as error:
        told = f"rule {written.name} has no value for a pod and a node without labels: {error}"
        raise UnusableValueError(told, remedy=_REMEDY) from None
    except RuleError as error:
        raise UnusableValueError(f"rule {written.name}: {error.what}", remedy=error.remedy) from None


class RuleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[rules]`."""

    # Beside the rules that are installed as Python packages.
    expressions: Annotated[tuple[Expression, ...], of_kind(check)] = ()


def expression_rules(settings: RuleSettings) -> dict[str, Rule]:
    """By name."""
    return {one.name: ExpressionRule(one) for one in settings.expressions}
