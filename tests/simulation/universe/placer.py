"""A scheduler of few lines and no mistakes: it grants what is free by the API server's word, and binds in one write.

This is the seam for the real centre: whoever has `place_all` can take its seat. It also makes the bad grants, on
purpose and by name, that no container may ever run with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_core.request import PodRequest, parse_request
from aliquot_core.shares import memory_of
from simulation.universe.api import ApiServer
from simulation.universe.chance import Chance
from simulation.universe.hardware import Hardware
from simulation.universe.holders import Holder, Parts, asked_in_all, overfull, told_amount
from simulation.universe.judge import Deed
from simulation.universe.runtime import Part

BAD = (
    "no grant",
    "not readable",
    "of a later version",
    "another pod's",
    "another node's",
    "less than asked",
    "more memory than asked",
    "an unknown GPU",
    "a container forgotten",
    "a stranger named",
)


class Placer:
    """Grants on one node."""

    def __init__(
        self,
        *,
        node: str,
        names: Names,
        api: ApiServer,
        hardware: Hardware,
        chance: Chance,
        deeds: dict[str, Deed],
        trace: Callable[[str], None],
    ) -> None:
        self._node = node
        self._names = names
        self._api = api
        self._hardware = hardware
        self._chance = chance
        self._deeds = deeds
        self._trace = trace

    async def place(self, pod: Pod, *, bad: str = "", overcommit: bool = False, hasty: bool = False) -> bool:
        """Grant and bind; False where nothing is free.

        `bad` makes a grant that is bad in that way; `overcommit` looks at nobody else; `hasty` takes pods that are to
        go for gone, so that the node must wait for their end.
        """
        if not self._counts_fit(pod):
            return False
        request = parse_request(pod, names=self._names)
        parts = self._choose(pod, request, overcommit=overcommit or bool(bad), hasty=hasty)
        if parts is None:
            return False
        meta = pod.metadata
        grant = Grant(node=self._node, pod=meta.uid, containers=_containers(parts, request))
        text = encode_grant(grant) if not bad else self._spoil(grant, bad)
        self._deeds[meta.uid] = Deed(pod=pod.key, parts=parts, grant=text, bad=bad, overcommitted=overcommit)
        self._trace(f"{pod.key} bound{', its grant ' + bad if bad else ''}{', over what is free' * overcommit}")
        annotations = {self._names.grant: text} if text else {}
        await self._api.client.bind(
            namespace=meta.namespace, name=meta.name, node=self._node, uid=meta.uid, annotations=annotations
        )
        return True

    # --- what is free ------------------------------------------------------------------------------------------------
    def has_room(self, pod: Pod, *, without: Collection[str] = ()) -> bool:
        """Whether it would be placed now; or if pods of these UIDs were gone."""
        request = parse_request(pod, names=self._names)
        fits = self._counts_fit(pod, without=without)
        return fits and self._choose(pod, request, overcommit=False, hasty=False, without=without) is not None

    def _counts_fit(self, pod: Pod, *, without: Collection[str] = ()) -> bool:
        """Whether kube-scheduler would bind it: it counts what all pods ask, whatever their grants are worth."""
        node = self._api.node(self._node)
        if node is None:
            return False
        here = self._api.pods(self._node)
        others = [other for other in here if not other.ended and other.metadata.uid not in without]
        return all(
            sum(asked_in_all(one, name) for one in (*others, pod)) <= told_amount(node.status.allocatable, name)
            for name in (self._names.compute, self._names.best_effort)
        )

    def _choose(
        self, pod: Pod, request: PodRequest, *, overcommit: bool, hasty: bool, without: Collection[str] = ()
    ) -> Parts | None:
        """Lay all containers on the same GPUs, in some order, so that they fit beside all others."""
        gpus = list(self._hardware.uuids)
        self._chance.shuffle(gpus)
        most = max(len(asked.shares) for asked in request.containers)
        taken = [] if overcommit else self._taken(hasty=hasty, without=without)
        for first in range(len(gpus) - most + 1):
            parts = self._lay(request, gpus[first : first + most])
            holders = [*taken, (pod, parts)]
            if overcommit or not any(overfull(gpu, holders, memory=self._hardware.memory) for gpu in gpus):
                return parts
        return None

    def _lay(self, request: PodRequest, gpus: list[str]) -> Parts:
        card = MiB(self._hardware.memory)
        return {
            asked.name: tuple(
                sorted(
                    Part(gpu, share.compute.value, (share.memory or memory_of(share.compute, card=card)).value)
                    for gpu, share in zip(gpus, asked.shares, strict=False)
                )
            )
            for asked in request.containers
        }

    def _taken(self, *, hasty: bool, without: Collection[str]) -> list[Holder]:
        """What pods hold by the API server's word; those with bad grants never run."""
        return [
            (pod, self._deeds[pod.metadata.uid].parts)
            for pod in self._api.pods(self._node)
            if not pod.ended and pod.metadata.uid in self._deeds and not self._deeds[pod.metadata.uid].bad
            if not (hasty and pod.metadata.deletion_timestamp) and pod.metadata.uid not in without
        ]

    # --- what is wrong -----------------------------------------------------------------------------------------------
    def _spoil(self, grant: Grant, bad: str) -> str:
        name, container = next(iter(grant.containers.items()))
        first, *rest = container.slices
        replace = msgspec.structs.replace

        def with_first(part: Slice) -> Grant:
            changed = replace(container, slices=(part, *rest))
            return replace(grant, containers={**grant.containers, name: changed})

        others = {other: one for other, one in grant.containers.items() if other != name}
        spoilt = {
            "another pod's": replace(grant, pod="00000000-0000-4000-8000-000000000000"),
            "another node's": replace(grant, node="elsewhere"),
            "less than asked": with_first(replace(first, compute=Percent(max(first.compute.value - 1, 0)))),
            "more memory than asked": with_first(replace(first, memory=MiB(first.memory.value + 1))),
            "an unknown GPU": with_first(replace(first, gpu="GPU-unknown")),
            "a container forgotten": replace(grant, containers=others or {"x": container}),
            "a stranger named": replace(grant, containers={**grant.containers, "stranger": container}),
        }
        if bad in spoilt:
            return encode_grant(spoilt[bad])
        text = encode_grant(grant)
        return {"no grant": "", "not readable": text[:-2], "of a later version": text.replace('"v":1', '"v":2')}[bad]


def _containers(parts: Parts, request: PodRequest) -> dict[str, ContainerGrant]:
    granted = {}
    for asked in request.containers:
        limits = {share.compute.value: share.limit for share in asked.shares}
        granted[asked.name] = ContainerGrant(
            slices=tuple(
                Slice(gpu=part.gpu, compute=Percent(part.compute), limit=limits[part.compute], memory=MiB(part.memory))
                for part in parts[asked.name]
            ),
            isolation="observe",
        )
    return granted
