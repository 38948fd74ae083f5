"""How long calls take, what a sample tells, for what readiness waits, what pods on a sick GPU are told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from aliquot_agent.gpus.driver import driver_missing
from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.gpus.model import GpuUsage
from aliquot_agent.gpus.simulated import SimulatedDriver
from aliquot_agent.health.sick_notes import notes, turned
from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.pods.residents import ProcResidents
from aliquot_agent.starting.decision import Known
from aliquot_agent.starting.kubelet_view import Recorded
from aliquot_agent.status import Status
from aliquot_agent.web.accounts import Accounts, SliceUse
from aliquot_agent.web.call_times import PREFER, PRESTART, CallTimes
from aliquot_agent.web.figures import Sampled
from aliquot_agent.web.readiness import FRESH, Condition, page, waits_for
from aliquot_agent.web.usage_watch import UsageWatch
from aliquot_core.door import KubeletSeen, Prefer, PreStart
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Gpu, Health, Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.reflector import Freshness
from support.clocks import VirtualClock

NAMES = Names()
A, B = "GPU-a", "GPU-b"
BOTH = (NAMES.compute, NAMES.best_effort)


class SlowHandler:
    """Answers after so many seconds."""

    def __init__(self, *, clock: VirtualClock, seconds: float, refused: str | None = None) -> None:
        self._clock = clock
        self._seconds = seconds
        self._refused = refused

    async def may_start(self, _call: PreStart) -> str | None:
        """Yes or no, late."""
        await self._clock.sleep(self._seconds)
        return self._refused

    async def prefer(self, _call: Prefer) -> list[str]:
        """Nothing, late."""
        await self._clock.sleep(self._seconds)
        return []


class TestCallTimes:
    """Each call is counted once, by how it ended."""

    @pytest.mark.parametrize(("refused", "outcome"), [(None, "ready"), ("no", "refused")])
    async def test_an_answer_is_handed_on_and_counted(self, refused: str | None, outcome: str) -> None:
        """In the bucket of its time."""
        clock = VirtualClock()
        calls = CallTimes(SlowHandler(clock=clock, seconds=0.02, refused=refused), clock=clock)
        asking = asyncio.ensure_future(calls.may_start(PreStart(call=1, resource="r", ids=[])))
        await clock.advance(1)
        assert await asking == refused
        found = {key: one for key, one in calls.so_far().items() if sum(one.counts)}
        assert found.keys() == {(PRESTART, outcome)}
        assert found[PRESTART, outcome].counts[4] == 1
        assert found[PRESTART, outcome].seconds == pytest.approx(0.02)

    async def test_a_call_that_was_given_up_is_counted_as_dropped(self) -> None:
        """A start that is never answered must be seen somewhere."""
        clock = VirtualClock()
        calls = CallTimes(SlowHandler(clock=clock, seconds=99.0), clock=clock)
        asking = asyncio.ensure_future(
            calls.prefer(Prefer(call=1, resource="r", available=[], must_include=[], size=1))
        )
        await clock.advance(40)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert calls.so_far()[PREFER, "dropped"].counts[-1] == 1

    async def test_what_was_told_does_not_go_on_counting(self) -> None:
        """A thread may be reading it."""
        clock = VirtualClock()
        calls = CallTimes(SlowHandler(clock=clock, seconds=0.0), clock=clock)
        before = calls.so_far()
        asking = asyncio.ensure_future(calls.may_start(PreStart(call=1, resource="r", ids=[])))
        await clock.advance(1)
        await asking
        assert sum(before[PRESTART, "ready"].counts) == 0


async def test_usage_is_sampled_by_the_clock_and_survives_a_driver_that_fails() -> None:
    """What is not known is an empty sample, and the next one is taken all the same."""
    clock = VirtualClock()
    driver = SimulatedDriver(node="n1", models=[KNOWN_MODELS["L4"]], clock=clock)
    told: list[Sequence[GpuUsage]] = []
    beats: list[None] = []
    watch = UsageWatch(driver=driver, clock=clock, every=10.0, tell=told.append, beat=lambda: beats.append(None))
    running = asyncio.ensure_future(watch.run())
    await clock.advance(1)
    driver.refuse(driver_missing(library=True))
    await clock.advance(10)
    driver.refuse(None)
    driver.start_process(gpu=0, pid=7, memory_mib=100)
    await clock.advance(10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [len(usages) for usages in told] == [1, 0, 1]
    assert len(beats) == 3
    assert watch.sample.at == clock.wall() - 1
    assert [process.pid for process in watch.sample.usages[0].processes] == [7]


GOOD = Condition(
    at_door=True,
    kubelet=KubeletSeen(listening=[*BOTH], registrations=2),
    resources=BOTH,
    pods=Freshness(contact_age=1.0, list_age=1.0, failures=0, synced=True),
    driver=True,
    trouble="",
)


class TestReadiness:
    """Ready means that pods can start here."""

    def test_when_all_holds_nothing_is_missing(self) -> None:
        """And each thing that holds is named."""
        assert page(waits_for(GOOD)) == "ok endpoint\nok kubelet\nok pods\nok driver\n"

    @pytest.mark.parametrize(
        ("change", "what", "says"),
        [
            ({"at_door": False}, "endpoint", "has not let the agent in"),
            ({"kubelet": None}, "kubelet", "not known"),
            ({"kubelet": KubeletSeen(listening=[NAMES.compute], registrations=1)}, "kubelet", NAMES.best_effort),
            ({"pods": Freshness(contact_age=1.0, list_age=None, failures=0, synced=False)}, "pods", "not told all"),
            ({"pods": Freshness(contact_age=FRESH + 1, list_age=1.0, failures=3, synced=True)}, "pods", "181 s"),
            ({"driver": False}, "driver", "not asked yet"),
            ({"trouble": "NVML: version mismatch"}, "driver", "version mismatch"),
        ],
    )
    def test_what_is_missing_is_named(self, change: dict[str, object], what: str, says: str) -> None:
        """One thing, and no other."""
        found = waits_for(msgspec.structs.replace(GOOD, **change))
        assert {name for name, missing in found.items() if missing} == {what}
        assert says in page(found)


def on(uuid: str, health: Health, reason: str = "") -> Gpu:
    """A GPU."""
    return Gpu(uuid=uuid, index=0, model="A100", memory=1000, health=health, reason=reason)


def holder(uid: str, gpu: str) -> Pod:
    """A pod that was granted a slice."""
    part = Slice(gpu=gpu, compute=Percent(10), limit=Percent(10), memory=MiB(10))
    grant = Grant(node="n1", pod=uid, containers={"main": ContainerGrant(slices=(part,), isolation="observe")})
    metadata = {"name": uid, "namespace": "team", "uid": uid, "annotations": {NAMES.grant: encode_grant(grant)}}
    container = {"name": "main", "resources": {"limits": {NAMES.compute: "10", NAMES.memory: "10"}}}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n1", "containers": [container]}}, Pod)


class TestSickNotes:
    """Whoever is on a GPU is told how it is, once."""

    def test_only_those_on_the_gpu_are_told(self) -> None:
        """With what is wrong, and what that means for them."""
        pods = {uid: holder(uid, gpu) for uid, gpu in (("u1", A), ("u2", B))}
        recorded = tuple(
            Recorded(uid=uid, container="main", resource=NAMES.compute, ids=frozenset({uid}), names=()) for uid in pods
        )
        inventory = Inventory(gpus=(on(A, Health.SICK, "XID 79: it fell off the bus"), on(B, Health.HEALTHY)))
        known = Known(node="n1", names=NAMES, inventory=inventory, pods=pods, recorded=recorded)
        found = notes(turned({}, inventory), known=known)
        assert [(note.pod.metadata.name, note.reason) for note in found] == [("u1", "GpuSick")]
        assert found[0].text.startswith(f"GPU {A} is sick: XID 79: it fell off the bus; containers are not started")

    def test_a_change_is_news_and_health_from_the_start_is_none(self) -> None:
        """After a restart the sick are told again, the well are not."""
        now = Inventory(gpus=(on(A, Health.SICK), on(B, Health.HEALTHY)))
        assert turned({}, now) == {A: Health.SICK}
        assert turned({A: Health.SICK, B: Health.DEGRADED}, now) == {B: Health.HEALTHY}
        assert turned({A: Health.SICK, B: Health.HEALTHY}, now) == {}


def test_each_sample_is_handed_on_once_and_only_where_it_is_known_whose_it_is() -> None:
    """To all who judge by samples, the ladder with who fills the disk; one counted twice would be two that agree."""
    paced: list[Sequence[SliceUse]] = []
    laddered: list[tuple[Sequence[SliceUse], object]] = []
    filling = Owner(pod="u", container="c")
    strange: list[Sequence[tuple[int, str, str]]] = []
    limited: list[tuple[object, ...]] = []
    node: Any = SimpleNamespace(
        over_use=SimpleNamespace(hear=lambda slices, *, filling: laddered.append((slices, filling))),
        trespassers=SimpleNamespace(hear=strange.append),
        live_limits=SimpleNamespace(hear=lambda slices, *, usages, facts: limited.append((slices, usages, facts))),
        gpus=SimpleNamespace(cards=SimpleNamespace(gpus={A: "facts"})),
    )

    def heard(slices: Sequence[SliceUse]) -> list[Owner]:
        paced.append(slices)
        return [filling] * len(paced)

    status = Status(node=node, register=ProcResidents(), names=NAMES, clock=VirtualClock(), version="1", heard=heard)
    one = SliceUse(namespace="t", pod="p", uid="u", container="c", gpu=A, compute=1, limit=1, memory_mib=1)
    usages = {A: GpuUsage(uuid=A, memory_used_mib=7)}
    found = Accounts(slices=(one,), trespassers=((1, "u", A),))
    known = Sampled(at=1.0, accounts=found, claims={}, usages=usages)
    for sampled in (Sampled(at=0.5), known, known, msgspec.structs.replace(known, at=2.0, accounts=Accounts())):
        status._hear(sampled)
    assert paced == [(one,), ()]
    assert laddered == [((one,), [filling]), ((), [filling] * 2)]
    assert strange == [((1, "u", A),), ()]
    assert limited == [((one,), usages, {A: "facts"}), ((), usages, {A: "facts"})]
