"""Those who have to go are asked to: by the eviction subresource, once, whatever fails and whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from aliquot_core.names import MIX, MOVED_KEY
from aliquot_core.objects import OwnerReference, Pod
from aliquot_kube.changes import Added
from aliquot_kube.errors import (
    ApiError,
    DisruptionBlockedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ServerTroubleError,
    ThrottledError,
    UnreachableError,
)
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.centre.evictions import Evictions
from aliquot_scheduler.centre.evictor import Evictor
from aliquot_scheduler.centre.gang_returner import GangReturner
from aliquot_scheduler.centre.moved_keeper import MovedKeeper
from aliquot_scheduler.centre.notebook import Notebook
from aliquot_scheduler.centre.room_writer import RoomWriter
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import Preemption, QueueSpec
from support.centre import NAMES, WALL, failing, gpus, make_node, sick
from support.centre_means import means
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
        self.moved = MovedKeeper(turns=self.stage.queues, notebook=Notebook(means=given))
        self.rooms = RoomWriter(turns=self.stage.queues, means=given)
        self.evictor = Evictor(
            reclaim=self.stage.reclaim,
            consolidation=self.stage.consolidation,
            turns=self.stage.queues,
            means=given,
            evictions=Evictions(means=given),
            rooms=self.rooms,
            moved=self.moved,
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


async def test_victims_are_evicted_and_the_owner_is_let_in() -> None:
    """Each by its own UID and grace, once; and the room goes to whom it was made for."""
    scene = Scene()
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(5)
    assert (scene.api.tried, scene.api.graces) == (["b3"], {"b3": None})
    scene.go()
    await scene.look(5)
    assert scene.stage.pods["r0"].spec.node_name
    assert (scene.api.tried, scene.evictor.evicted) == (["b3"], 1)


@pytest.mark.parametrize(("whose", "told"), [("team", "team/pod-r0"), ("other", "a pod")])
async def test_a_victim_is_told_for_which_queue_it_goes_and_names_of_its_own_namespace_alone(
    whose: str, told: str
) -> None:
    """Other tenants' pods are none of its business."""
    scene = Scene()
    scene.stage.submit("r0", 100, queue="red", user=whose)
    await scene.look(5)
    notes = [one["note"] for one in scene.api.events if one["reason"] == "MakesRoom"]
    assert notes == [f"it makes room for {told} of queue red"]


@pytest.mark.parametrize("way", ["evicted", "deleted"])
async def test_nobody_is_given_more_time_than_the_operator_says(way: str) -> None:
    """Whoever gives itself a day is evicted, or deleted against its budget, with the longest grace there is."""
    scene = Scene(settings=QueueSettings(max_grace=90, budget_grace=1), grace=86_400)
    if way == "deleted":
        scene.api.budgets = [{"metadata": {"name": "mine", "namespace": "team"}, "spec": {"selector": {}}}]
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(15)
    assert (scene.api.deleted if way == "deleted" else scene.api.evicted) == ["b3"]
    assert scene.api.graces == {"b3": 90}


async def test_whom_the_kubelet_does_not_end_in_time_is_told_with_its_node() -> None:
    """Once, as a warning on the pod; and another goes."""
    scene = Scene()
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(80)
    assert scene.warnings() == []
    await scene.look(60)
    ((who, what),) = scene.warnings()
    assert who == "pod-b3"
    assert "node n0 has not ended it" in what
    assert scene.api.evicted == ["b3", "b2"]


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


# And how often it is asked then, before another is.
DENIED = {
    "a webhook denies it": (ForbiddenError("admission webhook denied the request", status=403), 1),
    "with another code": (InvalidError("no", status=422), 1),
    "as if it were too much": (ThrottledError("no", status=429), 3),
    "it has two budgets, or its webhook is down": (ServerTroubleError("no", status=500), 3),
}


@pytest.mark.parametrize("denial", list(DENIED))
async def test_one_that_can_t_be_evicted_keeps_nobody_from_what_is_theirs(denial: str) -> None:
    """Another goes in its place, and for those who wait behind; that one is asked seldom."""
    scene, (error, times) = Scene(), DENIED[denial]
    scene.api.refusing["b3"] = [error] * 1000
    for number in range(2):
        scene.stage.submit(f"r{number}", 100, queue="red")
    await scene.look(20)
    assert sorted(scene.api.evicted) == ["b1", "b2"]
    scene.go()
    await scene.look(20)
    assert all(scene.stage.pods[uid].spec.node_name for uid in ("r0", "r1"))
    assert scene.api.tried.count("b3") == times


@pytest.mark.parametrize("kept", ["b0", "b1", "b2", "b3"])
@pytest.mark.parametrize(
    ("error", "times"), [(DisruptionBlockedError("no", status=429), 1), (ServerTroubleError("no", status=500), 3)]
)
async def test_of_several_whom_a_budget_covers_is_asked_first(kept: str, error: ApiError, times: int) -> None:
    """It was spent since it was read, or a webhook has trouble: of the three others nobody has gone for nothing."""
    scene = Scene({"red": queue(guarantee=400), "blue": queue()})
    labels = {"matchLabels": {"kept": "yes"}}
    pod = scene.stage.pods[kept]
    scene.stage.see(
        msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(pod.metadata, labels={**pod.metadata.labels, "kept": "yes"})
        )
    )
    scene.api.budgets = [
        {
            "metadata": {"name": "mine", "namespace": "team"},
            "spec": {"selector": labels},
            "status": {"disruptionsAllowed": 1},
        }
    ]
    scene.api.refusing[kept] = [error] * times
    scene.stage.submit("r0", 400, queue="red")
    await scene.look(20)
    assert (scene.api.tried, scene.api.evicted) == ([kept] * times, [])
    # It is left alone for a minute.
    await scene.look(60)
    assert scene.api.evicted[0] == kept
    assert sorted(scene.api.evicted) == ["b0", "b1", "b2", "b3"]


async def test_trouble_with_one_keeps_the_next_from_nothing() -> None:
    """In the same look; and once it is over, whoever was decided on goes."""
    scene = Scene()
    scene.api.refusing["b3"] = [ServerTroubleError("no", status=500)] * 2
    for number in range(2):
        scene.stage.submit(f"r{number}", 100, queue="red")
    await scene.look(1)
    assert scene.api.tried == ["b3", "b2"]
    await scene.look(2)
    assert scene.api.tried == ["b3", "b2", "b3", "b3"]
    assert (scene.api.evicted, scene.evictor.kept) == (["b2", "b3"], 0)


async def test_a_look_is_broken_off_when_nobody_answers() -> None:
    """To each further one we would wait for as long."""
    scene = Scene()
    scene.api.refusing["b3"] = [UnreachableError("no")]
    for number in range(2):
        scene.stage.submit(f"r{number}", 100, queue="red")
    await scene.look(1)
    assert scene.api.tried == ["b3"]


async def test_one_that_gets_no_answer_keeps_no_other_from_being_asked() -> None:
    """A webhook that is silent of one pod alone: it is asked again and again, after all others."""
    scene = Scene()
    scene.api.refusing["b3"] = [UnreachableError("no")] * 3
    for number in range(2):
        scene.stage.submit(f"r{number}", 100, queue="red")
    await scene.look(2)
    assert scene.api.tried == ["b3", "b2", "b3"]
    await scene.look(2)
    assert scene.api.tried == ["b3", "b2", "b3", "b3", "b3"]
    assert (scene.api.evicted, scene.evictor.kept) == (["b2", "b3"], 0)


async def test_a_refusal_that_comes_late_ends_nobodys_rest() -> None:
    """The room was given up while the API server thought about it, and who waited for it rests for something else."""
    scene = Scene()
    scene.api.refusing["b3"] = [DisruptionBlockedError("no", status=429)]
    scene.stage.submit("r0", 100, queue="red")
    answer, register = scene.api.request, scene.stage.queues.register

    async def meanwhile(question: Question) -> Response:
        if question.path.endswith("/eviction"):
            for clearing in register.clearings:
                register.making_room.call_off(clearing)
            register.rest(scene.stage.pods["r0"], until=1e6)
        return await answer(question)

    scene.api.request = meanwhile  # type: ignore[method-assign]
    await scene.look(1)
    assert scene.api.tried == ["b3"]
    assert register.hall.rests_until("r0") == 1e6


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


async def test_by_itself_nobody_is_deleted() -> None:
    """A budget keeps what is borrowed for as long as it is there, unless the operator says otherwise."""
    scene = Scene()
    scene.api.budgets = [{"metadata": {"name": "mine", "namespace": "team"}, "spec": {"selector": {}}}]
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(3600)
    assert (scene.api.deleted, scene.api.tried) == ([], [])


async def test_a_budget_keeps_what_is_borrowed_for_a_while_and_is_set_aside() -> None:
    """Then one pod is deleted, and told why; nobody is asked for an eviction that the API server would refuse."""
    scene = Scene(settings=QueueSettings(budget_grace=600))
    keep = {"metadata": {"name": "mine", "namespace": "team"}, "spec": {"selector": {}}}
    scene.api.budgets = [keep]
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(590)
    assert scene.api.deleted == []
    await scene.look(25)
    assert (scene.api.deleted, scene.api.tried) == (["b3"], [])
    evictor = scene.evictor
    assert (evictor.against_budgets, evictor.evicted, evictor.kept, evictor.moved) == (1, 0, 0, 0)


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
@pytest.mark.parametrize("after", range(8))
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


# --- room outlives the leader who made it ---------------------------------------------------------------------------

INSIDE = {"blue": queue(preemption=Preemption(within_queue="SameUser")), "red": queue()}


def _says(scene: Scene, uid: str) -> str:
    return scene.stage.pods[uid].metadata.annotations.get(NAMES.room, "")


async def test_the_next_leader_keeps_what_was_freed_for_whom_it_was_freed() -> None:
    """Its victim is gone while nobody leads; who has less of the cluster waits too, and would come first."""
    scene = Scene(INSIDE)
    scene.stage.submit("urgent", 100, queue="blue", priority=9)
    await scene.look(2)
    assert scene.api.tried == ["b3"]
    assert _says(scene, "urgent")
    scene.stage.submit("other", 100, queue="red", user="other")
    scene.go()
    scene.other_leader()
    await scene.look(5)
    assert scene.stage.pods["urgent"].spec.node_name
    assert not scene.stage.pods["other"].spec.node_name
    assert scene.api.tried == ["b3"]


async def test_the_next_leader_keeps_it_while_victims_are_on_their_way() -> None:
    """And it decides nothing anew, though its victim would be another one by now."""
    scene = Scene(INSIDE)
    scene.stage.submit("urgent", 100, queue="blue", priority=9)
    await scene.look(2)
    scene.other_leader()
    scene.stage.run(after=1.0)
    (clearing,) = scene.stage.queues.register.clearings
    assert (clearing.uid, clearing.victims) == ("urgent", ())
    await scene.look(5)
    scene.go()
    await scene.look(2)
    assert scene.stage.pods["urgent"].spec.node_name
    assert scene.api.tried == ["b3"]


async def test_what_was_cut_off_is_decided_anew_and_nothing_is_lost_meanwhile() -> None:
    """One of two victims was asked, and is gone: its card is kept until another goes for the same group."""
    scene = Scene(INSIDE)
    scene.api.refusing["b2"] = [UnreachableError("no")] * 9
    for uid in ("u0", "u1"):
        scene.stage.submit(uid, 100, queue="blue", priority=9, group="u", notes={"group-size": "2"})
    await scene.look(2)
    assert scene.api.evicted == ["b3"]
    scene.stage.submit("other", 100, queue="red", user="other")
    scene.go()
    scene.other_leader()
    scene.api.refusing.clear()
    scene.stage.run(after=1.0)
    await scene.look(2)
    assert scene.api.evicted == ["b3", "b2"]
    scene.go()
    await scene.look(2)
    bound = {uid for uid, pod in scene.stage.pods.items() if pod.spec.node_name}
    assert {"u0", "u1"} <= bound
    assert "other" not in bound


async def test_of_pods_that_have_nothing_to_do_with_room_none_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked every second, and there are thousands of them: that took 18 ms of 5,300."""
    scene, looked = Scene(), list[str]()
    scene.stage.submit("r0", 100, queue="red")
    for number in range(20):
        scene.stage.submit(f"waits{number}", 100, queue="blue")
    await scene.look(2)
    assert _says(scene, "r0")
    said = scene.rooms._said

    def noted(pod: Pod) -> str:
        looked.append(pod.metadata.uid)
        return said(pod)

    monkeypatch.setattr(scene.rooms, "_said", noted)
    await scene.rooms.write()
    assert set(looked) == {"r0"}


@pytest.mark.parametrize("told", [True, False], ids=["the watch has told", "it has not yet"])
async def test_whoever_is_not_to_have_the_room_any_more_says_so_no_more(*, told: bool) -> None:
    """A budget keeps its victim, and no other may go: a leader after us keeps nothing for it."""
    scene = Scene(INSIDE)
    if not told:
        scene.stage.hears = lambda _: None
    for number in range(4):
        scene.api.refusing[f"b{number}"] = [DisruptionBlockedError("no", status=429)] * 9
    scene.stage.submit("urgent", 100, queue="blue", priority=9)
    await scene.look(1)
    assert _says(scene, "urgent")
    await scene.look(6)
    assert _says(scene, "urgent") == ""
    scene.other_leader()
    scene.stage.run(after=1.0)
    assert len(scene.stage.queues.register.clearings) == 0


@pytest.mark.parametrize("error", [InvalidError("too long", status=422), ForbiddenError("no", status=403)])
async def test_one_that_can_t_be_told_keeps_nobody_from_what_is_theirs(error: ApiError) -> None:
    """Its owner has filled its annotations: room is made for it, and for those behind it."""
    scene = Scene()
    scene.api.untold["r0"] = error
    for number in range(2):
        scene.stage.submit(f"r{number}", 100, queue="red")
    await scene.look(3)
    assert sorted(scene.api.evicted) == ["b2", "b3"]


async def test_trouble_with_one_that_is_to_be_told_holds_up_nobody_else() -> None:
    """Its namespace's webhook is down: room is made for others at once, and for it after a few tries."""
    scene = Scene()
    scene.api.untold["r0"] = ServerTroubleError("no", status=500)
    for number in range(2):
        scene.stage.submit(f"r{number}", 100, queue="red")
    await scene.look(1)
    assert len(scene.api.evicted) == 1
    assert _says(scene, "r1")
    await scene.look(1)
    assert len(scene.api.evicted) == 1
    await scene.look(3)
    assert len(scene.api.evicted) == 2


async def test_trouble_that_passes_keeps_no_word_back() -> None:
    """Nobody is asked before it is told, which it is once it can be."""
    scene = Scene()
    scene.api.untold["r0"] = ServerTroubleError("no", status=500)
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(1)
    assert scene.api.tried == []
    scene.api.untold.clear()
    await scene.look(1)
    assert _says(scene, "r0")
    assert scene.api.evicted == ["b3"]


async def test_nobody_is_asked_before_it_is_told_for_whom() -> None:
    """The word comes first: without it, whoever leads next would not know."""
    scene = Scene()
    scene.api.untold["r0"] = UnreachableError("no")
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(3)
    assert scene.api.tried == []
    scene.api.untold.clear()
    await scene.look(2)
    assert scene.api.evicted == ["b3"]


# --- who is moved ----------------------------------------------------------------------------------------------------


def _on_a_degraded_card() -> Scene:
    """One of the four lies there, would be made anew, and has another card to go to."""
    scene = Scene({"red": queue(), "blue": queue()}, nodes=(5,))
    stage = scene.stage
    owner = OwnerReference(kind="Job", name="job", uid="job", controller=True)
    meta = msgspec.structs.replace(stage.pods["b0"].metadata, owner_references=[owner])
    stage.see(msgspec.structs.replace(stage.pods["b0"], metadata=meta))
    ((_, bad),) = stage.picture.holdings.of("b0")
    cards = gpus("n0", 5)
    worn = [failing(card) if card.uuid == bad else card for card in cards]
    stage.picture.node_seen(make_node("n0", worn))
    return scene


async def test_whoever_is_moved_is_asked_once_and_its_room_is_kept() -> None:
    """Off a degraded GPU at once, whatever may be moved otherwise."""
    scene = _on_a_degraded_card()
    await scene.look(60)
    assert scene.api.tried == ["b0"]
    assert (scene.evictor.evicted, scene.evictor.moved, scene.evictor.kept) == (0, 1, 0)
    assert len(scene.stage.queues.register.refuges) == 1


async def test_who_stays_on_a_degraded_gpu_is_told_why_once() -> None:
    """And once more when that is another reason; nobody is asked."""
    scene = _on_a_degraded_card()
    keep = {"metadata": {"name": "mine", "namespace": "team"}, "spec": {"selector": {}}}
    scene.api.budgets = [keep]
    await scene.look(200)
    told = [(one["regarding"]["name"], one["note"]) for one in scene.api.events if one["reason"] == "StaysThere"]
    stays = "its GPU is degraded, and it stays there: "
    assert told == [("pod-b0", f"{stays}it is kept by PodDisruptionBudget team/mine")]
    scene.api.budgets = []
    ((_, bad),) = scene.stage.picture.holdings.of("b0")
    cards = [failing(card) if card.uuid == bad else sick(card) for card in gpus("n0", 5)]
    scene.stage.picture.node_seen(make_node("n0", cards))
    await scene.look(200)
    notes = [one["note"] for one in scene.api.events if one["reason"] == "StaysThere"]
    assert notes[1:] == [f"{stays}no healthy GPU has room for it now"]
    assert scene.api.tried == []


def _put_down(scene: Scene) -> list[str]:
    """Of whom the next leader would know that room is kept for another one."""
    return [one["moved"]["uid"] for one in json.loads(scene.api.notebook.get(MOVED_KEY) or "[]")]


async def _until_one_is_to_move(scene: Scene) -> None:
    for _ in range(100):
        if len(scene.stage.queues.register.refuges):
            return
        await scene.look(1)


async def test_room_of_one_that_is_moved_for_nobody_is_put_down_before_it_is_asked() -> None:
    """Else the next leader would not know where whoever comes in its place is to lie: by then it is gone itself."""
    scene = _on_a_degraded_card()
    scene.api.no_notebook = ServerTroubleError("no", status=500)
    await _until_one_is_to_move(scene)
    await scene.look(3)
    assert (scene.api.tried, _put_down(scene)) == ([], [])
    scene.api.no_notebook = None
    await scene.look(2)
    assert (scene.api.tried, _put_down(scene), _says(scene, "b0")) == (["b0"], ["b0"], "")


async def test_room_that_is_kept_no_more_is_put_down_no_more() -> None:
    """Written once, when it is over."""
    scene = _on_a_degraded_card()
    await scene.look(110)
    assert _put_down(scene) == ["b0"]
    scene.stage.queues.register.refuges.close("b0")
    await scene.look(2)
    assert _put_down(scene) == []


async def test_the_next_leader_knows_of_room_that_was_kept_for_nobody() -> None:
    """As far as it can read what was put down."""
    for trouble, known in ((None, ["b0"]), (ForbiddenError("no", status=403), [])):
        scene = _on_a_degraded_card()
        await scene.look(110)
        scene.stage.gone("b0")
        scene.api.no_notebook = trouble
        scene.other_leader(nodes=(5,))
        recall = asyncio.ensure_future(scene.moved.recall())
        await scene.clock.advance(60.0)
        await recall
        scene.stage.run(after=1.0)
        assert sorted(scene.stage.queues.register.refuges.movers()) == known


@pytest.mark.parametrize("trouble", [None, ForbiddenError("no", status=403)], ids=repr)
async def test_what_could_not_be_read_is_written_over(trouble: ApiError | None) -> None:
    """Else the leader after this one would keep room by a page of long ago; what could be read is not written anew."""
    scene = Scene()
    scene.api.notebook = {MOVED_KEY: "of long ago"} if trouble else {}
    scene.api.no_notebook = trouble
    recall = asyncio.ensure_future(scene.moved.recall())
    await scene.clock.advance(60.0)
    await recall
    scene.api.no_notebook = None
    await scene.look(2)
    assert scene.api.notebook == ({MOVED_KEY: ""} if trouble else {})


@pytest.mark.parametrize("error", [ServerTroubleError("no", status=500), ForbiddenError("no", status=403)], ids=repr)
async def test_what_can_t_be_put_down_keeps_nobody_from_what_is_theirs(error: ApiError) -> None:
    """Owners get back what they lent meanwhile; where it is forbidden, whoever is moved is asked all the same."""
    scene = _on_a_degraded_card()
    scene.api.no_notebook = error
    await _until_one_is_to_move(scene)
    scene.stage.queues.queues_seen(OWNER)
    scene.stage.submit("r0", 200, queue="red")
    await scene.look(5)
    assert "r0" in scene.stage.queues.register.clearings
    assert "b3" in scene.api.tried
    assert ("b0" in scene.api.tried) == isinstance(error, ForbiddenError)


async def test_whoever_is_bound_says_of_no_room_that_is_kept_no_more() -> None:
    """Written once, when it is over: by this leader, or by the next."""
    scene = Scene()
    pod = scene.stage.pods["b1"]
    moved = {"uid": "m", "namespace": "team", "owner": "", "user": "", "queue": "blue", "asks": "", "host": [0, 0]}
    refuges = [{"moved": moved, "node": "n0", "claims": {}}]
    # As the last word of a leader that died.
    words = {"whose": "b1", "count": 1, "queue": "blue", "node": "n0", "claims": {}, "refuges": refuges}
    notes = {**pod.metadata.annotations, NAMES.room: json.dumps(words)}
    scene.stage.see(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=notes)))
    await scene.look(2)
    assert _says(scene, "b1") == ""


async def test_no_room_is_kept_for_one_that_a_budget_keeps() -> None:
    """It stays where it is, and is left alone for a while."""
    scene = _on_a_degraded_card()
    scene.api.refusing["b0"] = [DisruptionBlockedError("no", status=429)]
    await scene.look(50)
    assert scene.api.tried == ["b0"]
    assert (scene.evictor.moved, scene.evictor.kept) == (0, 1)
    assert len(scene.stage.queues.register.refuges) == 0


@pytest.mark.parametrize(
    ("group", "went"),
    [
        ({"group-size": "4"}, ["b0", "b1", "b2", "b3"]),
        # It runs with two.
        ({"group-size": "4", "group-min": "2"}, ["b3"]),
        ({}, ["b3"]),
    ],
)
async def test_a_group_that_goes_as_a_whole_goes_wholly_though_less_is_enough(
    group: dict[str, str], went: list[str]
) -> None:
    """One is gone before the next is asked, and its card is enough; the others could not run, and would hold theirs."""
    scene = Scene(group=group)
    scene.api.goes_at_once = True
    ((_, first),) = scene.stage.picture.holdings.of("b3")
    scene.stage.submit("r0", 100, queue="red", notes={"gpu-uuid": first})
    await scene.look(5)
    assert scene.stage.pods["r0"].spec.node_name
    assert sorted(scene.api.evicted) == went


@pytest.mark.parametrize(
    "error", [ServerTroubleError("no", status=500), DisruptionBlockedError("no", status=429)], ids=repr
)
@pytest.mark.parametrize(("minimum", "went"), [("4", ["b0", "b1", "b2", "b3"]), ("1", ["b3"])])
async def test_what_is_left_of_a_group_is_asked_until_it_goes(error: ApiError, minimum: str, went: list[str]) -> None:
    """The owner is in before they could be; where enough are left they stay."""
    scene = Scene(group={"group-size": "4", "group-min": minimum})
    scene.api.goes_at_once = True
    scene.api.refusing = {uid: [error] for uid in ("b0", "b1", "b2")}
    ((_, first),) = scene.stage.picture.holdings.of("b3")
    scene.stage.submit("r0", 100, queue="red", notes={"gpu-uuid": first})
    await scene.look(40)
    assert scene.stage.pods["r0"].spec.node_name
    assert sorted(scene.api.evicted) == went


async def test_a_group_of_which_nobody_went_stays_where_there_is_room_by_now() -> None:
    """They were asked, the API server was in trouble, and then a limit was raised."""
    specs = {"org": queue(limit=400), "red": queue("org", guarantee=100), "blue": queue("org")}
    scene = Scene(specs, nodes=(8,), group={"group-size": "4"})
    scene.api.refusing = {f"b{number}": [ServerTroubleError("no", status=500)] for number in range(4)}
    scene.stage.submit("r0", 100, queue="red")
    while len(scene.api.tried) < 4:
        await scene.look(1)
    scene.stage.queues.queues_seen({**specs, "org": queue(limit=800)})
    scene.stage.run(after=2.0)
    assert scene.stage.pods["r0"].spec.node_name
    await scene.look(70)
    assert scene.api.evicted == []


async def test_the_next_leader_sends_back_who_is_left_of_a_group() -> None:
    """One of it had gone when the leader died: the pod for whom it went says so, and on when it is bound."""
    scene = Scene(group={"group-size": "4"})
    scene.api.refusing = {uid: [ServerTroubleError("no", status=500)] for uid in ("b0", "b1", "b2")}
    ((_, first),) = scene.stage.picture.holdings.of("b3")
    scene.stage.submit("r0", 100, queue="red", notes={"gpu-uuid": first})
    await scene.look(1)
    scene.go()
    assert scene.api.evicted == ["b3"]
    # Whoever leads next dies as well, before the last of them is taken.
    scene.api.refusing["b0"] = [DisruptionBlockedError("no", status=429)] * 2
    scene.other_leader()
    await scene.look(5)
    assert scene.stage.pods["r0"].spec.node_name
    assert sorted(scene.api.evicted) == ["b1", "b2", "b3"]
    scene.go()
    scene.other_leader()
    await scene.look(100)
    assert sorted(scene.api.evicted) == ["b0", "b1", "b2", "b3"]


@pytest.mark.parametrize(("named", "left"), [(["b0", "gone"], None), (["lost", "gone"], [["lost", "gone"]])])
async def test_whoever_is_bound_says_of_no_group_that_runs_on(named: list[str], left: list[list[str]] | None) -> None:
    """It lacks nobody; of which nobody is there any more nothing need be written."""
    scene = Scene(group={"group-size": "4"})
    words = {"whose": "b1", "count": 1, "queue": "blue", "node": "n0", "claims": {"g": [1, 1, False]}}
    scene.stage.note("b1", {NAMES.room: json.dumps({**words, "groups": [named]})})
    await scene.look(2)
    assert json.loads(_says(scene, "b1")).get("groups") == left
