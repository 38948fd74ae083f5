"""Where what runs here is not what should: told, not mended, for only people know which of the two is right. Pure.

Three things must agree: the grant on the pod, what its containers were started under, and the kubelet's record of who
holds device ids. Nothing of ours makes them part; a grant written over, a kubelet that lost its record under running
pods, or a card that came back with less memory does.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from aliquot_agent.starting.decision import Known
from aliquot_agent.starting.room import has_started, totals
from aliquot_core.claims import claims, overdrawn, own_grant
from aliquot_core.errors import AliquotError
from aliquot_core.inventory import Health
from aliquot_core.objects import Pod


class Kind(StrEnum):
    """What has drifted."""

    GRANT = "grant"
    RECORD = "record"
    ROOM = "room"


class Drift(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing that is not as it should be."""

    kind: Kind
    what: str


def drifts(known: Known) -> frozenset[Drift]:
    """All that has drifted; nothing while it is not known who is here."""
    if not (known.complete and known.remembered):
        return frozenset()
    return frozenset((*_grants(known), *_records(known), *_rooms(known)))


def _running(known: Known) -> Iterator[Pod]:
    """Pods whose containers have our word."""
    return (pod for uid in known.standing if (pod := known.pods.get(uid)) is not None and not pod.ended)


def _grants(known: Known) -> Iterator[Drift]:
    for pod in _running(known):
        try:
            same = claims(pod, own_grant(pod, names=known.names)) == known.standing[pod.metadata.uid].claims
        except AliquotError as error:
            yield Drift(kind=Kind.GRANT, what=f"{pod.key} runs, and its grant is good no more: {error}")
        else:
            if not same:
                yield Drift(kind=Kind.GRANT, what=f"{pod.key} runs under another grant than it has; delete the pod")


def _records(known: Known) -> Iterator[Drift]:
    if known.recorded is None:
        return
    recorded = {entry.uid for entry in known.recorded}
    for pod in _running(known):
        if has_started(pod) and pod.metadata.uid not in recorded:
            yield Drift(
                kind=Kind.RECORD,
                what=f"{pod.key} runs, and the kubelet counts its device ids as free; delete the pod",
            )


def _rooms(known: Known) -> Iterator[Drift]:
    """A sick GPU has nothing to give, and its pods were told; here it is about GPUs that are thought well."""
    for gpu, (total, holders) in totals(standing.claims for standing in known.standing.values()).items():
        card = known.inventory.gpu(gpu)
        if card is None or card.health is Health.SICK:
            continue
        if why := overdrawn(total, memory=card.usable, holders=holders, compute=card.compute):
            yield Drift(kind=Kind.ROOM, what=f"GPU {gpu} holds more than it has: {why}; end one of its {holders} pods")
