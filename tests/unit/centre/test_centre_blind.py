"""Whoever does not know enough, or leads no more, decides nothing and writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from aliquot_core.objects import Pod
from aliquot_kube.errors import ForbiddenError
from aliquot_scheduler.centre.binder import NotReadyError
from support.large_cluster import NAMESPACE, pod_manifest
from support.reigning import Reigning, reigning, until
from support.server_apart import PODS

STALE = 150.0
LONG = STALE + 1.0
GATED = [{"name": "aliquot.dev/queue"}]


def grow_old(on: Reigning) -> None:
    """Nothing is heard of anything for longer than what is known may be old."""
    on.clock.ahead = LONG


def lose(on: Reigning) -> None:
    """Another leads."""
    on.leads = False


WAYS: dict[str, tuple[Callable[[Reigning], None], str]] = {
    "nothing was heard": (grow_old, "nothing was heard of nodes for 151 s"),
    "another leads": (lose, "this replica does not lead any more"),
}


@asynccontextmanager
async def at_work() -> AsyncIterator[tuple[Reigning, Pod]]:
    """A leader that could place the one pod there is on the one node there is."""
    async with reigning(stale=STALE) as on:
        on.join("n1")
        on.create(PODS, pod_manifest("a", compute=30, memory=1_000))
        await until(lambda: not on.reign.why_not() and not on.reign.picture.nodes["n1"].out)
        yield on, on.reign.pods[f"{NAMESPACE}/a"]


@pytest.mark.parametrize("way", WAYS)
async def test_kube_scheduler_is_told_so_at_each_call(way: str) -> None:
    """It asks again by itself; an answer from an old picture would be a promise that nobody keeps."""
    befalls, why = WAYS[way]
    async with at_work() as (on, pod):
        binder = on.reign.binder
        assert binder.filter(pod, ["n1"]).nodes == ["n1"]
        befalls(on)
        assert on.reign.why_not() == why
        for ask in (binder.filter, binder.prioritize, binder.prioritize_plain):
            with pytest.raises(NotReadyError, match=why):
                ask(pod, ["n1"])
        with pytest.raises(NotReadyError, match=why):
            await binder.bind(namespace=NAMESPACE, name="a", uid=pod.metadata.uid, node="n1")
        assert on.writes == {}


@pytest.mark.parametrize("way", WAYS)
async def test_nobody_is_let_through_until_it_is_known_again(way: str) -> None:
    """The gate is as much a decision as a binding is."""
    befalls, _ = WAYS[way]
    async with at_work() as (on, _):
        befalls(on)
        on.create(PODS, pod_manifest("b", compute=30, memory=1_000, schedulingGates=GATED))
        key = f"{NAMESPACE}/b"
        await until(lambda: key in on.reign.pods)
        for _ in range(500):
            await asyncio.sleep(0)
        assert key not in on.writes
        on.clock.ahead, on.leads = 0.0, True
        on.reign.gatekeeper.look()
        await until(lambda: on.writes.get(key) == ["PATCH pods"])


async def test_a_binding_that_waited_for_word_is_judged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leadership may go while the watch is waited for."""
    async with at_work() as (on, pod):
        binder, told = on.reign.binder, asyncio.Event()
        binder.filter(pod, ["n1"])
        monkeypatch.delitem(on.reign.desk.pods, pod.metadata.uid)
        asked = asyncio.ensure_future(
            binder.bind(namespace=NAMESPACE, name="a", uid=pod.metadata.uid, node="n1"),
        )
        asyncio.get_running_loop().call_soon(told.set)
        await told.wait()
        lose(on)
        on.reign.desk.pod_seen(pod)
        binder.told(pod)
        with pytest.raises(NotReadyError, match="does not lead any more"):
            await asked
        assert on.writes == {}


async def test_a_refused_write_says_why_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator's only other trace of it is the pod's own Event."""

    async def forbid(**_: object) -> None:
        raise ForbiddenError("no rights on pods/binding", where="api")

    async with at_work() as (on, pod):
        monkeypatch.setattr(on.reign.binder._client, "bind", forbid)
        on.reign.binder.filter(pod, ["n1"])
        why = await on.reign.binder.bind(namespace=NAMESPACE, name="a", uid=pod.metadata.uid, node="n1")
        (line,) = (each for each in caplog.records if each.getMessage() == "not bound")
        assert "no rights on pods/binding" in why
        assert (line.levelname, vars(line)["reason"]) == ("WARNING", why)
