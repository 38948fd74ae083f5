"""What pods say of the nodes they may go to, and whether a node is one: labels, affinity to nodes, taints.

The rules are kube-scheduler's. What depends on where other pods are (affinity between pods, topology spread) and on
volumes is not here: only whoever sees the whole cluster as kube-scheduler does can say it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from aliquot_core.errors import UserError
from aliquot_core.names import Names
from aliquot_core.objects import Pod, Taint, Toleration

# All nodes are asked on the leader's loop: so much takes up to 10 ms of 1,000, and 10,000 tests by the node took 6 s.
MOST_TESTS = 256
MOST_VALUES = 4096

# What affinity calls a node's name.
NAME_FIELD = "metadata.name"

_NUMBER = re.compile(r"[+-]?[0-9]{1,63}")
_NUMBERS = 2**63

# A soft taint keeps nobody off.
_HARD = frozenset({"NoSchedule", "NoExecute"})
_SOFT = "PreferNoSchedule"


class UnreadableAffinityError(UserError):
    """An affinity that is none."""


class LargeAffinityError(UserError):
    """An affinity that takes too long to ask of every node."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False, omit_defaults=True):
    """Common settings."""


class Requirement(_Part, frozen=True, kw_only=True):
    """One test of a node's label, or of its name."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class Term(_Part, frozen=True, kw_only=True):
    """Tests that must all hold."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class Preference(_Part, frozen=True, kw_only=True):
    """What would be good, and how good."""

    weight: int = 0
    preference: Term = Term()


class _Terms(_Part, frozen=True, kw_only=True):
    node_selector_terms: tuple[Term, ...] = ()


class NodeAffinity(_Part, frozen=True, kw_only=True):
    """Which nodes the pod must or would have."""

    required: _Terms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[Preference, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Part, frozen=True, kw_only=True):
    """All that draws a pod to nodes and other pods."""

    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class Wanted(_Part, frozen=True, kw_only=True):
    """The labels and the name that a node must have: equal for all pods that say the same."""

    selector: tuple[tuple[str, str], ...] = ()
    # One of these must hold; None where any node will do.
    terms: tuple[Term, ...] | None = None


ANY_NODE = Wanted()


def affinity_of(pod: Pod) -> Affinity:
    """Read a pod's affinity."""
    try:
        return msgspec.convert(pod.spec.affinity or {}, Affinity)
    except msgspec.ValidationError as error:
        raise UnreadableAffinityError(
            f"can't be read: {error}", where="spec.affinity", remedy="write it as Kubernetes has it"
        ) from error


def check_affinity(pod: Pod) -> None:
    """Refuse what would hold up everybody else; what can't be read is kube-scheduler's to refuse."""
    if not pod.spec.affinity:
        return
    try:
        required = affinity_of(pod).node_affinity.required
    except UnreadableAffinityError:
        return
    terms = required.node_selector_terms if required else ()
    tests = [test for term in terms for test in (*term.match_expressions, *term.match_fields)]
    for count, most, what in (
        (max(len(terms), len(tests)), MOST_TESTS, "terms or expressions"),
        (sum(len(test.values) for test in tests), MOST_VALUES, "values"),
    ):
        if count > most:
            raise LargeAffinityError(
                f"{count} {what} are more than {most}",
                where="spec.affinity.nodeAffinity",
                remedy="label the nodes that are meant, and require that label",
            )


def wanted_by(pod: Pod) -> Wanted:
    """What a pod requires of its node's labels and name."""
    spec = pod.spec
    if not (spec.node_selector or spec.affinity):
        return ANY_NODE
    required = affinity_of(pod).node_affinity.required
    return Wanted(
        selector=tuple(sorted(spec.node_selector.items())),
        terms=None if required is None else required.node_selector_terms,
    )


def names_of(wanted: Wanted) -> frozenset[str]:
    """The only names that its node may have; empty if any will do."""
    terms = [_names_in(term) for term in wanted.terms or ()]
    return frozenset().union(*terms) if all(terms) else frozenset()


def why_absent(wanted: Wanted, *, nodes: Collection[str]) -> str:
    """Say that none of these nodes has a name that is wanted; empty if one has, or any name will do."""
    named = names_of(wanted)
    if not named or not named.isdisjoint(nodes):
        return ""
    return f"there is no node {min(named)}" if len(named) == 1 else f"none of {len(named)} nodes by name is there"


def _names_in(term: Term) -> frozenset[str]:
    fields = [frozenset(test.values) for test in term.match_fields if (test.key, test.operator) == (NAME_FIELD, "In")]
    return frozenset.intersection(*fields) if fields else frozenset()


def why_unsuited(wanted: Wanted, *, name: str, labels: Mapping[str, str]) -> str:
    """Say why a node is not what is wanted; empty if it is."""
    if any(labels.get(key) != value for key, value in wanted.selector):
        return "without the labels of the pod's nodeSelector"
    if wanted.terms is not None and not any(matches(term, name=name, labels=labels) for term in wanted.terms):
        return "not what the pod's node affinity requires"
    return ""


def tolerations_of(pod: Pod, *, names: Names) -> tuple[Toleration, ...]:
    """What a pod tolerates; unsaid, to go where things are played if it says how, and where commands run.

    Who says how it is to be played and names no command can only be played: on the other nodes it would hold its slice
    and never start.
    """
    played = any(note.startswith(f"{names.played}/") for note in pod.metadata.annotations)
    ours = (
        (names.simulated, played),
        (names.real, not played or all(one.command for one in (*pod.spec.init_containers, *pod.spec.containers))),
    )
    return *pod.spec.tolerations, *(Toleration(key=key, operator="Exists") for key, unsaid in ours if unsaid)


def barrier(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint that keeps such a pod off; None if none does."""
    tolerations = tuple(tolerations)
    return next((one for one in taints if one.effect in _HARD and not tolerated(one, tolerations)), None)


def discourages(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Tell whether such a pod is to come only where nothing else will do."""
    tolerations = tuple(tolerations)
    return any(one.effect == _SOFT and not tolerated(one, tolerations) for one in taints)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Tell whether any toleration covers a taint."""
    return any(
        (not one.effect or one.effect == taint.effect)
        and (one.key == taint.key or (not one.key and one.operator == "Exists"))
        and (one.operator == "Exists" or one.value == taint.value)
        for one in tolerations
    )


def matches(term: Term, *, name: str, labels: Mapping[str, str]) -> bool:
    """Tell whether all tests of a term hold; a term without any matches nothing, as on a cluster."""
    if not (term.match_expressions or term.match_fields):
        return False
    fields = {NAME_FIELD: name}
    return all(_holds(one, labels) for one in term.match_expressions) and all(
        _holds(one, fields) for one in term.match_fields
    )


def _holds(test: Requirement, labels: Mapping[str, str]) -> bool:
    found = labels.get(test.key)
    if test.operator == "In":
        return found in test.values
    if test.operator == "NotIn":
        return found not in test.values
    if test.operator in {"Exists", "DoesNotExist"}:
        return (found is not None) is (test.operator == "Exists")
    if test.operator in {"Gt", "Lt"}:
        return _compares(found, test)
    return False


def _compares(found: str | None, test: Requirement) -> bool:
    value, bound = number_of(found or ""), number_of(test.values[0]) if test.values else None
    if value is None or bound is None:
        return False
    return value > bound if test.operator == "Gt" else value < bound


def number_of(text: str) -> int | None:
    """A label's value as a number, as the API server reads it: of 64 bits, and no other writing than plain digits."""
    if not _NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if -_NUMBERS <= number < _NUMBERS else None
