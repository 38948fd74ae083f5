"""Who does not lead does not write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from aliquot_core.objects import ObjectMeta, Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.fencing import FencedTransport
from aliquot_kube.leadership import NotLeadingError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import PODS
from aliquot_kube.transport import Question
from support.fake_api import FakeApi

PATH = PODS.path(namespace="team", name="one")
WRITES: dict[str, Callable[[KubeClient], Awaitable[object]]] = {
    "create": lambda client: client.create(PODS, Pod(metadata=ObjectMeta(name="two", namespace="team"))),
    "patch": lambda client: client.patch(PODS, name="one", namespace="team", patch=merge_patch({})),
    "delete": lambda client: client.delete(PODS, name="one", namespace="team"),
    "bind": lambda client: client.bind(namespace="team", name="one", node="n"),
    "evict": lambda client: client.evict(namespace="team", name="one"),
}


def refuse() -> None:
    """Lead no longer."""
    raise NotLeadingError("this replica does not lead")


@pytest.fixture
def api() -> FakeApi:
    """An API server with one pod."""
    made = FakeApi()
    made.put(PATH, {"metadata": {"name": "one", "namespace": "team"}})
    return made


@pytest.mark.parametrize("write", WRITES)
async def test_no_write_gets_through(api: FakeApi, write: str) -> None:
    """Whatever changes something is not even asked."""
    with pytest.raises(NotLeadingError):
        await WRITES[write](KubeClient(transport=FencedTransport(transport=api, check=refuse)))
    assert api.asked == []


async def test_reads_pass(api: FakeApi) -> None:
    """Followers keep their picture too."""

    async def line(_: Question) -> AsyncIterator[bytes]:
        yield b"{}"

    api.streams = [line]
    fenced = FencedTransport(transport=api, check=refuse)
    assert (await KubeClient(transport=fenced).get(PODS, name="one", namespace="team")).metadata.name == "one"
    async with fenced.stream(Question(method="GET", path=PATH)) as lines:
        assert [line async for line in lines] == [b"{}"]


async def test_leader_is_asked_before_each_write(api: FakeApi) -> None:
    """Not once and for all."""
    asked: list[int] = []
    client = KubeClient(transport=FencedTransport(transport=api, check=lambda: asked.append(len(api.asked))))
    for _ in range(2):
        await client.patch(PODS, name="one", namespace="team", patch=merge_patch({"spec": {"nodeName": "n"}}))
    assert asked == [0, 1]
    assert api.objects[PATH]["spec"] == {"nodeName": "n"}
