"""Who holds what, and is there room beside them? Rule 4 of `starts`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from aliquot_agent.starting.decision import Known
from aliquot_core.claims import NOTHING, Claim, claims, overdrawn, own_grant
from aliquot_core.errors import AliquotError
from aliquot_core.objects import Pod

_MOST_NAMED = 3


def in_force(known: Known, *, but: str = "") -> Iterator[tuple[str, dict[str, Claim]]]:
    """Claims of every other pod here that counts: as it stood when it started, or as it may yet start."""
    for uid in sorted(_held_uids(known)):
        if uid == but:
            continue
        if uid in known.standing:
            # Not by its grant: whoever writes a smaller one over it does not make the containers that run smaller.
            yield uid, known.standing[uid].claims
        elif (pod := known.pods.get(uid)) is not None and not pod.ended and (wanted := _rightful(pod, known=known)):
            yield uid, wanted


def _rightful(pod: Pod, *, known: Known) -> dict[str, Claim] | None:
    """What a pod that has not started may hold; nothing where it will be refused for its grant."""
    try:
        grant = own_grant(pod, names=known.names)
    except AliquotError:
        return None
    parts = (part for container in grant.containers.values() for part in container.slices)
    startable = grant.node == known.node and all(known.inventory.gpu(part.gpu) for part in parts)
    return claims(pod, grant) if startable else None


def _held_uids(known: Known) -> set[str]:
    if known.recorded is not None:
        # The kubelet drops a pod deleted by force from its record while processes of it may live.
        return {entry.uid for entry in known.recorded} | set(known.standing)
    listed = {f"{entry.namespace}/{entry.name}" for entry in known.listed if any(entry.ids.values())}
    return {uid for uid, pod in known.pods.items() if pod.key in listed} | set(known.standing)


def totals(claims_of_pods: Iterable[Mapping[str, Claim]]) -> dict[str, tuple[Claim, int]]:
    """Per GPU the sum of claims, and of how many pods."""
    sums: dict[str, tuple[Claim, int]] = {}
    for pod_claims in claims_of_pods:
        for gpu, claim in pod_claims.items():
            total, holders = sums.get(gpu, (NOTHING, 0))
            sums[gpu] = (total.beside(claim), holders + 1)
    return sums


def over(pod: Pod, wanted: dict[str, Claim], *, known: Known, without: frozenset[str] = frozenset()) -> str:
    """Say which GPU would be over-granted; empty if there is room for what the pod wants."""
    before = {
        other: held
        for other, held in in_force(known, but=pod.metadata.uid)
        if other not in without and _goes_before(other, pod, known=known)
    }
    others = totals(before.values())
    for gpu, claim in wanted.items():
        total, holders = others.get(gpu, (NOTHING, 0))
        card = known.inventory.gpu(gpu)
        together = total.beside(claim)
        if card and (why := overdrawn(together, memory=card.usable, holders=holders + 1, compute=card.compute)):
            others_hold = "1 other pod holds" if holders == 1 else f"{holders} other pods hold"
            left = _leavers((other for other, held in before.items() if gpu in held), known=known)
            return f"GPU {gpu} would be over-granted: {why}, {others_hold} slices of it{left}"
    return ""


def _leavers(holders: Iterable[str], *, known: Known) -> str:
    """Name those who hold a slice and are over for everybody else: their last processes are waited for."""
    ended = {uid for uid in holders if (pod := known.pods.get(uid)) is None or pod.ended}
    named = ", ".join(sorted(known.standing[uid].pod for uid in ended - known.coming)[:_MOST_NAMED])
    return f"; of {named}, over already, a process still runs: this starts when that has ended" if named else ""


def _goes_before(other: str, pod: Pod, *, known: Known) -> bool:
    """Whether another pod's claims keep this one out: those of who was let start always, else each in its turn.

    Two grants for one place are a scheduler's mistake; without an order each would wait for the other for ever.
    """
    return other in known.standing or _turn(known.pods[other], known=known) < _turn(pod, known=known)


def _turn(pod: Pod, *, known: Known) -> tuple[int, str, str]:
    """First who has our word; then who runs by its status, which tells where our word was lost; then by age."""
    meta = pod.metadata
    place = 0 if meta.uid in known.standing else 1 if has_started(pod) else 2
    return place, meta.creation_timestamp or "", meta.uid


def has_started(pod: Pod) -> bool:
    """Whether a container of it has run; the phase stays Pending while one of several is still to be made."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return pod.status.phase == "Running" or any({"running", "terminated"} & one.state.keys() for one in statuses)
