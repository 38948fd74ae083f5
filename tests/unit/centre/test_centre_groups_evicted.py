"""A group goes as a whole, down to its minimum or not at all, whatever fails and whoever dies meanwhile."""

from __future__ import annotations

import pytest

from aliquot_kube.errors import (
    ApiError,
    DisruptionBlockedError,
    ServerTroubleError,
)
from support.evicting import Scene
from support.queue_stage import queue


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
    """One of it had gone when the leader died: that is put down, and on when the pod is bound for whom it went."""
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
    await scene.recall()
    await scene.look(5)
    assert scene.stage.pods["r0"].spec.node_name
    assert sorted(scene.api.evicted) == ["b1", "b2", "b3"]
    scene.go()
    scene.other_leader()
    await scene.recall()
    await scene.look(100)
    assert sorted(scene.api.evicted) == ["b0", "b1", "b2", "b3"]
