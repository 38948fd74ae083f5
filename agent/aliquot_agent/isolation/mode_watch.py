"""Asks for the mode of each GPU that is shared by MPS, as pods come and go. The shell round `gpu_modes`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from aliquot_agent.isolation.gpu_modes import Seat, next_use, use_of
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_agent.pods.standing import Standing
from aliquot_agent.signal import Signal
from aliquot_core.claims import Claim, claims, own_grant
from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError
from aliquot_core.inventory import Inventory
from aliquot_core.modes import MPS
from aliquot_core.names import Names
from aliquot_core.objects import Pod

log = logging.getLogger(__name__)

# Nobody tells when the last process of a pod that is gone has ended.
LOOK_AGAIN = 1.0


def seats(folder: MpsFolder | None, inventory: Inventory) -> dict[str, Seat]:
    """How the GPUs that are shared by MPS stand, on a node that has it."""
    if folder is None:
        return {}
    return {gpu.uuid: folder.seat(gpu.uuid) for gpu in inventory.gpus if MPS in gpu.isolation}


async def watch_modes(
    folder: MpsFolder | None,
    *,
    names: Names,
    clock: Clock,
    changed: Signal,
    inventory: Callable[[], Inventory],
    pods: Callable[[], Mapping[str, Pod]],
    standing: Callable[[], Mapping[str, Standing] | None],
) -> None:
    """Ask until cancelled. `standing` are those that were let start, by UID; None while that is not known."""
    while folder is not None:
        count = changed.count
        if (held := standing()) is not None:
            coming = [_claims(pod, names=names) for uid, pod in _by_age(pods()) if uid not in held and not pod.ended]
            for gpu in inventory().gpus:
                if MPS in gpu.isolation:
                    holders = [one.claims[gpu.uuid] for one in held.values() if gpu.uuid in one.claims]
                    _ask(folder, gpu.uuid, holders, [one[gpu.uuid] for one in coming if gpu.uuid in one])
        await changed.wait(clock=clock, at_most=LOOK_AGAIN, since=count)


def _ask(folder: MpsFolder, gpu: str, holders: list[Claim], coming: list[Claim]) -> None:
    now = folder.wanted(gpu)
    wanted = next_use(now, held={use_of(one) for one in holders}, coming=[use_of(one) for one in coming])
    if wanted is now:
        return
    try:
        folder.want(gpu, wanted)
    except AliquotError as error:
        log.warning("a GPU's mode can't be asked for", extra={"gpu": gpu, "wanted": wanted.value, "error": str(error)})
    else:
        log.info("a GPU changes its mode", extra={"gpu": gpu, "before": now.value, "now": wanted.value})


def _by_age(pods: Mapping[str, Pod]) -> list[tuple[str, Pod]]:
    return sorted(pods.items(), key=lambda each: (each[1].metadata.creation_timestamp or "", each[0]))


def _claims(pod: Pod, *, names: Names) -> Mapping[str, Claim]:
    """What a pod that is bound will hold; nothing where its grant is none, which its start is told."""
    try:
        return claims(pod, own_grant(pod, names=names))
    except AliquotError:
        return {}
