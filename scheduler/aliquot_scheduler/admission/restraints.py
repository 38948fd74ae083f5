"""What a pod says of how far it holds itself back, and can't have: told to whoever writes it, at once.

It takes nothing from anybody, so it is no problem: its node gives what can be had of it, and says so in an Event.
"""

from __future__ import annotations

from collections.abc import Iterator

from aliquot_core.grant import Grant, readable_grant
from aliquot_core.modes import INTERPOSER
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import QuantityError
from aliquot_core.request import PodRequest
from aliquot_core.restraint import OutOfBounds, Restraint, out_of_bounds, restraint_of

_WHAT_IS_DONE = "what can be had of it is in force"


def restraints_of_a_request(pod: Pod, request: PodRequest, *, names: Names, context: int) -> Iterator[str]:
    """Of a pod that is not bound; `context` is what one takes where it takes least, in MiB."""
    said = _said(pod, names=names)
    for asked in request.containers:
        found = out_of_bounds(
            said,
            memory=asked.memory.value if asked.memory else None,
            limit=asked.limit.value,
            compute=asked.compute.value,
            contexts=context * len(asked.shares),
            has="asks",
        )
        yield from _told(found, container=asked.name, names=names)


def restraints_of_a_grant(pod: Pod, *, old: Pod, names: Names, context: int) -> Iterator[str]:
    """Of a pod that is bound, when it says something else than before."""
    said, grant = _said(pod, names=names), readable_grant(pod.metadata.annotations.get(names.grant))
    if grant is None or said in (Restraint(), _said(old, names=names)):
        return
    if not any(container.isolation == INTERPOSER for container in grant.containers.values()):
        modes = ", ".join(sorted({container.isolation or "nothing" for container in grant.containers.values()}))
        for name in _named(said, names=names):
            yield f"annotation {name} does nothing: its slices are held by {modes}, whose limits don't change"
        return
    yield from _beyond(said, grant, names=names, context=context)


def _beyond(said: Restraint, grant: Grant, *, names: Names, context: int) -> Iterator[str]:
    for container, held in grant.containers.items():
        found = out_of_bounds(
            said,
            memory=held.memory.value,
            limit=held.limit.value,
            compute=held.compute.value,
            contexts=context * len(held.slices),
        )
        yield from _told(found, container=container, names=names)


def _told(found: OutOfBounds, *, container: str, names: Names) -> Iterator[str]:
    for name, why in ((names.memory_now, found.memory), (names.compute_now, found.compute)):
        if why:
            yield f"container {container}, annotation {name}: {why}; {_WHAT_IS_DONE}"


def _named(said: Restraint, *, names: Names) -> Iterator[str]:
    for name, amount in ((names.memory_now, said.memory), (names.compute_now, said.compute)):
        if amount is not None:
            yield name


def _said(pod: Pod, *, names: Names) -> Restraint:
    """Nothing where it is no amount, which is a problem of its own."""
    try:
        return restraint_of(pod, names=names)
    except QuantityError:
        return Restraint()
