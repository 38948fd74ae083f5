"""What was granted by the API server's word, read and added up by the simulation itself.

Whenever a pod is bound or changes, no GPU may be granted more often than it is there. One thing is excused, since
nothing recalls a request on its way: what a leader sent while it led, and what lands after another has begun to. Such a
pod is known from then on as overcommitted, and the node must hold it, or the one beside it, back.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import kinds
from aliquot_kube.transport import Question
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.deciding.turns import Turn
from aliquot_standalone.apiserver.store import Change
from simulation.universe.api import ApiServer
from simulation.universe.holders import Holder, Parts, asked_in_all, held_most, overfull, told_amount
from simulation.universe.judge import BrokenError, Deed
from simulation.universe.runtime import Part

Held = dict[tuple[str, str], tuple[int, int, bool]]


class Books:
    """All that is granted now."""

    def __init__(
        self, *, names: Names, api: ApiServer, memory: int, deeds: dict[str, Deed], trace: Callable[[str], None]
    ) -> None:
        """`memory` is what one GPU has to give, in MiB."""
        self._names = names
        self._memory = memory
        self._deeds = deeds
        self._trace = trace
        self._pods: dict[str, Pod] = {}
        self._reign = 0
        self._senders: dict[str, int] = {}
        self._late: set[str] = set()
        self.bound = 0
        self.overcommitted = 0
        self.broken: BrokenError | None = None
        api.subscribe(self._stored)

    # --- who writes --------------------------------------------------------------------------------------------------
    def reign_begins(self, name: str) -> int:
        """Somebody leads from now on."""
        self._reign += 1
        self._trace(f"{name} begins reign {self._reign}")
        return self._reign

    def binding_sent(self, question: Question, *, reign: int) -> None:
        """A binding goes its way; none may once another has begun to lead."""
        meta = json.loads(question.body or b"{}")["metadata"]
        # Two may be on their way for one pod, and say different things.
        self._senders[meta["annotations"][self._names.grant]] = reign
        if reign != self._reign:
            self._break(f"reign {reign} writes a binding though {self._reign} has begun")

    # --- what is decided ---------------------------------------------------------------------------------------------
    def turn_given(self, turn: Turn, *, reign: Reign) -> None:
        """Room is promised by somebody who leads: by what it knows just then, kube-scheduler must have room there too.

        By its own knowledge, so nothing is excused: what lags, lags behind both.
        """
        if turn.promise is None:
            return
        name = turn.promise.node
        there = {pod.metadata.uid: pod for pod in reign.pods.values() if pod.spec.node_name == name and not pod.ended}
        there |= {one.pod.metadata.uid: one.pod for one in reign.desk.promises if one.node == name}
        told = reign.picture.nodes[name].node.status.allocatable
        for resource in self._names.resources():
            asked = sum(asked_in_all(pod, resource) for pod in there.values())
            if asked_in_all(turn.pod, resource) and resource in told and asked > told_amount(told, resource):
                self._break(
                    f"{turn.pod.key} is let in for {name}, where kube-scheduler counts {asked} {resource} with it, and "
                    f"{told[resource]} are there"
                )

    # --- what stands -------------------------------------------------------------------------------------------------
    def held(self) -> dict[str, Held]:
        """Who holds what of which GPU."""
        found: dict[str, Held] = {}
        for uid, pod in self._pods.items():
            parts = self._deeds[uid].parts
            gpus = {part.gpu for some in parts.values() for part in some}
            claims = {gpu: held_most((pod, parts), gpu) for gpu in sorted(gpus)}
            found[uid] = {(pod.spec.node_name, gpu): claim for gpu, claim in claims.items() if claim}
        return found

    def _stored(self, table: str, change: Change) -> None:
        if table != "pods":
            return
        pod = msgspec.json.decode(change.revision.raw, type=Pod)
        uid = pod.metadata.uid
        if change.type == "DELETED" or pod.ended or not pod.spec.node_name:
            self._pods.pop(uid, None)
            return
        if uid not in self._deeds:
            self._bound(pod)
        self._pods[uid] = pod
        self._check(pod)

    def _bound(self, pod: Pod) -> None:
        uid, text = pod.metadata.uid, pod.metadata.annotations.get(self._names.grant, "")
        grant = json.loads(text or "{}")
        if (grant.get("pod"), grant.get("node")) != (uid, pod.spec.node_name):
            self._break(f"{pod.key} is bound to {pod.spec.node_name} with this grant: {text}")
        parts = _parts(grant)
        self._deeds[uid] = Deed(pod=pod.key, parts=parts, grant=text)
        self.bound += 1
        if self._senders.get(text) != self._reign:
            self._late.add(uid)
        self._trace(f"{pod.key} bound to {pod.spec.node_name}{', late' if uid in self._late else ''}")
        for _, container in kinds(pod):
            asked = told_amount(container.resources.limits, self._names.compute)
            got = parts.get(container.name, ())
            if sum(part.compute for part in got) != asked:
                self._break(f"{pod.key} container {container.name} asked for {asked} % and was granted {got}")

    def _check(self, pod: Pod) -> None:
        node = pod.spec.node_name
        here: list[Holder] = [
            (one, self._deeds[uid].parts) for uid, one in self._pods.items() if one.spec.node_name == node
        ]
        for gpu in {part.gpu for some in self._deeds[pod.metadata.uid].parts.values() for part in some}:
            if overfull(gpu, here, memory=self._memory):
                self._too_much(gpu, here)

    def _too_much(self, gpu: str, here: list[Holder]) -> None:
        on_it = [one for one, parts in here if any(part.gpu == gpu for some in parts.values() for part in some)]
        late = [one.metadata.uid for one in on_it if one.metadata.uid in self._late]
        if not late:
            self._break(f"GPU {gpu} is granted too often, to {', '.join(one.key for one in on_it)}")
        for uid in late:
            if not self._deeds[uid].overcommitted:
                self.overcommitted += 1
                self._trace(f"{self._deeds[uid].pod} landed late, and its GPU is full")
            self._deeds[uid] = msgspec.structs.replace(self._deeds[uid], overcommitted=True)

    def _break(self, what: str) -> None:
        self._trace(what)
        self.broken = self.broken or BrokenError(what)


def _parts(grant: dict[str, dict[str, dict[str, list[dict[str, int | str]]]]]) -> Parts:
    return {
        name: tuple(
            sorted(Part(str(one["gpu"]), int(one.get("compute", 0)), int(one["memory"])) for one in container["slices"])
        )
        for name, container in grant.get("containers", {}).items()
    }
