"""Whom a disruption budget or a webhook keeps, or trouble of the API server: others go, or are asked."""

from __future__ import annotations

import msgspec
import pytest

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
from aliquot_scheduler.queues.said.settings import QueueSettings
from support.evicting import Scene
from support.queue_stage import queue


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
