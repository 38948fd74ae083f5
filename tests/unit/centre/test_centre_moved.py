"""Who goes off a degraded GPU is asked once, and where the next one is to lie is put down for whoever leads next."""

from __future__ import annotations

import json

import msgspec
import pytest

from aliquot_core.names import MOVED_KEY, TORN_KEY
from aliquot_core.objects import OwnerReference
from aliquot_kube.errors import (
    ApiError,
    DisruptionBlockedError,
    ForbiddenError,
    ServerTroubleError,
)
from support.centre import failing, gpus, make_node, sick
from support.evicting import Scene, says
from support.queue_stage import queue
from support.reclaim_stage import OWNER

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
    assert (scene.api.tried, _put_down(scene), says(scene, "b0")) == (["b0"], ["b0"], "")


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
        await scene.recall()
        scene.stage.run(after=1.0)
        assert sorted(scene.stage.queues.register.refuges.movers()) == known


@pytest.mark.parametrize("trouble", [None, ForbiddenError("no", status=403)], ids=repr)
async def test_what_could_not_be_read_is_written_over(trouble: ApiError | None) -> None:
    """Else the leader after this one would keep room by a page of long ago; what could be read is not written anew."""
    scene = Scene()
    scene.api.notebook = {MOVED_KEY: "of long ago", TORN_KEY: "of long ago"} if trouble else {}
    scene.api.no_notebook = trouble
    await scene.recall()
    scene.api.no_notebook = None
    await scene.look(2)
    assert scene.api.notebook == ({MOVED_KEY: "", TORN_KEY: ""} if trouble else {})


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


async def test_no_room_is_kept_for_one_that_a_budget_keeps() -> None:
    """It stays where it is, and is left alone for a while."""
    scene = _on_a_degraded_card()
    scene.api.refusing["b0"] = [DisruptionBlockedError("no", status=429)]
    await scene.look(50)
    assert scene.api.tried == ["b0"]
    assert (scene.evictor.moved, scene.evictor.kept) == (0, 1)
    assert len(scene.stage.queues.register.refuges) == 0
