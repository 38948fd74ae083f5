"""What this version writes is read by an earlier one: as in a rollback, or by its replicas and agents in an upgrade.

What the earlier one is: tests/support/earlier/README.md. Processes of both are beside each other in
tests/node/test_two_versions.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot_core.claims import Claim
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Gpu, Health, Instance, Inventory, encode_inventory
from aliquot_core.patterns import Patterns
from aliquot_core.quantities import MiB, Percent
from aliquot_scheduler.in_force import InForce, encode_in_force
from aliquot_scheduler.queues.room.recalling import words_for
from aliquot_scheduler.queues.room.refuges import Moved, Refuge
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import HostLimits, ModelQuota, Preemption, QueueSpec, Quota
from aliquot_scheduler.queues.telling.status import Amounts, QueueStatus
from aliquot_scheduler.worth.mix import Shape
from aliquot_scheduler.worth.page import Page, encode_page
from support.centre import NAMES
from support.earlier_versions import ARCHIVES, understood, unpacked
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

MODEL = "NVIDIA A100"
ROOT = Path(__file__).parents[3]
THIS = [ROOT / folder for folder in ("core", "kube", "scheduler", "cli", "agent", "deviceplugin", "standalone")]


def _grant() -> str:
    parts = (
        Slice(gpu="GPU-a", compute=Percent(100), limit=Percent(100), memory=MiB(80_000)),
        Slice(gpu="GPU-b", compute=Percent(30), limit=Percent(60), memory=MiB(1_000)),
    )
    held = {"main": ContainerGrant(slices=parts, isolation="mps"), "side": ContainerGrant(slices=parts[1:])}
    return encode_grant(Grant(node="n1", pod="uid-1", containers=held))


def _inventory() -> str:
    cut = Instance(parent="GPU-c", gpu_instance=1, compute_instance=2, compute=42)
    gpus = (
        Gpu(
            uuid="GPU-a",
            index=0,
            model=MODEL,
            memory=80_000,
            health=Health.DEGRADED,
            reason="ECC",
            failing=True,
        ),
        Gpu(
            uuid="MIG-b",
            index=1,
            model=MODEL,
            memory=20_000,
            capability="8.0",
            pci="0000:01:00.0",
            minor=3,
            numa=1,
            instance=cut,
            links={"GPU-a": "NV12"},
            isolation=["observe", "mps"],
            isolation_lack="no daemon",
            context=500,
        ),
        Gpu(uuid="GPU-c", index=2, model=MODEL, memory=80_000, mig=True, health=Health.SICK),
    )
    return encode_inventory(Inventory(driver="580", cuda="13", gpus=gpus, problem="one is sick"))


def _room() -> str:
    """For a group of two, for whom one is moved."""
    stage = ReclaimStage({"red": queue(guarantee=200), "blue": queue()})
    for number in range(4):
        stage.submit(f"b{number}", 100, queue="blue")
    stage.run()
    for number in range(2):
        stage.submit(f"r{number}", 100, queue="red", group="g", notes={"group-size": "2"})
    (clearing,) = stage.decide()
    moved = Moved(uid="u", namespace="team", owner="job", user="team", queue="blue", asks="x", host=(1_000, 2**30))
    claim = Claim(compute=Percent(50), memory=MiB(1_000), closes=False)
    refuge = Refuge(moved=moved, node="n0", claims={"GPU-n0-1": claim}, until=9.0, gpus=("GPU-n0-1",), whose="r0")
    return words_for(clearing, clearing.places[0], refuges=[refuge])


def _queue() -> str:
    quota = Quota(guarantee=100, limit=300, weight=2, lending_limit=50, borrowing_limit=90)
    spec = QueueSpec(
        parent="org",
        compute=quota,
        memory=quota,
        models={"*H100*": ModelQuota(compute=quota, memory=quota)},
        hosts=HostLimits(cpu="8", memory="64Gi"),
        priority=3,
        stop="hold",
        namespaces=("team-*",),
        autoscale=True,
        autoscale_minutes=20,
        preemption=Preemption(within_queue="AnyUser", reclaim="Never", min_run_seconds=60),
        over_use="warn",
    )
    return msgspec.json.encode(spec).decode()


def _status() -> str:
    amounts = Amounts(compute=30, memory=1_000)
    status = QueueStatus(
        used=amounts,
        borrowed=amounts,
        fair_share=amounts,
        asked=amounts,
        waiting=4,
        lately=amounts,
        users={"team": amounts},
        problems=("too much",),
        at="2026-11-23T10:00:00Z",
    )
    return msgspec.json.encode(status).decode()


def _mix() -> str:
    shape = Shape(cores=2.0, compute=30, memory=20, gpus=1, models=Patterns(allowed=("*A100*",)))
    return encode_page(Page(counts=[(shape, 12.5)], requests=40, until="2026-11-23T10:00:00Z"))


WRITTEN = {
    "grant": _grant,
    "inventory": _inventory,
    "room": _room,
    "mix": _mix,
    "queue": _queue,
    "queue's status": _status,
}


# What has come since each version, and it passes over: whoever adds something says here what that does to such a one.
SINCE = {
    "2026-11-22": {
        # To it one that fails is degraded, as one that is hot.
        "inventory/gpus/failing",
        # Whoever comes in the place of one that was moved finds a place by its turn.
        "room/refuges",
    }
}


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.parent.name)
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """What says how a version reads, and where its packages lie."""
    return request.param.with_name("reader.py"), unpacked(request.param, tmp_path_factory.mktemp("earlier"))


def test_an_earlier_version_understands_all_that_it_knew(earlier: tuple[Path, list[Path]]) -> None:
    """And passes over what has come since: what it does understand means to it what it means to us."""
    reader, code = earlier
    texts = {kind: write() for kind, write in WRITTEN.items()}
    then, now = understood(texts, reader=reader, code=code), understood(texts, reader=reader, code=THIS)
    assert then.keys() == WRITTEN.keys()
    for kind in WRITTEN:
        assert then[kind] is not None, kind
        assert differences(then[kind], now[kind]) == [], kind
    assert {each for kind in WRITTEN for each in passed_over(then[kind], now[kind], kind)} == SINCE[reader.parent.name]


def test_names_stay(earlier: tuple[Path, list[Path]]) -> None:
    """Under which the earlier version reads and writes: annotations, labels, resources, the gate, objects of ours."""
    reader, code = earlier
    then, now = (understood({"names": ""}, reader=reader, code=of)["names"] for of in (code, THIS))
    assert then["grant"] == NAMES.grant
    assert differences(then, now) == []


def test_the_leader_s_settings_are_not_half_understood(earlier: tuple[Path, list[Path]]) -> None:
    """With one that it does not know the earlier version explains by its own settings, as if none were told."""
    reader, code = earlier
    text = {"settings in force": encode_in_force(InForce(queues=QueueSettings()))}
    then, now = understood(text, reader=reader, code=code), understood(text, reader=reader, code=THIS)
    assert then in ({"settings in force": None}, now)


def differences(then: Any, now: Any, where: str = "") -> list[str]:
    """Where what the earlier version has understood is anything else than what we mean."""
    if isinstance(then, dict) and isinstance(now, dict):
        return [each for key in then for each in differences(then[key], now.get(key), f"{where}/{key}")]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        return [each for at, (one, other) in pairs for each in differences(one, other, f"{where}/{at}")]
    return [] if then == now else [f"{where}: {then!r}, {now!r}"]


def passed_over(then: Any, now: Any, where: str) -> list[str]:
    """What we mean beyond what the earlier version has understood."""
    if isinstance(now, dict):
        then = then if isinstance(then, dict) else {}
        more = [f"{where}/{key}" for key in now if key not in then]
        return more + [each for key in then for each in passed_over(then[key], now.get(key), f"{where}/{key}")]
    if isinstance(now, list) and isinstance(then, list):
        return [each for one, other in zip(then, now, strict=True) for each in passed_over(one, other, where)]
    return []
