"""kube-scheduler's extender wire, version 1: bytes to questions, answers to bytes.

The Go structs carry no JSON tags, so the keys are Go's own field names. Two of the four answers have no room for an
error: without grades kube-scheduler goes on by its own, and without victims it evicts nobody; both are safe.

What must always hold: whatever the bytes are, reading them gives a question or a `MalformedCallError`. Nodes that are
sent whole are not decoded: a cluster whose extender entry lacks `nodeCacheCapable` is told so instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_core.objects import Pod
from aliquot_scheduler.extender.decisions import BEST_GRADE, Filtered
from aliquot_scheduler.extender.echo import Echo

# What default weights expect of an extender.
COARSE_GRADES = 10
_NULL = b"null"

T = TypeVar("T")


class MalformedCallError(ClusterError):
    """A body that no kube-scheduler sends."""

    def __init__(self, what: str) -> None:
        super().__init__(what, where="extender call", remedy="only kube-schedulers speak to this address")


class NodesUncachedError(ClusterError):
    """kube-scheduler sent whole nodes, which only those need who do not watch them."""

    def __init__(self) -> None:
        super().__init__(
            "nodes came whole instead of by name",
            where="KubeSchedulerConfiguration, extenders",
            remedy="set nodeCacheCapable: true for Aliquot's extender",
        )


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Common settings of what travels."""


# --- what is asked ---------------------------------------------------------------------------------------------------
class _Args(_Wire, frozen=True, kw_only=True):
    pod: Pod
    nodes: msgspec.Raw = msgspec.Raw(_NULL)
    node_names: msgspec.Raw = msgspec.Raw(_NULL)


class _MetaPod(_Wire, frozen=True, kw_only=True):
    uid: str = msgspec.field(name="UID")


class _Victims(_Wire, frozen=True, kw_only=True):
    pods: list[_MetaPod | None] | None = None
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class _PreemptionArgs(_Wire, frozen=True, kw_only=True):
    pod: Pod
    node_name_to_victims: msgspec.Raw = msgspec.Raw(_NULL)
    node_name_to_meta_victims: dict[str, _Victims | None] | None = None


class Placing(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, and the nodes that are left for it."""

    pod: Pod
    nodes: Sequence[str]


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, and whom kube-scheduler would evict for it: uids by node, and how many budgets that would break."""

    pod: Pod
    offered: dict[str, list[str]]
    violations: dict[str, int]


class Binding(_Wire, frozen=True, kw_only=True):
    """A pod, and the node that it goes to."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str


_args = msgspec.json.Decoder(_Args)
_names = msgspec.json.Decoder(list[str] | None)
_preemptions = msgspec.json.Decoder(_PreemptionArgs)
_bindings = msgspec.json.Decoder(Binding)


def decode_placing(body: bytes, *, echo: Echo) -> Placing:
    """Read what filter and prioritize are asked."""
    args = _decoded(_args, body)
    _check(args.pod)
    text = bytes(args.node_names)
    if (nodes := echo.heard(text)) is None:
        nodes = _decoded(_names, text)
    if nodes is None and bytes(args.nodes) != _NULL:
        raise NodesUncachedError
    return Placing(pod=args.pod, nodes=nodes or [])


def decode_preemption(body: bytes) -> Preemption:
    """Read what preempt is asked."""
    args = _decoded(_preemptions, body)
    _check(args.pod)
    if args.node_name_to_meta_victims is None and bytes(args.node_name_to_victims) != _NULL:
        raise NodesUncachedError
    victims = {node: found or _Victims() for node, found in (args.node_name_to_meta_victims or {}).items()}
    return Preemption(
        pod=args.pod,
        offered={node: [pod.uid for pod in found.pods or () if pod] for node, found in victims.items()},
        violations={node: found.violations for node, found in victims.items()},
    )


def decode_binding(body: bytes) -> Binding:
    """Read what bind is asked."""
    binding = _decoded(_bindings, body)
    for value in (binding.name, binding.namespace, binding.uid, binding.node):
        if not value:
            raise MalformedCallError("a binding needs pod, namespace, uid and node")
    return binding


def _check(pod: Pod) -> None:
    if not (pod.metadata.uid and pod.metadata.name and pod.metadata.namespace):
        raise MalformedCallError("a pod needs name, namespace and uid")


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedCallError(f"{error}") from None


# --- what is answered ------------------------------------------------------------------------------------------------
class _FilterResult(_Wire, frozen=True, kw_only=True):
    # Left out, it would mean that the whole nodes are elsewhere in the answer.
    node_names: msgspec.Raw
    failed_nodes: Mapping[str, str] = {}
    failed_and_unresolvable_nodes: Mapping[str, str] = {}
    error: str = ""


class _BindingResult(_Wire, frozen=True, kw_only=True):
    error: str = ""


class _PreemptionResult(_Wire, frozen=True, kw_only=True):
    node_name_to_meta_victims: dict[str, _Victims]


_encoder = msgspec.json.Encoder()
_HOST = '{"Host":"'
# What stands between a node's name and the next one's.
_SCORES = {grade: f'","Score":{grade}}},{_HOST}' for grade in range(BEST_GRADE + 1)}


def encode_filtered(filtered: Filtered, *, echo: Echo) -> bytes:
    """Answer filter."""
    names = _encoder.encode(filtered.nodes)
    echo.said(filtered.nodes, text=names)
    return _encoder.encode(
        _FilterResult(
            node_names=msgspec.Raw(names),
            failed_nodes=filtered.failed,
            failed_and_unresolvable_nodes=filtered.unresolvable,
            error=filtered.error,
        )
    )


def encode_grades(nodes: Sequence[str], grades: Sequence[int]) -> bytes:
    """Answer prioritize: each node with its grade, put together from pieces, since a thousand are for each pod."""
    names = "".join(nodes)
    # In JSON no longer than without, but for the quotes: nothing was escaped.
    if len(_encoder.encode(names)) != len(names.encode()) + 2:
        raise MalformedCallError("no node has a name of such letters")
    pieces = [""] * (2 * len(nodes))
    pieces[0::2] = nodes
    pieces[1::2] = map(_SCORES.__getitem__, grades)
    return f"[{_HOST}{''.join(pieces)}".removesuffix(f",{_HOST}").encode() + b"]" if pieces else b"[]"


def coarse(grade: int) -> int:
    """A fine grade on kube-scheduler's documented scale."""
    return round(min(max(grade, 0), BEST_GRADE) * COARSE_GRADES / BEST_GRADE)


def encode_victims(victims: Mapping[str, Sequence[str]], *, violations: Mapping[str, int]) -> bytes:
    """Answer preempt; fewer victims than were offered break no more budgets."""
    return _encoder.encode(
        _PreemptionResult(
            node_name_to_meta_victims={
                node: _Victims(
                    pods=[_MetaPod(uid=uid) for uid in uids], violations=min(violations.get(node, 0), len(uids))
                )
                for node, uids in victims.items()
            }
        )
    )


def encode_bound(error: str) -> bytes:
    """Answer bind."""
    return _encoder.encode(_BindingResult(error=error))
