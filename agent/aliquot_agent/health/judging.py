"""The health of each GPU: what happened to it and what an operator says of it in, healthy, degraded or sick out. Pure.

A GPU has ailments, each with its cause; it is as well as the worst of them says. An ailment goes when its cause goes:

    cause                           makes it         goes when
    it does not answer              sick             it answers again
    an XID, by the table (`xids`)   sick, degraded   it was reset, an operator cleared it, or its time is over
    the driver can't use it         sick             it was reset, an operator cleared it, or the driver wants no more
    the driver wants something      sick, degraded   the same
    it is throttled for long        degraded         it was not throttled for as long
    an operator's mark              sick, degraded   the mark is taken away

What must always hold: nothing that happens to one GPU changes another; a GPU that was lost and answers again has been
reset, so what events said of it before is over; only what is in the table above takes an ailment back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

import msgspec

from aliquot_agent.gpus.model import Discovery, EventKind, Fault, GpuEvent, GpuProblem, GpuUsage
from aliquot_agent.health.ailments import Ailment, Book, Throttling, cured, fallen_ill
from aliquot_agent.health.marks import CAUSES, DEGRADED, Marks, named
from aliquot_agent.health.xids import Effect, Policy, is_of_card, meaning
from aliquot_core.inventory import Health

# Heat and power supply slow it down. A power cap that somebody chose, or idling, is nobody's trouble.
_THROTTLED_BY = frozenset({"hardware-slowdown", "hardware-thermal", "software-thermal", "power-brake"})
# Trouble with which a GPU still computes.
_HARMLESS = frozenset({Fault.UNWATCHED})
_SILENCES = {EventKind.LOST: Fault.LOST, EventKind.SILENT: Fault.SILENT, EventKind.FAILED: Fault.FAILED}
# What the driver may want done, by NVML's numbers; it still computes with what is not named here.
_WANTED = {1: "reset", 2: "reboot of the node"}
_THROTTLED = "throttled"


# --- what happens ----------------------------------------------------------------------------------------------------
def heard(book: Book, event: GpuEvent, *, policy: Policy) -> Book:
    """Take in an event of the driver; one that names no GPU says nothing of any."""
    if event.uuid is None:
        return book
    if (fault := _SILENCES.get(event.kind)) is not None:
        return fallen_ill(book, event.uuid, fault, _silence(f"the GPU is {fault}", now=event.at))
    if event.kind is EventKind.RECOVERY_ACTION and not event.number:
        return cured(book, event.uuid, _wanted_something, now=event.at)
    return told(book, event.uuid, event.kind, event.number, since=event.at, last=event.at, policy=policy)


def told(
    book: Book, uuid: str, kind: EventKind, number: int | None, *, since: float, last: float, policy: Policy
) -> Book:
    """Write down what an event makes of its GPU, if anything."""
    if (judged := judge(kind, number, policy=policy)) is None:
        return book
    ailment = Ailment(
        health=judged[0],
        reason=judged[1],
        since=since,
        last=last,
        event=kind,
        number=number,
        of_card=kind is not EventKind.XID or is_of_card(number or 0),
    )
    return fallen_ill(book, uuid, _cause_of(kind, number), ailment)


def judge(kind: EventKind, number: int | None, *, policy: Policy) -> tuple[Health, str] | None:
    """What an event makes of its GPU, and why; None if it changes nothing."""
    if kind is EventKind.XID and number is not None:
        effect = policy.effect(number)
        if effect is Effect.IGNORED:
            return None
        return Health(effect.value), f"XID {number}: {meaning(number)}; {policy.remedy}"
    if kind is EventKind.UNAVAILABLE:
        return Health.SICK, f"the driver says that it can't be used; {policy.remedy}"
    if kind is EventKind.RECOVERY_ACTION and number:
        wanted = _WANTED.get(number, f"recovery action {number}")
        return Health.SICK if number in _WANTED else Health.DEGRADED, f"the driver wants a {wanted}; {policy.remedy}"
    return None


def _cause_of(kind: EventKind, number: int | None) -> str:
    """Each XID is an ailment of its own; of what the driver wants, the last word counts."""
    return f"{kind} {number}" if kind is EventKind.XID else str(kind)


def looked(book: Book, discovery: Discovery, *, vanished: Iterable[str], now: float) -> Book:
    """Take in which GPUs answer, which have trouble, and which the driver no longer lists."""
    troubled: dict[str, GpuProblem] = {
        uuid: GpuProblem(fault=Fault.LOST, uuid=uuid, index=None, what="the driver no longer lists this GPU")
        for uuid in vanished
    }
    for problem in discovery.problems:
        if problem.uuid and problem.fault not in _HARMLESS:
            troubled[problem.uuid] = problem
    for uuid, problem in troubled.items():
        # Only an answer ends that it is lost: a timeout of a lost GPU says nothing new.
        other = set(Fault) - {Fault.LOST, problem.fault}
        book = cured(book, uuid, _are_among(other), now=now)
        book = fallen_ill(book, uuid, problem.fault, _silence(problem.what, now=now))
    for gpu in discovery.gpus:
        if gpu.uuid not in troubled:
            book = _answered(book, gpu.uuid, now=now)
    return book


def _answered(book: Book, uuid: str, *, now: float) -> Book:
    was_reset = Fault.LOST in book.on(uuid)
    return cured(book, uuid, lambda cause, one: cause in set(Fault) or (was_reset and one.event is not None), now=now)


def sampled(book: Book, usages: Iterable[GpuUsage], *, policy: Policy, now: float, steady: float) -> Book:
    """Take in which GPUs are being slowed down; a driver that does not say changes nothing."""
    for usage in usages:
        if usage.throttle_reasons is None:
            continue
        why = sorted(_THROTTLED_BY & set(usage.throttle_reasons))
        state = book.throttling.get(usage.uuid)
        if state is None or state.slow != bool(why):
            state = Throttling(slow=bool(why), since=steady)
            book = msgspec.structs.replace(book, throttling={**book.throttling, usage.uuid: state})
        if steady - state.since >= policy.throttled_for:
            book = _throttled(book, usage.uuid, why=why, policy=policy, now=now)
    return book


def _throttled(book: Book, uuid: str, *, why: list[str], policy: Policy, now: float) -> Book:
    if not why:
        return cured(book, uuid, lambda cause, _: cause == _THROTTLED, now=now)
    if _THROTTLED in book.on(uuid):
        return book  # the reasons come and go, and each new text would be written to the node
    reason = f"throttled for more than {policy.throttled_for:g} s ({', '.join(why)}): look after its cooling and power"
    return fallen_ill(book, uuid, _THROTTLED, Ailment(health=Health.DEGRADED, reason=reason, since=now, last=now))


def expired(book: Book, *, policy: Policy, now: float) -> Book:
    """Let XIDs go whose time is over; one dated after now, by a clock that was set back, counts from now."""
    patience = {Health.SICK: policy.sick_for, Health.DEGRADED: policy.degraded_for}

    def over(_: str, one: Ailment) -> bool:
        return one.event is EventKind.XID and 0 < patience[one.health] <= now - one.last

    for uuid in book.ailments:
        book = cured(_dated(book, uuid, now=now), uuid, over, now=now)
    return book


def _dated(book: Book, uuid: str, *, now: float) -> Book:
    ahead = {cause: one for cause, one in book.on(uuid).items() if one.event is EventKind.XID and one.last > now}
    for cause, one in ahead.items():
        book = fallen_ill(book, uuid, cause, msgspec.structs.replace(one, last=now))
    return book


# --- what an operator says -------------------------------------------------------------------------------------------
def marked(book: Book, marks: Marks, *, gpus: Iterable[str], now: float) -> Book:
    """Take in the marks as they stand now."""
    for uuid in gpus:
        said = marks.of(uuid)
        gone = CAUSES - said.keys()
        if gone & book.on(uuid).keys():
            book = cured(book, uuid, _are_among(gone), now=now)
        for cause, (health, reason) in said.items():
            if cause not in book.on(uuid):
                ailment = Ailment(health=health, reason=reason, since=now, last=now, of_card=cause == DEGRADED)
                book = fallen_ill(book, uuid, cause, ailment)
    return book


def cleared(book: Book, which: frozenset[str], *, now: float) -> Book:
    """Take in that an operator has looked after these GPUs: what events said of them is over."""
    for uuid in book.ailments:
        if named(uuid, which):
            book = cured(book, uuid, lambda _, one: one.event is not None, now=now)
    return book


def _silence(what: str, *, now: float) -> Ailment:
    return Ailment(health=Health.SICK, reason=what, since=now, last=now)


def _are_among(causes: AbstractSet[str]) -> Callable[[str, Ailment], bool]:
    return lambda cause, _: cause in causes


def _wanted_something(_: str, one: Ailment) -> bool:
    return one.event in {EventKind.RECOVERY_ACTION, EventKind.UNAVAILABLE}
