"""A full cluster of one node, its API server that takes evictions as it is told to, and the leader who evicts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot_core.names import MIX
from aliquot_kube.changes import Added
from aliquot_kube.errors import (
    ApiError,
)
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.centre.evictions import Evictions
from aliquot_scheduler.centre.evictor import Evictor
from aliquot_scheduler.centre.gang_returner import GangReturner
from aliquot_scheduler.centre.moved_keeper import MovedKeeper
from aliquot_scheduler.centre.notebook import Notebook
from aliquot_scheduler.centre.room_writer import RoomWriter
from aliquot_scheduler.centre.torn_keeper import TornKeeper
from aliquot_scheduler.queues.said.spec import QueueSpec
from support.centre import NAMES, WALL
from support.centre_means import means
from support.clocks import VirtualClock
from support.reclaim_stage import OWNER, ReclaimStage


class Api:
    """An API server that takes evictions as it is told to, and has some disruption budgets."""

    def __init__(self) -> None:
        self.stage: ReclaimStage | None = None
        self.evicted: list[str] = []
        self.tried: list[str] = []
        self.refusing: dict[str, list[ApiError]] = {}
        # Pods on which nothing can be written.
        self.untold: dict[str, ApiError] = {}
        # What is kept for the next leader, or why it can't be put down.
        self.notebook: dict[str, str] = {}
        self.no_notebook: ApiError | None = None
        self.budgets: list[Mapping[str, Any]] = []
        self.deleted: list[str] = []
        # What was said of it with each; None where a pod's own is kept.
        self.graces: dict[str, int | None] = {}
        self.no_budgets: ApiError | None = None
        # Whoever is evicted ends before the next can be asked.
        self.goes_at_once = False
        self.events: list[Mapping[str, Any]] = []

    async def request(self, question: Question) -> Response:
        """Answer."""
        if "poddisruptionbudgets" in question.path:
            if self.no_budgets:
                raise self.no_budgets
            return Response(
                status=200,
                headers={},
                body=json.dumps({"metadata": {"resourceVersion": "1"}, "items": self.budgets}).encode(),
            )
        if question.path.endswith(f"/configmaps/{MIX}"):
            return self._kept(question)
        if question.method == "PATCH" and self.stage:
            return self._patched(msgspec.json.decode(question.body or b"")["metadata"])
        if question.method == "DELETE":
            return self._deleted(question)
        if question.path.endswith("/events"):
            self.events.append(json.loads(question.body or b""))
        if not question.path.endswith("/eviction"):
            return Response(status=200, headers={}, body=b"{}")
        told = json.loads(question.body or b"")
        uid = told["deleteOptions"]["preconditions"]["uid"]
        self.tried.append(uid)
        assert question.path == f"/api/v1/namespaces/team/pods/pod-{uid}/eviction"
        self.graces[uid] = told["deleteOptions"].get("gracePeriodSeconds")
        if refusals := self.refusing.get(uid):
            raise refusals.pop(0)
        self._leaves(uid)
        return Response(status=201, headers={}, body=b"{}")

    def _leaves(self, uid: str) -> None:
        """It is on its way out, or gone."""
        self.evicted.append(uid)
        if self.stage:
            self.stage.leave(uid)
        if self.stage and self.goes_at_once:
            self.stage.gone(uid)
            self.stage.run()

    def _kept(self, question: Question) -> Response:
        """The ConfigMap."""
        if self.no_notebook:
            raise self.no_notebook
        if question.method == "PATCH":
            self.notebook |= json.loads(question.body or b"")["data"]
        return Response(status=200, headers={}, body=json.dumps({"data": self.notebook}).encode())

    def _deleted(self, question: Question) -> Response:
        """A pod that budgets keep."""
        told = json.loads(question.body or b"")
        uid = told["preconditions"]["uid"]
        assert question.path == f"/api/v1/namespaces/team/pods/pod-{uid}"
        self.graces[uid] = told.get("gracePeriodSeconds")
        self.deleted.append(uid)
        assert self.stage
        self.stage.leave(uid)
        return Response(status=200, headers={}, body=b"{}")

    def _patched(self, told: Mapping[str, Any]) -> Response:
        """Another annotation of a pod."""
        uid, notes = told["uid"], told["annotations"]
        if self.untold.get(uid):
            raise self.untold[uid]
        assert self.stage
        pod = self.stage.pods[uid]
        left = {key: text for key, text in {**pod.metadata.annotations, **notes}.items() if text is not None}
        meta = msgspec.structs.replace(pod.metadata, annotations=left)
        self.stage.see(msgspec.structs.replace(pod, metadata=meta))
        return Response(status=200, headers={}, body=b"{}")

    def stream(self, question: Question) -> Any:
        """Nobody watches here."""
        raise NotImplementedError(question.path)


class Scene:
    """A full cluster of one node, its API server, and the leader who evicts."""

    def __init__(
        self,
        specs: Mapping[str, QueueSpec] | None = None,
        *,
        grace: int | None = None,
        group: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.api, self.clock, self.silent = Api(), VirtualClock(start=WALL), ""
        self.specs = OWNER if specs is None else specs
        self.stage = self.api.stage = ReclaimStage(self.specs, **more)
        for number in range(4):
            spec = None if grace is None else {"terminationGracePeriodSeconds": grace}
            self.stage.submit(f"b{number}", 100, queue="blue", spec=spec, group="gang" if group else "", notes=group)
        self.stage.run()
        self._lead()

    def _lead(self) -> None:
        given = means(self.api, clock=self.clock, why_not=lambda: self.silent)
        self._events = given.events
        notebook = Notebook(means=given)
        self.moved = MovedKeeper(turns=self.stage.queues, notebook=notebook)
        self.torn = TornKeeper(turns=self.stage.queues, notebook=notebook)
        self.rooms = RoomWriter(turns=self.stage.queues, means=given)
        self.evictor = Evictor(
            reclaim=self.stage.reclaim,
            consolidation=self.stage.consolidation,
            turns=self.stage.queues,
            means=given,
            evictions=Evictions(means=given),
            rooms=self.rooms,
            moved=self.moved,
            torn=self.torn,
        )
        self.gangs = GangReturner(turns=self.stage.queues, means=given, evictions=Evictions(means=given))
        self.stage.hears = self.rooms.pod_changed
        for pod in self.stage.pods.values():
            self.rooms.pod_changed(Added(new=pod))

    def other_leader(self, **more: Any) -> None:
        """Another one begins, with what the API server has."""
        pods, now = list(self.stage.pods.values()), self.stage.now
        self.stage = self.api.stage = ReclaimStage(self.specs, **more)
        self.stage.now = now
        for pod in pods:
            self.stage.see(pod)
        self._lead()

    async def recall(self) -> None:
        """Whoever leads now reads what the one before has put down, as far as it can."""
        recalled = asyncio.gather(self.moved.recall(), self.torn.recall())
        while not recalled.done():
            await self.clock.advance(1.0)
            self.stage.now += 1.0
        await recalled

    async def look(self, seconds: float = 1.0) -> None:
        """The leader looks for so long, and lets in whoever can be."""
        running = asyncio.gather(self.evictor.run(), self.gangs.run(), self._events.run())
        for _ in range(int(seconds)):
            await self.clock.advance(1.0)
            self.stage.run(after=1.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def warnings(self) -> list[tuple[str, str]]:
        """Of which pods people were warned, and what was said."""
        warned = (one for one in self.api.events if one["type"] == "Warning")
        return [(one["regarding"]["name"], one["note"]) for one in warned]

    def go(self) -> None:
        """Whoever was evicted is gone."""
        for uid in self.api.evicted:
            if uid in self.stage.pods:
                self.stage.gone(uid)


def says(scene: Scene, uid: str) -> str:
    """What a pod says of room that is made for it."""
    return scene.stage.pods[uid].metadata.annotations.get(NAMES.room, "")
