"""The extender without its socket: a call's bytes in, the answer's bytes out, and how it went.

Every verb has a form on which it says that nothing was decided: so whatever goes wrong, kube-scheduler understands the
answer, and the pod waits.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from aliquot_core.errors import AliquotError, ClusterError
from aliquot_core.names import Names
from aliquot_scheduler.extender.decisions import Decisions, Filtered
from aliquot_scheduler.extender.echo import Echo
from aliquot_scheduler.extender.preempting import NO_LABELS, runs_the_cluster
from aliquot_scheduler.extender.wire import (
    coarse,
    decode_binding,
    decode_placing,
    decode_preemption,
    encode_bound,
    encode_filtered,
    encode_grades,
    encode_victims,
)


class LeaderUnheardError(ClusterError):
    """The call was not answered by a leader."""

    def __init__(self, what: str, *, where: str, remedy: str = "kube-scheduler asks again by itself") -> None:
        super().__init__(what, where=where, remedy=remedy)


class Verb(StrEnum):
    """What may be asked, as the last part of the address."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PRIORITIZE_COARSE = "prioritize-coarse"
    # Of pods without slices, where an entry of kube-scheduler's configuration asks for that.
    PRIORITIZE_PLAIN = "prioritize-plain"
    PREEMPT = "preempt"
    BIND = "bind"


class Outcome(StrEnum):
    """How a call ended, for the metrics."""

    # A decision, whatever it says.
    DECIDED = "decided"
    # No decision was possible just now, and the answer says why.
    REFUSED = "refused"
    DEFECT = "defect"
    # The leader was asked, and answered.
    FORWARDED = "forwarded"
    LEADERLESS = "leaderless"
    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    CUT = "cut"
    # Too many large ones came at once.
    CROWDED = "crowded"
    STRANGER = "stranger"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What goes back to kube-scheduler."""

    body: bytes
    outcome: Outcome


def answer(verb: Verb, body: bytes, *, decisions: Decisions, echo: Echo) -> Answer | Coroutine[Any, Any, Answer]:
    """Decide, or raise why not: at once, or where a write has to be waited for, when it has ended."""
    return _DECIDE[verb](decisions, body, echo)


def known_anyway(verb: Verb, body: bytes, *, names: Names) -> Answer | None:
    """What every replica can answer, whatever it has heard; None if it can't.

    Of pods that run the cluster no slice is in the way: whoever brings nodes, networks and us back may need the room.
    Which namespaces an operator has labelled beside the system's and ours the leader knows.
    """
    if verb is not Verb.PREEMPT:
        return None
    asked = decode_preemption(body)
    if not runs_the_cluster(asked.pod, labels=NO_LABELS, names=names):
        return None
    return Answer(body=encode_victims(asked.offered, violations=asked.violations), outcome=Outcome.DECIDED)


def refused(verb: Verb, error: Exception) -> Answer:
    """Say on this verb's own form that nothing was decided."""
    if isinstance(error, AliquotError):
        unheard = isinstance(error, LeaderUnheardError)
        return Answer(body=_refusal(verb, str(error)), outcome=Outcome.LEADERLESS if unheard else Outcome.REFUSED)
    why = f"a defect of Aliquot ({type(error).__name__}); the centre's log says where"
    return Answer(body=_refusal(verb, why), outcome=Outcome.DEFECT)


def _refusal(verb: Verb, why: str) -> bytes:
    match verb:
        case Verb.FILTER:
            return encode_filtered(Filtered(error=why), echo=Echo())
        case Verb.BIND:
            return encode_bound(why)
        case Verb.PREEMPT:
            return encode_victims({}, violations={})
        case _:
            return encode_grades([], [])


def _filter(decisions: Decisions, body: bytes, echo: Echo) -> Answer:
    asked = decode_placing(body, echo=echo)
    filtered = decisions.filter(asked.pod, asked.nodes)
    outcome = Outcome.REFUSED if filtered.error else Outcome.DECIDED
    return Answer(body=encode_filtered(filtered, echo=echo), outcome=outcome)


def _prioritize(decisions: Decisions, body: bytes, echo: Echo) -> Answer:
    asked = decode_placing(body, echo=echo)
    grades = decisions.prioritize(asked.pod, asked.nodes)
    return Answer(body=encode_grades(asked.nodes, grades), outcome=Outcome.DECIDED)


def _prioritize_coarse(decisions: Decisions, body: bytes, echo: Echo) -> Answer:
    asked = decode_placing(body, echo=echo)
    grades = [coarse(grade) for grade in decisions.prioritize(asked.pod, asked.nodes)]
    return Answer(body=encode_grades(asked.nodes, grades), outcome=Outcome.DECIDED)


def _prioritize_plain(decisions: Decisions, body: bytes, echo: Echo) -> Answer:
    asked = decode_placing(body, echo=echo)
    grades = decisions.prioritize_plain(asked.pod, asked.nodes)
    return Answer(body=encode_grades(asked.nodes, grades), outcome=Outcome.DECIDED)


def _preempt(decisions: Decisions, body: bytes, _: Echo) -> Answer:
    asked = decode_preemption(body)
    victims = decisions.preempt(asked.pod, asked.offered)
    return Answer(body=encode_victims(victims, violations=asked.violations), outcome=Outcome.DECIDED)


async def _bind(decisions: Decisions, body: bytes, _: Echo) -> Answer:
    asked = decode_binding(body)
    why = await decisions.bind(namespace=asked.namespace, name=asked.name, uid=asked.uid, node=asked.node)
    return Answer(body=encode_bound(why), outcome=Outcome.REFUSED if why else Outcome.DECIDED)


_DECIDE: Mapping[Verb, Callable[[Decisions, bytes, Echo], Answer | Coroutine[Any, Any, Answer]]] = {
    Verb.FILTER: _filter,
    Verb.PRIORITIZE: _prioritize,
    Verb.PRIORITIZE_COARSE: _prioritize_coarse,
    Verb.PRIORITIZE_PLAIN: _prioritize_plain,
    Verb.PREEMPT: _preempt,
    Verb.BIND: _bind,
}
