"""The device ids that the kubelet counts with: 100 per GPU for percent, some more for best effort.

An instance of MIG has as many as it has percent of its card, and none for best effort, which it does not take.

Ids are tokens: the grant says which GPU a container gets. Still each id names a GPU, so that what the kubelet records
and its health list speak of the right card. The GPU's part of an id comes from its uuid, because an index may change
at a reboot and the kubelet keeps ids across it. Ids are short: from 1.36 the pod's status has an entry for each, and
the whole list must stay under the kubelet's 4 MiB.

A sick GPU's ids are unhealthy, but for as many as its pods hold (`held_on_sick`): the last ones, since who holds a part
mostly has the first, and the kubelet's health list should speak of those.

The kubelet is not told on which NUMA node a GPU lies. Its topology manager would choose ids by that before it asks us,
always the lowest node that has enough, and would bind CPUs to them: to a GPU that is not the granted one. Worse, with
`single-numa-node` it fails a pod for good when its ids do not lie on one node, or lie on a node that the kernel does
not know (run on a real kubelet: 500 % on four GPUs a socket is a TopologyAffinityError). Untold, ids name the granted
GPU under every policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from aliquot_core.door import Device
from aliquot_core.held_on_sick import NOTHING_HELD, Held
from aliquot_core.inventory import Health, Inventory
from aliquot_core.names import Names
from aliquot_core.quantities import WHOLE

SHORTEST_STEM = 6


def stems(uuids: Iterable[str]) -> dict[str, str]:
    """The id part of each GPU: the beginning of its uuid, as long as it takes to tell all of them apart."""
    bodies = {uuid: _body(uuid) for uuid in uuids}
    length = SHORTEST_STEM
    longest = max((len(body) for body in bodies.values()), default=0)
    while length < longest and len({body[:length] for body in bodies.values()}) < len(bodies):
        length += 1
    return {uuid: body[:length] for uuid, body in bodies.items()}


def _body(uuid: str) -> str:
    """What differs between two uuids of one machine; MIG ones begin with another word."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").replace("-", "").replace("/", "")


def device_tables(
    inventory: Inventory,
    *,
    names: Names,
    best_effort_slots: int,
    id_of: Callable[[str], str] = str,
    held: Mapping[str, Held] | None = NOTHING_HELD,
) -> dict[str, list[Device]]:
    """Every id of both resources, as the kubelet is to be told.

    `id_of` gives the id that a slot has now; `held` is what pods hold by uuid on GPUs that are sick, or not there. As
    long as that is not known (None) nothing is taken back: the kubelet would fail for good who is admitted meanwhile.
    """
    whole = Held(compute=WHOLE.value, best_effort=best_effort_slots)
    sizes = {gpu.uuid: Held(compute=gpu.compute.value) if gpu.instance else whole for gpu in inventory.gpus}
    sick = {gpu.uuid for gpu in inventory.gpus if gpu.health is Health.SICK} if held is not None else set()
    there = dict(sizes) | dict.fromkeys(sick, Held()) | dict(held or {})
    by_uuid = stems(there)
    compute: list[Device] = []
    best_effort: list[Device] = []
    for uuid, healthy in there.items():
        size = sizes.get(uuid, whole)
        compute += _devices(f"{by_uuid[uuid]}-", size.compute, healthy=healthy.compute, id_of=id_of)
        best_effort += _devices(f"{by_uuid[uuid]}-b", size.best_effort, healthy=healthy.best_effort, id_of=id_of)
    return {names.compute: compute, names.best_effort: best_effort}


def _devices(stem: str, count: int, *, healthy: int, id_of: Callable[[str], str]) -> list[Device]:
    """So many, of which the last are healthy."""
    first = count - healthy
    return [Device(id=id_of(f"{stem}{number:02}"), healthy=number >= first) for number in range(count)]


def choose(
    *,
    available: Iterable[str],
    must_include: Sequence[str],
    size: int,
    wanted: Mapping[str, int],
    inventory: Inventory,
) -> list[str]:
    """Pick `size` ids so that they name the granted GPUs: `wanted` says how many of each GPU's.

    Never fewer than asked while there are enough: the kubelet fills up at random, which would name other cards.
    """
    by_uuid = stems(gpu.uuid for gpu in inventory.gpus)
    chosen = list(dict.fromkeys(must_include))[:size]
    free = sorted(set(available) - set(chosen))
    for uuid, count in wanted.items():
        mine = [device for device in free if device.rpartition("-")[0] == by_uuid.get(uuid)]
        already = sum(device.rpartition("-")[0] == by_uuid.get(uuid) for device in chosen)
        chosen += mine[: max(0, min(count - already, size - len(chosen)))]
    taken = set(chosen)
    rest = [device for device in free if device not in taken]
    return chosen + rest[: size - len(chosen)]
