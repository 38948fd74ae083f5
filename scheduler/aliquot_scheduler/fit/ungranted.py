"""Pods that were bound without a grant: whom they keep off their nodes, and who they are.

Such a pod never starts: its agent waits for a grant. It lies on no GPU, and yet kube-scheduler and the kubelet count
what it asks of our resources, from its binding on until it is deleted. What it leaves is told here of each node, so
that nobody is sent where they would be refused. Of a node without such a pod nothing is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from aliquot_core.counting import agreed, listed
from aliquot_core.hosts import own_request
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.fit.survey import Survey
from aliquot_scheduler.picture.host_room import HostRoom, Own
from aliquot_scheduler.picture.picture import Picture

NOBODY_THERE: Mapping[str, str] = MappingProxyType({})
# Of what there is too little, in the order of `Names.resources`.
_WORDS = ("% of compute", "MiB of GPU memory", "places for best effort")
_ONE_PLACE = "1 place for best effort"


def is_short(asked: Own, left: Own) -> bool:
    """Whether that does not do; of what is not asked for nothing need be left."""
    return any(less < more for more, less in zip(asked, left, strict=True) if more)


def why_short(asked: Own, nodes: Sequence[str], *, hosts: HostRoom, but: str = "") -> str:
    """Who keeps those of these nodes from a pod that have too little left for it; empty if none of them has.

    `but` is the pod itself.
    """
    short = {
        name: left
        for name in hosts.ungranted.keys() & set(nodes)
        if (left := hosts.own_left(name, but=but)) and is_short(asked, left)
    }
    if not short:
        return ""
    lacks = (axis for axis, more in enumerate(asked) if more and any(left[axis] < more for left in short.values()))
    axis = next(lacks)
    left_of = f"{_amount(max(0, *(left[axis] for left in short.values())), axis)} left of {asked[axis]} asked"
    culprits = sorted(one for name in short for one in hosts.ungranted[name].values() if one.own[axis])
    if not (held := sum(one.own[axis] for one in culprits)):
        # The kubelet tells of less than the pods there were granted: a GPU of theirs fell sick.
        return left_of
    who, them = listed([one.pod for one in culprits]), agreed(len(culprits), "it", "them")
    return f"{left_of}: {_amount(held, axis)} {agreed(held, 'is', 'are')} held without a grant by {who}: delete {them}"


def _amount(count: int, axis: int) -> str:
    return _ONE_PLACE if (count, axis) == (1, len(_WORDS) - 1) else f"{count} {_WORDS[axis]}"


class Beside:
    """Asks a picture what is left beside them."""

    def __init__(self, *, picture: Picture, names: Names) -> None:
        self._picture = picture
        self._names = names

    def heard(self, found: Survey, pod: Pod) -> Survey:
        """What was found, without the nodes that have too little left, and why these have."""
        hosts, nodes = self._picture.hosts, self._picture.nodes
        if not hosts.ungranted:
            return found
        asked = own_request(pod, names=self._names)
        why = {
            name: said
            for name in hosts.ungranted.keys() & nodes.keys()
            if (said := why_short(asked, [name], hosts=hosts, but=pod.metadata.uid))
        }
        if not why:
            return found
        fits = found.fits.copy()
        fits[[nodes[name].row for name in why]] = False
        return msgspec.structs.replace(found, fits=fits, ungranted=why)

    def why_not(self, pod: Pod, *, node: str) -> str:
        """Who keeps it off a node; empty if nobody does."""
        hosts = self._picture.hosts
        if node not in hosts.ungranted:
            return ""
        return why_short(own_request(pod, names=self._names), [node], hosts=hosts, but=pod.metadata.uid)
