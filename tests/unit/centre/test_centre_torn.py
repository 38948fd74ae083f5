"""Which groups go is put down before anybody of them is asked, for whoever leads next, and keeps no owner waiting."""

from __future__ import annotations

import json

import pytest

from aliquot_core.names import TORN_KEY
from aliquot_kube.errors import ApiError, ForbiddenError, ServerTroubleError, UnreachableError
from support.evicting import Scene

JOB = ["b0", "b1", "b2", "b3"]
NO_ANSWER = UnreachableError("no")
TROUBLE = ServerTroubleError("no", status=500)
FORBIDDEN = ForbiddenError("no", status=403)


async def _of_a_group() -> Scene:
    """All four GPUs are held by a group that runs whole or not at all; an owner wants two of them."""
    scene = Scene(group={"group-size": "4", "group-min": "4"})
    await scene.recall()
    scene.stage.submit("r0", 200, queue="red")
    return scene


def _put_down(scene: Scene) -> list[tuple[str, list[str]]]:
    """For whom groups go, and who of them."""
    return [(one["whose"], sorted(one["named"])) for one in json.loads(scene.api.notebook.get(TORN_KEY) or "[]")]


async def _until_they_are_to_go(scene: Scene) -> None:
    while "r0" not in scene.stage.queues.register.clearings:
        await scene.look(1)


async def test_a_group_that_goes_is_put_down_before_anybody_of_it_is_asked() -> None:
    """Else of one of which some are gone nothing said why; when it is gone as a whole, none need be known."""
    scene = await _of_a_group()
    scene.api.no_notebook = TROUBLE
    await _until_they_are_to_go(scene)
    assert (scene.api.tried, _put_down(scene)) == ([], [])
    scene.api.no_notebook = None
    await scene.look(1)
    assert (sorted(scene.api.tried), _put_down(scene)) == (JOB, [("r0", JOB)])
    scene.go()
    await scene.look(2)
    assert _put_down(scene) == []


@pytest.mark.parametrize(("error", "looks"), [(NO_ANSWER, 2), (TROUBLE, 2), (FORBIDDEN, 0)], ids=repr)
async def test_an_owner_gets_back_what_is_its_own_though_groups_can_t_be_put_down(error: ApiError, looks: int) -> None:
    """What fails a few times, or is forbidden, is taken to fail for good."""
    scene = await _of_a_group()
    scene.api.no_notebook = error
    await _until_they_are_to_go(scene)
    await scene.look(looks)
    assert sorted(scene.api.tried) == JOB


async def test_what_could_not_be_put_down_is_tried_on() -> None:
    """All were asked meanwhile, and are there still; the trouble is over."""
    scene = await _of_a_group()
    scene.api.no_notebook = NO_ANSWER
    await _until_they_are_to_go(scene)
    await scene.look(3)
    scene.api.no_notebook = None
    await scene.look(1)
    assert _put_down(scene) == [("r0", JOB)]


async def test_trouble_that_is_over_is_not_counted_to_that_of_later() -> None:
    """Twice before, and now once: it is waited for."""
    scene = await _of_a_group()
    scene.api.no_notebook = TROUBLE
    await _until_they_are_to_go(scene)
    await scene.look(1)
    scene.stage.gone("r0")
    scene.stage.run(after=1.0)
    scene.api.no_notebook = None
    await scene.look(2)
    scene.stage.submit("r1", 200, queue="red")
    scene.api.no_notebook = TROUBLE
    while "r1" not in scene.stage.queues.register.clearings:
        await scene.look(1)
    assert scene.api.tried == []


@pytest.mark.parametrize(("trouble", "back"), [(None, JOB[:-1]), (FORBIDDEN, [])], ids=["read", "unreadable"])
async def test_the_next_leader_sends_back_what_is_left_though_the_owner_is_gone(
    trouble: ApiError | None, back: list[str]
) -> None:
    """As far as it can read what was put down."""
    scene = await _of_a_group()
    scene.api.refusing = {uid: [TROUBLE] for uid in JOB[:-1]}
    await _until_they_are_to_go(scene)
    assert scene.api.evicted == [JOB[-1]]
    for uid in ("r0", JOB[-1]):
        scene.stage.gone(uid)
    scene.api.no_notebook = trouble
    scene.other_leader()
    await scene.recall()
    scene.api.no_notebook = None
    await scene.look(70)
    assert sorted(set(scene.api.evicted) - {JOB[-1]}) == back
