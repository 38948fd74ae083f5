"""What one leader has learnt of requests the next one knows, whatever became of it in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import msgspec
import pytest

from aliquot_core.instants import second_time
from aliquot_core.names import MIX
from aliquot_core.patterns import Patterns
from aliquot_kube.errors import ForbiddenError, UnreachableError
from aliquot_scheduler.centre.mix_keeper import MixKeeper
from aliquot_scheduler.centre.notebook import Notebook
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.worth.mix import Shape
from aliquot_scheduler.worth.page import LONGEST_PAGE, Page, decode_page, encode_page
from support.centre import NAMES, asks, gpus, make_node, picture_with
from support.centre_means import means
from support.clocks import VirtualClock
from support.fake_api import FakeApi
from support.reigning import reigning, until

PATH = f"/api/v1/namespaces/{NAMES.namespace}/configmaps/{MIX}"
HALF = Shape(cores=1.0, compute=50, memory=50, gpus=1)


class Leader:
    """What of a leader learns and keeps."""

    def __init__(self, api: FakeApi) -> None:
        self.clock = VirtualClock()
        self.appraiser = Appraiser(picture=picture_with(make_node("n1", gpus("n1", 2))), names=NAMES)
        notebook = Notebook(means=means(api, clock=self.clock))
        self.keeper = MixKeeper(appraiser=self.appraiser, notebook=notebook, clock=self.clock)

    def learn(self, *uids: str, at: float = 1_000.0) -> None:
        """Let pods arrive that were created then."""
        for pod in (asks(uid, 30, 1_000) for uid in uids):
            metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=second_time(at))
            self.appraiser.pod_seen(msgspec.structs.replace(pod, metadata=metadata))

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Keep as long as the block lasts."""
        running = asyncio.ensure_future(self.keeper.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def stored(api: FakeApi) -> Page:
    """What the API server holds."""
    return decode_page(api.objects[PATH]["data"]["page.json"], now=1e12)


def put(api: FakeApi, text: str) -> None:
    """Let something have been stored."""
    api.put(PATH, {"metadata": {"name": MIX}, "data": {"page.json": text}})


async def recalled(leader: Leader) -> None:
    """Recall, while time passes."""
    recall = asyncio.ensure_future(leader.keeper.recall())
    await leader.clock.advance(60.0)
    await recall


async def test_what_was_learnt_is_written_once_a_minute_and_only_when_it_has_changed() -> None:
    """Into the empty ConfigMap that is installed, and where there is none into a new one."""
    for installed in (True, False):
        api = FakeApi()
        if installed:
            api.put(PATH, {"metadata": {"name": MIX}})
        leader = Leader(api)
        written = []
        async with leader.keeping():
            for learn in ((), ("a", "b"), (), ("c",), ()):
                leader.learn(*learn)
                await leader.clock.advance(60.0)
                written.append(len([one for one in api.writes if PATH in api.objects]))
        assert [b - a for a, b in pairwise(written)] == [1 if installed else 2, 0, 1, 0]
        assert stored(api).requests == 3


async def test_the_next_leader_goes_on_from_there() -> None:
    """It knows the mix, counts nobody again, and writes nothing before it has learnt more."""
    api = FakeApi()
    first = Leader(api)
    async with first.keeping():
        first.learn(*(f"u{number}" for number in range(50)))
        await first.clock.advance(60.0)
    second = Leader(api)
    await recalled(second)
    assert second.appraiser.book.requests == 50
    writes = len(api.writes)
    async with second.keeping():
        second.learn("u3", "u4")
        await second.clock.advance(120.0)
        assert (second.appraiser.book.requests, len(api.writes)) == (50, writes)
        second.learn("new", at=1_001.0)
        await second.clock.advance(60.0)
    assert (stored(api).requests, len(api.writes)) == (51, writes + 1)


async def test_a_reign_recalls_before_it_sees_the_first_pod_and_keeps_what_it_learns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise pods that were counted before would be counted again."""
    monkeypatch.setattr("aliquot_scheduler.centre.mix_keeper._EVERY", 0.01)
    page = Page(counts=[(HALF, 7.0)], requests=7, until="2020-01-01T00:00:00Z")
    async with reigning() as world:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MIX}}
        world.create(PATH.rpartition("/")[0], body | {"data": {"page.json": encode_page(page)}})
        await until(lambda: not world.reign.why_not())
        assert world.reign.appraiser.book.page() == page
        world.reign.appraiser.book.count(HALF)
        await until(lambda: ["PATCH configmaps"] in world.writes.values())


async def test_a_leader_whose_clock_is_set_back_keeps_what_was_learnt() -> None:
    """Its page is of a time that is yet to come here: pods that are there count once more, new ones are learnt."""
    api, day = FakeApi(), 86_400.0
    first = Leader(api)
    tomorrow = first.clock.wall() + day
    async with first.keeping():
        first.learn(*(f"u{number}" for number in range(50)), at=tomorrow)
        await first.clock.advance(60.0)
    second = Leader(api)
    await recalled(second)
    assert second.appraiser.book.requests == 50
    assert second.appraiser.book.page().counts == stored(api).counts
    second.learn("u3", "u4", at=tomorrow)
    second.learn("u3", "new", at=tomorrow)
    assert second.appraiser.book.requests == 53
    # The API server's clock was set back too.
    second.learn("later", at=second.clock.wall() + 1)
    assert second.appraiser.book.requests == 54


GARBAGE = {
    "no JSON": "?",
    "another shape": '{"counts": 7}',
    "a count below nothing": '{"counts": [[{"compute": 5, "memory": 5, "gpus": 1}, -1]]}',
    "a count without end": '{"counts": [[{"compute": 5, "memory": 5, "gpus": 1}, 1e999]]}',
    "more than a GPU": '{"counts": [[{"compute": 500, "gpus": 1}, 1]]}',
    "less than no cores": '{"counts": [[{"cores": -1, "compute": 5, "gpus": 1}, 1]]}',
    "GPUs beyond sense": '{"counts": [[{"compute": 5, "gpus": 1000000000}, 1]]}',
    "GPUs without a part": '{"counts": [[{"gpus": 1}, 1]]}',
    "a part without GPUs": '{"counts": [[{"compute": 5}, 1]]}',
    "no time": '{"until": "zzz"}',
    "a time that sorts wrongly": '{"until": "1970-01-02 00:00:00"}',
}


@pytest.mark.parametrize("what", GARBAGE)
async def test_garbage_is_told_and_ignored(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """And written over when something new was learnt."""
    api = FakeApi()
    put(api, GARBAGE[what])
    leader = Leader(api)
    with caplog.at_level(logging.WARNING):
        await recalled(leader)
    assert ["can't be read" in record.getMessage() for record in caplog.records] == [True]
    assert leader.appraiser.book.page() == Page()
    async with leader.keeping():
        leader.learn("a")
        await leader.clock.advance(60.0)
    assert stored(api).requests == 1


async def test_an_api_server_that_fails_is_asked_again_and_not_for_ever() -> None:
    """The centre's work does not wait for this."""
    for failures, known in ((2, 7), (20, 0)):
        api = FakeApi()
        put(api, encode_page(Page(counts=[(HALF, 7.0)], requests=7)))
        api.before = [UnreachableError("cut", where="api")] * failures
        leader = Leader(api)
        await recalled(leader)
        assert leader.appraiser.book.requests == known


async def test_a_write_that_is_refused_is_tried_again_a_minute_later() -> None:
    """It costs nothing else."""
    api = FakeApi()
    put(api, "")
    api.before = [ForbiddenError("no", where="api")]
    leader = Leader(api)
    async with leader.keeping():
        leader.learn("a")
        await leader.clock.advance(60.0)
        assert api.objects[PATH]["data"]["page.json"] == ""
        await leader.clock.advance(60.0)
    assert stored(api).requests == 1


def test_a_page_is_never_longer_than_a_config_map_may_be() -> None:
    """What is asked for least is left out, whatever people write on their pods."""
    shapes = [
        Shape(compute=5, gpus=1, models=Patterns(allowed=(f"{number}" + "x" * 4_000,), forbidden=()))
        for number in range(400)
    ]
    page = Page(counts=[(shape, 400.0 - number) for number, shape in enumerate(shapes)], requests=9)
    text = encode_page(page)
    kept = decode_page(text, now=0.0)
    assert len(text) <= LONGEST_PAGE
    assert 50 < len(kept.counts) < 400
    assert kept.counts[0][1] == 400.0


def test_a_page_ends_no_later_than_now_but_for_a_little_skew() -> None:
    """The API server's clock may be ahead."""
    near, far = (Page(until=second_time(1_000.0 + ahead)) for ahead in (60.0, 3_661.0))
    assert decode_page(encode_page(near), now=1_000.0) == near
    assert decode_page(encode_page(far), now=1_000.0).until == second_time(1_000.0)


async def test_a_reign_has_its_tables_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it learns."""
    monkeypatch.setattr("aliquot_scheduler.centre.table_renewer._LOOK", 0.01)
    async with reigning() as world:
        world.join("n1")
        await until(lambda: "n1" in world.reign.picture.nodes and not world.reign.why_not())
        appraiser = world.reign.appraiser
        appraiser.look(asks("p", 30, None))
        for _ in range(20):
            appraiser.book.count(HALF)
        assert appraiser.due() is not None
        await until(lambda: appraiser.due() is None)
