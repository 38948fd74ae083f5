"""What kube-scheduler and the kubelet count of our resources: nodes that they would refuse though GPUs have room.

They add up what all pods of a node ask, wherever it lies, and hold that against what the node tells: best effort has so
many places, a pod that was bound without a grant lies on no GPU and takes its part all the same, and a GPU that falls
sick takes its part from what there is while its pods hold theirs. Such a node is not to be promised: the turn would be
lost, again and again. Where GPUs have no room either, they tell why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aliquot_core.counting import agreed, counted, listed
from aliquot_core.grant import NOT_READ, UPGRADE
from aliquot_core.hosts import own_request
from aliquot_core.inventory import Gpu, Health
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.fit.survey import Short, Survey
from aliquot_scheduler.picture.holdings import GpuKey
from aliquot_scheduler.picture.host_room import OWN, Own, Ungranted, enough, enough_rows
from aliquot_scheduler.picture.picture import KnownNode, Picture

# Of what there is too little, in the order of `Names.resources`.
_COMPUTE, _MEMORY, _BEST_EFFORT = range(3)
_WORDS = ("% of compute", "MiB of GPU memory", "places for best effort")
_ONE_PLACE = "1 place for best effort"
_UNGRANTED = "held without a grant"


def why_short(asked: Own, nodes: Iterable[str], *, picture: Picture, but: str = "", named: bool = False) -> str:
    """Why those of these nodes that have too little left for a pod have no more; empty if none of them has too little.

    `but` is the pod itself. Only to operators pods are `named`: conditions and Events are read by other tenants.
    """
    there = {name: one for name in nodes if (one := picture.hosts.own_left(name, but=but))}
    lacks = (axis for axis, more in enumerate(asked) if more and any(one[axis] < more for one in there.values()))
    if (axis := next(lacks, None)) is None:
        return ""
    left = {name: one[axis] for name, one in there.items() if one[axis] < asked[axis]}
    left_of = f"{_amount(max(0, *left.values()), axis)} left of {asked[axis]} asked"
    told = max(picture.hosts.own_told(name)[axis] for name in left)
    if told < asked[axis]:
        # For reasons of its own, and nobody's end would help: a plugin that is not there, say.
        they = agreed(len(left), "the kubelet offers", "their kubelets offer")
        return f"{left_of}: {they} {_amount(told, axis)}"
    why = _strays(left, axis, picture=picture, named=named)
    if axis == _BEST_EFFORT:
        return f"{left_of}: {why}" if why else _places(left, picture=picture)
    why = why or _on_sick([picture.nodes[name] for name in left], axis, picture=picture)
    return f"{left_of}: {why}" if why else left_of


def blames(sentence: str) -> bool:
    """Whether it says that pods are in the way for which no grant counts, and of which somebody is to think."""
    return _UNGRANTED in sentence or NOT_READ in sentence


def _strays(nodes: Iterable[str], axis: int, *, picture: Picture, named: bool) -> str:
    ungranted = picture.hosts.ungranted
    culprits = sorted(
        one for name in ungranted.keys() & set(nodes) for one in ungranted[name].values() if one.own[axis]
    )
    told = (_held_by([one for one in culprits if one.later is later], axis, named=named) for later in (False, True))
    return ", ".join(filter(None, told))


def _held_by(culprits: Sequence[Ungranted], axis: int, *, named: bool) -> str:
    """All of them without a grant, or all with one that a later version wrote: these may run."""
    if not culprits:
        return ""
    held, later = sum(one.own[axis] for one in culprits), culprits[0].later
    them = agreed(len(culprits), "it", "them")
    remedy = f"delete {them}" if named else f"an operator can name and delete {them}"
    who = listed([one.pod for one in culprits]) if named else counted(len(culprits), "pod")
    how, remedy = (f"held by grants that {NOT_READ}", UPGRADE) if later else (_UNGRANTED, remedy)
    return f"{_amount(held, axis)} {agreed(held, 'is', 'are')} {how} by {who}: {remedy}"


def _places(left: Mapping[str, int], *, picture: Picture) -> str:
    there = sum(picture.hosts.own_told(name)[_BEST_EFFORT] for name in left)
    taken = there - sum(max(0, one) for one in left.values())
    return f"{taken} of {_amount(there, _BEST_EFFORT)} {agreed(there, 'is', 'are')} taken"


def _on_sick(nodes: Iterable[KnownNode], axis: int, *, picture: Picture) -> str:
    """What is held on GPUs that give nothing any more, of nodes that tell of too little for that beside the others.

    Such a GPU is sick, or its agent did not find it when it started.
    """
    held = cards = 0
    for known in nodes:
        well = {(known.name, gpu.uuid): gpu for gpu in known.inventory.gpus if gpu.health is not Health.SICK}
        ill = [gpu for gpu in picture.holdings.gpus(known.name) if gpu not in well]
        on_ill = sum(_held(gpu, axis, picture=picture) for gpu in ill)
        if on_ill and picture.hosts.own_told(known.name)[axis] < on_ill + sum(
            _size(gpu, axis) for gpu in well.values()
        ):
            held, cards = held + on_ill, cards + len(ill)
    if not held:
        return ""
    return f"{_amount(held, axis)} are held on {agreed(cards, 'a GPU that is', 'GPUs that are')} sick, cordoned or gone"


def _held(gpu: GpuKey, axis: int, *, picture: Picture) -> int:
    claims = picture.holdings.on(gpu).values()
    return sum(claim.compute.value if axis == _COMPUTE else claim.memory.value for claim in claims)


def _size(gpu: Gpu, axis: int) -> int:
    return gpu.compute.value if axis == _COMPUTE else gpu.usable.value


def _amount(count: int, axis: int) -> str:
    return _ONE_PLACE if (count, axis) == (1, _BEST_EFFORT) else f"{count} {_WORDS[axis]}"


class Counted:
    """Asks a picture what is left by that count."""

    def __init__(self, *, picture: Picture, names: Names, named: bool = False) -> None:
        """`named`: to whom it is said may know of all pods."""
        self._named = named
        self._picture = picture
        self._names = names

    def heard(self, found: Survey, pod: Pod) -> Survey:
        """What was found, without the nodes that have too little left."""
        asked = own_request(pod, names=self._names)
        short = found.fits & ~enough_rows(asked, self._picture.hosts.free[:, OWN])
        if not short.any():
            return found
        there = (name for name, known in self._picture.nodes.items() if short[known.row])
        lacking = [name for name in there if self._lacks(asked, name, but=pod.metadata.uid)]
        fits = found.fits.copy()
        fits[[self._picture.nodes[name].row for name in lacking]] = False
        told = Short(nodes=frozenset(lacking), asked=asked, but=pod.metadata.uid)
        return msgspec.structs.replace(found, fits=fits, short=told)

    def why(self, nodes: Iterable[str], short: Short) -> dict[str, str]:
        """Why each of these nodes, which are short, has no more."""
        return {name: self._why(short.asked, name, but=short.but) for name in nodes}

    def is_short(self, pod: Pod, *, node: str) -> bool:
        """Whether that node has too little left for it."""
        return self._lacks(own_request(pod, names=self._names), node, but=pod.metadata.uid)

    def why_not(self, pod: Pod, *, node: str) -> str:
        """Why it does not get that node; empty if it may."""
        return self._why(own_request(pod, names=self._names), node, but=pod.metadata.uid)

    def _lacks(self, asked: Own, node: str, *, but: str) -> bool:
        left = self._picture.hosts.own_left(node, but=but)
        return left is not None and not enough(asked, left)

    def _why(self, asked: Own, node: str, *, but: str) -> str:
        return why_short(asked, [node], picture=self._picture, but=but, named=self._named)
