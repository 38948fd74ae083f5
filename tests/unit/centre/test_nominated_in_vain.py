"""Who waits for pods with slices that kube-scheduler may not evict is told so, once, where the webhook refuses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Deleted, Modified
from aliquot_scheduler.centre import nominated_in_vain
from aliquot_scheduler.centre.nominated_in_vain import NominatedInVain, why_it_waits
from aliquot_scheduler.queues.telling.notices import Notice
from support.centre import NAMES, asks, make_pod
from support.centre_means import means
from support.clocks import VirtualClock
from support.fake_api import FakeApi
from support.large_cluster import NAMESPACE, pod_manifest
from support.loops import running
from support.reigning import reigning, until
from support.server_apart import PODS


def pod(made: Pod, *, namespace: str = "team", priority: int = 0, nominated: str = "", **meta: Any) -> Pod:
    """As this one's, of such a priority, nominated where that is said."""
    replace = msgspec.structs.replace
    return replace(
        made,
        metadata=replace(made.metadata, namespace=namespace, **meta),
        spec=replace(made.spec, priority=priority),
        status=replace(made.status, nominated_node_name=nominated),
    )


def lying(made: Pod, *, node: str = "n1", phase: str = "Running", **said: Any) -> Pod:
    """The same, on a node."""
    replace, there = msgspec.structs.replace, pod(made, **said)
    return replace(there, spec=replace(there.spec, node_name=node), status=replace(there.status, phase=phase))


def plain(name: str) -> Pod:
    """One without slices."""
    return make_pod(name, {"name": "main"})


WAITS = pod(plain("waits"), priority=100, nominated="n1")
SLICE = asks("slice", 30, 1_000)
KEPT, MINE = lying(SLICE, namespace="other"), lying(asks("mine", 30, 1_000))
LEAVING = "2026-11-23T10:00:00Z"

# Who waits, who is there beside it, and whether it is told.
SCENES: dict[str, tuple[Pod, list[Pod], bool]] = {
    "for one with slices": (WAITS, [KEPT], True),
    "for one without, who goes": (WAITS, [lying(plain("web"))], False),
    "for one that goes already": (WAITS, [KEPT, lying(plain("web"), deletion_timestamp=LEAVING)], False),
    "for one of the same priority, who never goes": (WAITS, [lying(SLICE, priority=100)], False),
    "on a node where nobody is": (WAITS, [lying(SLICE, node="n2")], False),
    "for one that has ended": (WAITS, [lying(SLICE, phase="Succeeded")], False),
    "for CPU alone, nominated nowhere": (pod(plain("waits"), priority=100), [KEPT], False),
    "with slices itself: its queue says why": (
        pod(asks("wants", 30, 1_000), priority=100, nominated="n1"),
        [KEPT],
        False,
    ),
    "for one that goes for it, as it runs the cluster": (
        pod(plain("waits"), namespace="kube-system", priority=100, nominated="n1"),
        [KEPT],
        False,
    ),
    "for one that goes for it, as an operator has labelled its namespace": (
        pod(plain("waits"), namespace="calico", priority=100, nominated="n1"),
        [KEPT],
        False,
    ),
    "no more: it is bound": (lying(plain("waits"), priority=100, nominated="n1"), [KEPT], False),
}

LABELS = {"calico": {NAMES.runs_the_cluster: "true"}}


class Stage:
    """Knows these pods, and writes down what it is told."""

    def __init__(self, *there: Pod, why_not: str = "") -> None:
        self.told: list[tuple[str, Notice]] = []
        self.clock = VirtualClock()
        self.pods = {one.metadata.uid: one for one in there}
        given = msgspec.structs.replace(means(FakeApi(), clock=self.clock, why_not=lambda: why_not), events=self)
        self.teller = NominatedInVain(means=given, pods=lambda: self.pods, labels_of=lambda name: LABELS.get(name, {}))
        for one in there:
            self.teller.pod_changed(Added(new=one))

    def tell(self, pod: Pod, notice: Notice, *, action: str, warning: bool = False) -> None:
        """An Event."""
        assert action
        assert warning
        self.told.append((pod.metadata.uid, notice))

    def changes(self, old: Pod, new: Pod) -> None:
        """The watch tells."""
        self.pods[new.metadata.uid] = new
        self.teller.pod_changed(Modified(old=old, new=new))

    async def after(self, seconds: float) -> list[str]:
        """Who has been told by then."""
        async with running(self.teller.run()):
            await self.clock.advance(seconds)
        return [uid for uid, _ in self.told]


@pytest.mark.parametrize("row", SCENES)
async def test_who_waits_for_slices_that_stay_is_told(row: str) -> None:
    """And nobody else is."""
    waits, others, is_told = SCENES[row]
    assert await Stage(waits, *others).after(15.0) == ([waits.metadata.uid] if is_told else [])


async def test_one_that_can_not_be_told_costs_nobody_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted, stands in the log once, and is told when it can be."""
    defect = pod(plain("defect"), priority=200, nominated="n1")
    healed: list[bool] = []

    def as_well_as_it_can(one: Pod, there: Sequence[Pod], *, names: Names) -> Notice | None:
        if one.metadata.uid == "defect" and not healed:
            raise KeyError("a defect of ours")
        return why_it_waits(one, there, names=names)

    monkeypatch.setattr(nominated_in_vain, "why_it_waits", as_well_as_it_can)
    stage = Stage(defect, WAITS, KEPT)
    assert await stage.after(30.0) == ["waits"]
    assert stage.teller.untold > 1
    (said,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert (said.message, vars(said)["of"]) == ("a pod could not be told for whom it waits", defect.key)
    healed.append(True)
    assert await stage.after(300.0) == ["waits", "defect"]


async def test_it_is_told_how_many_and_which_are_its_owner_s() -> None:
    """Names of other tenants' pods it is not told."""
    stage = Stage(WAITS, KEPT, MINE)
    await stage.after(15.0)
    ((_, notice),) = stage.told
    assert notice.reason == "NobodyEvicted"
    assert "node n1" in notice.message
    assert "2 pods with slices there (of its own namespace: pod-mine)" in notice.message
    assert "pod-slice" not in notice.message


async def test_it_is_told_once_of_each_node() -> None:
    """kube-scheduler looks again and again, and drops its nomination meanwhile."""
    stage = Stage(WAITS, KEPT, lying(asks("far", 30, 1_000), node="n2"))
    await stage.after(15.0)
    dropped, elsewhere = pod(WAITS, priority=100), pod(WAITS, priority=100, nominated="n2")
    stage.changes(WAITS, dropped)
    stage.changes(dropped, WAITS)
    assert await stage.after(15.0) == ["waits"]
    stage.changes(WAITS, elsewhere)
    assert await stage.after(8.0) == ["waits"]
    assert await stage.after(15.0) == ["waits", "waits"]
    assert "node n2" in stage.told[1][1].message


async def test_nobody_is_told_of_a_moment() -> None:
    """Who goes for it is on the way out soon; and who is gone, or made anew, begins anew."""
    stage = Stage(WAITS, KEPT)
    assert await stage.after(8.0) == []
    stage.changes(WAITS, pod(WAITS, priority=100, nominated="n1", uid="anew"))
    assert await stage.after(8.0) == []
    stage.teller.pod_changed(Deleted(old=pod(WAITS, uid="anew")))
    assert await stage.after(30.0) == []


async def test_who_knows_too_little_tells_nobody() -> None:
    """Of what is old nothing is said."""
    assert await Stage(WAITS, KEPT, why_not="nothing was heard of pods for 151 s").after(30.0) == []


@pytest.mark.timeout(30)
async def test_a_leader_tells_where_evictions_are_denied() -> None:
    """By the setting that goes with the chart's `evictionByPriority: Deny`."""
    async with reigning(evictions_denied=True) as town:
        town.join("n0", cards=1)
        town.create(PODS, pod_manifest("slice", compute=30, memory=1_000))
        await until(lambda: "n0" in town.reign.picture.nodes and not town.reign.why_not())
        assert await town.place("slice") == "n0"
        town.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 9})
        spec = {"containers": [{"name": "main", "image": "none"}], "priorityClassName": "high"}
        town.create(PODS, {"metadata": {"name": "waits"}, "spec": spec})
        await town.nominate("waits", node="n0")
        told = town.reign.clerks.in_vain
        assert told is not None
        assert told.run in town.reign.clerks.works().values()
        await until(lambda: bool(told._nominated))
        town.clock.ahead += 11.0
        told.look()
        await until(lambda: any("POST events" in writes for writes in town.writes.values()))


@pytest.mark.timeout(30)
async def test_a_namespace_s_label_counts_from_then_on() -> None:
    """And no longer than it stands: for whoever is nominated in such a namespace others go."""
    async with reigning(evictions_denied=True) as town:
        town.create(PODS, {"metadata": {"name": "waits"}, "spec": {"containers": [{"name": "main", "image": "none"}]}})
        await until(lambda: not town.reign.why_not())
        await town.nominate("waits", node="n0")
        told = town.reign.clerks.in_vain
        assert told is not None
        await until(lambda: bool(told._nominated))
        await town.label_namespace(NAMESPACE, {NAMES.runs_the_cluster: "true"})
        await until(lambda: not told._nominated)
        await town.label_namespace(NAMESPACE, {NAMES.runs_the_cluster: None})
        await until(lambda: bool(told._nominated))


@pytest.mark.timeout(30)
async def test_elsewhere_nobody_is_told() -> None:
    """Whom kube-scheduler chooses goes there."""
    async with reigning() as town:
        assert town.reign.clerks.in_vain is None
