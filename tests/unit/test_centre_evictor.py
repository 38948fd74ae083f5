"""Those who have to go are asked to: by the eviction subresource, once, whatever fails and whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from aliquot_core.inventory import Health
from aliquot_core.objects import OwnerReference
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError, DisruptionBlockedError, ForbiddenError, NotFoundError, UnreachableError
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.centre.evictor import Evictor
from aliquot_scheduler.centre.pod_events import PodEvents
from aliquot_scheduler.queues.spec import QueueSpec
from support.centre import NAMES, WALL, gpus, make_node
from support.clocks import VirtualClock
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

OWNER = {"red": queue(guarantee=200), "blue": queue()}


class Api:
    """An API server that takes evictions as it is told to, and has some disruption budgets."""

    def __init__(self) -> None:
        self.stage: ReclaimStage | None = None
        self.evicted: list[str] = []
        self.tried: list[str] = []
        self.refusing: dict[str, list[ApiError]] = {}
        self.budgets: list[Mapping[str, Any]] = []
        self.no_budgets: ApiError | None = None

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
        if not question.path.endswith("/eviction"):
            return Response(status=200, headers={}, body=b"{}")
        told = json.loads(question.body or b"")
        uid = told["deleteOptions"]["preconditions"]["uid"]
        self.tried.append(uid)
        assert question.path == f"/api/v1/namespaces/team/pods/pod-{uid}/eviction"
        assert "gracePeriodSeconds" not in told["deleteOptions"], "a pod's own grace is kept"
        if refusals := self.refusing.get(uid):
            raise refusals.pop(0)
        self.evicted.append(uid)
        if self.stage:
            self.stage.leave(uid)
        return Response(status=201, headers={}, body=b"{}")

    def stream(self, question: Question) -> Any:
        """Nobody watches here."""
        raise NotImplementedError(question.path)


class Scene:
    """A full cluster of one node, its API server, and the leader who evicts."""

    def __init__(self, specs: Mapping[str, QueueSpec] | None = None, **more: Any) -> None:
        self.api, self.clock, self.silent = Api(), VirtualClock(start=WALL), ""
        self.stage = self.api.stage = ReclaimStage(OWNER if specs is None else specs, **more)
        for number in range(4):
            self.stage.submit(f"b{number}", 100, queue="blue")
        self.stage.run()
        self._lead()

    def _lead(self) -> None:
        client = KubeClient(transport=self.api)
        self.events = PodEvents(client=client, clock=self.clock, random=lambda: 0.5, names=NAMES, instance="replica")
        self.evictor = Evictor(
            reclaim=self.stage.reclaim,
            consolidation=self.stage.consolidation,
            turns=self.stage.queues,
            client=client,
            clock=self.clock,
            events=self.events,
            why_not=lambda: self.silent,
        )

    def other_leader(self) -> None:
        """Another one begins, with what the API server has."""
        pods, now = list(self.stage.pods.values()), self.stage.now
        self.stage = self.api.stage = ReclaimStage(OWNER)
        self.stage.now = now
        for pod in pods:
            self.stage.see(pod)
        self._lead()

    async def look(self, seconds: float = 1.0) -> None:
        """The leader looks for so long, and lets in whoever can be."""
        running = asyncio.ensure_future(self.evictor.run())
        for _ in range(int(seconds)):
            await self.clock.advance(1.0)
            self.stage.run(after=1.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def go(self) -> None:
        """Whoever was evicted is gone."""
        for uid in self.api.evicted:
            if uid in self.stage.pods:
                self.stage.gone(uid)


async def test_victims_are_evicted_and_the_owner_is_let_in() -> None:
    """Each by its own UID and grace, once; and the room goes to whom it was made for."""
    scene = Scene()
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(5)
    assert scene.api.tried == ["b3"]
    scene.go()
    await scene.look(5)
    assert scene.stage.pods["r0"].spec.node_name
    assert (scene.api.tried, scene.evictor.evicted) == (["b3"], 1)


async def test_one_of_whom_the_watch_is_late_to_tell_is_not_asked_twice() -> None:
    """The API server has taken the eviction, and for seconds nothing is heard of it."""
    scene = Scene()
    scene.api.stage = None
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(5)
    assert scene.api.tried == ["b3"]


async def test_nobody_is_asked_while_nothing_may_be_decided() -> None:
    """What is known may be old, or another one leads."""
    scene = Scene()
    scene.silent = "another leads"
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(5)
    assert scene.api.tried == []


async def test_another_goes_where_a_budget_keeps_one() -> None:
    """A 429 spares that pod for a while; whoever was asked for the same already is not asked again."""
    scene = Scene()
    scene.api.refusing["b3"] = [DisruptionBlockedError("no", status=429)]
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(5)
    assert scene.api.tried == ["b3", "b2"]
    assert (scene.api.evicted, scene.evictor.kept) == (["b2"], 1)


async def test_budgets_are_asked_before_anybody_is() -> None:
    """One that has nothing left keeps its pods, and nobody is tried in vain."""
    scene = Scene()
    scene.api.budgets = [
        {
            "metadata": {"name": "keep", "namespace": "team"},
            "spec": {"selector": {}},
            "status": {"disruptionsAllowed": 0},
        }
    ]
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(5)
    assert scene.api.tried == []
    scene.api.budgets = []
    await scene.look(15)
    assert scene.api.tried == ["b3"]


async def test_a_cluster_without_budgets_forbids_nothing() -> None:
    """Where the API server knows no such resource; but where it may not be read, nobody is asked."""
    scene = Scene()
    scene.api.no_budgets = ForbiddenError("no", status=403)
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(5)
    assert scene.api.tried == []
    scene.api.no_budgets = NotFoundError("no", status=404)
    await scene.look(5)
    assert scene.api.tried == ["b3"]


async def test_what_could_not_be_asked_is_asked_once_more() -> None:
    """An API server that can't be reached for a moment."""
    scene = Scene()
    scene.api.refusing["b3"] = [UnreachableError("no"), UnreachableError("no")]
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(5)
    assert scene.api.tried == ["b3", "b3", "b3"]
    assert scene.api.evicted == ["b3"]


async def test_nobody_goes_for_one_that_is_gone() -> None:
    """A preemptor that is deleted before anybody was asked takes the decision with it."""
    scene = Scene()
    scene.api.refusing["b3"] = [UnreachableError("no")] * 3
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(2)
    scene.stage.gone("r0")
    await scene.look(5)
    assert scene.api.evicted == []
    assert len(scene.stage.queues.register.clearings) == 0


async def test_a_lost_node_calls_it_off() -> None:
    """What was to be made room on is out: whoever waits stands in line again, and nobody else has to go there."""
    scene = Scene()
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(3)
    cards = scene.stage.picture.nodes["n0"].inventory.gpus
    scene.stage.picture.node_seen(make_node("n0", cards, cordoned=True))
    await scene.look(20)
    assert scene.api.evicted == ["b3"]
    assert scene.stage.queues.is_in_line("r0")


async def test_one_that_does_not_go_is_given_up() -> None:
    """It ignores SIGTERM, and its node does not help: after a minute more than its grace another goes, once."""
    scene = Scene()
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(80)
    assert scene.api.evicted == ["b3"]
    await scene.look(40)
    assert scene.api.evicted == ["b3", "b2"]
    scene.stage.gone("b2")
    await scene.look(2)
    assert scene.stage.pods["r0"].spec.node_name


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("after", range(5))
async def test_a_leader_that_dies_asks_nobody_twice(after: int, *, gone: bool) -> None:
    """After each of its writes; the next one goes on, and no more go than would have."""
    scene = Scene()
    for number in range(2):
        scene.stage.submit(f"r{number}", 100, queue="red")
    running = asyncio.ensure_future(scene.evictor.run())
    answer, done = scene.api.request, 0

    async def dying(question: Question) -> Response:
        nonlocal done
        if done >= after:
            running.cancel()
            await asyncio.Event().wait()
        done += 1
        return await answer(question)

    scene.api.request = dying  # type: ignore[method-assign]
    await scene.clock.advance(2.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    scene.api.request = answer  # type: ignore[method-assign]
    if gone:
        scene.go()
    scene.other_leader()
    await scene.look(5)
    scene.go()
    await scene.look(5)
    assert sorted(scene.api.tried) == ["b2", "b3"]
    assert all(scene.stage.pods[uid].spec.node_name for uid in ("r0", "r1"))


# --- who is moved ----------------------------------------------------------------------------------------------------


def _on_a_degraded_card() -> Scene:
    """One of the four lies there, would be made anew, and has another card to go to."""
    scene = Scene(nodes=(5,), moves_per_hour=60)
    stage = scene.stage
    owner = OwnerReference(kind="Job", name="job", uid="job", controller=True)
    meta = msgspec.structs.replace(stage.pods["b0"].metadata, owner_references=[owner])
    stage.see(msgspec.structs.replace(stage.pods["b0"], metadata=meta))
    ((_, bad),) = stage.picture.holdings.of("b0")
    cards = gpus("n0", 5)
    worn = [msgspec.structs.replace(card, health=Health.DEGRADED) if card.uuid == bad else card for card in cards]
    stage.picture.node_seen(make_node("n0", worn))
    return scene


async def test_whoever_is_moved_is_asked_once_and_its_room_is_kept() -> None:
    """When the budget has grown to one, and not before."""
    scene = _on_a_degraded_card()
    await scene.look(50)
    assert scene.api.tried == []
    await scene.look(60)
    assert scene.api.tried == ["b0"]
    assert (scene.evictor.evicted, scene.evictor.moved, scene.evictor.kept) == (0, 1, 0)
    assert len(scene.stage.queues.register.refuges) == 1


async def test_no_room_is_kept_for_one_that_a_budget_keeps() -> None:
    """It stays where it is, and is left alone for a while."""
    scene = _on_a_degraded_card()
    scene.api.refusing["b0"] = [DisruptionBlockedError("no", status=429)]
    await scene.look(100)
    assert scene.api.tried == ["b0"]
    assert (scene.evictor.moved, scene.evictor.kept) == (0, 1)
    assert len(scene.stage.queues.register.refuges) == 0
