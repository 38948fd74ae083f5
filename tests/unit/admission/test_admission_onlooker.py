"""For whom a slice may go by priority, as a replica sees it that can ask no leader."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from aliquot_core.objects import Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError, ServerTroubleError
from aliquot_kube.patches import merge_patch
from aliquot_kube.questions import Question, Response
from aliquot_kube.resources import PODS
from aliquot_scheduler.admission.onlooker import MOST_NAMESPACES, MOST_PODS, Onlooker, UnseenError
from aliquot_scheduler.admission.sparing import LEADERS_PART, PATIENCE
from aliquot_scheduler.extender.preempting import LABELLED
from aliquot_scheduler.extender.preemptors import NOMINATED_WITHIN, Preemptors
from aliquot_standalone.apiserver.direct import DirectTransport
from aliquot_standalone.apiserver.exchange import Request
from support.centre import NAMES, asks
from support.clocks import VirtualClock
from support.embedded_api import make_frontend

Json = dict[str, Any]
VICTIM = asks("slice", 30, 1_000, node="n1")
# Until somebody is refused, the rounds of reading included.
REFUSED = NOMINATED_WITHIN + 0.25
TROUBLE = ServerTroubleError("etcd has no leader", where="GET", status=500)


class Town:
    """An API server in the same process, and a replica that asks it; its troubles are the next answers."""

    def __init__(self) -> None:
        self.clock = VirtualClock(start=1_700_000_000.0)
        self._frontend = make_frontend()
        self._wire = DirectTransport(frontend=self._frontend, clock=self.clock)
        self.asked: list[Question] = []
        self.troubles: list[ApiError] = []
        self.takes = 0.0
        self.onlooker = Onlooker(transport=self, clock=self.clock, names=NAMES)
        self.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 9})
        self.namespace(NAMES.namespace)

    async def request(self, question: Question) -> Response:
        """As a transport does."""
        self.asked.append(question)
        if self.troubles:
            raise self.troubles.pop(0)
        if self.takes:
            await self.clock.sleep(self.takes)
        return await self._wire.request(question)

    def stream(self, question: Question) -> Any:
        """Nothing is followed."""
        raise AssertionError(question)

    def create(self, path: str, manifest: Json) -> None:
        """As an administrator does."""
        body, parts = msgspec.json.encode(manifest), tuple(path.strip("/").split("/"))
        request = Request(method="POST", path=parts, query={}, content_type="application/json", body=body)
        answer: Any = self._frontend.handle(request, now=self.clock.wall())
        assert answer.code == 201, answer.body

    def namespace(self, name: str, **labels: str) -> None:
        """One more."""
        self.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})

    def pod(self, namespace: str, name: str = "waits", *, kind: str = "high", **spec: Any) -> None:
        """A pod that has a higher priority than the victim."""
        wanted = {"containers": [{"name": "main", "image": "none"}], "priorityClassName": kind, **spec}
        self.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": name}, "spec": wanted})

    async def nominate(self, namespace: str, node: str, *, name: str = "waits") -> None:
        """As kube-scheduler does that has looked at it."""
        looked = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        patch = merge_patch({"status": {"nominatedNodeName": node or None, "conditions": [looked]}})
        client = KubeClient(transport=self._wire)
        await client.patch(PODS, namespace=namespace, name=name, patch=patch, subresource="status")

    async def told(self, *, after: float = REFUSED) -> str | None:
        """For whom the victim may go, in so much time."""
        # No two looks begin at one instant but in a test.
        await self.clock.advance(0.15)
        asking = asyncio.ensure_future(self.onlooker.one_for(VICTIM))
        await self.clock.advance(after)
        assert asking.done()
        found = asking.result()
        return found.key if found else None


async def test_nobody_waits_and_it_stays() -> None:
    """Whatever waits in a tenant's namespace, of the highest class too."""
    town = Town()
    town.namespace("exporters", **{NAMES.of("ways-round"): "allow"})
    for tenant in ("default", "exporters"):
        town.pod(tenant, kind="system-node-critical")
        await town.nominate(tenant, "n1")
    assert await town.told() is None


@pytest.mark.parametrize("where", ["kube-system", NAMES.namespace, "calico"])
async def test_it_goes_at_once_for_what_runs_the_cluster(where: str) -> None:
    """In the system's namespace, in ours, and in one that an operator has labelled; elsewhere nominated it stays."""
    town = Town()
    town.namespace("calico", **{NAMES.runs_the_cluster: LABELLED})
    town.pod(where)
    assert await town.told(after=0.0) == f"{where}/waits"
    await town.nominate(where, "n2")
    assert await town.told() is None
    await town.nominate(where, "n1")
    assert await town.told(after=0.2) == f"{where}/waits"


async def test_a_nomination_that_comes_a_moment_later_is_seen() -> None:
    """kube-scheduler writes it beside the eviction."""
    town = Town()
    town.pod("kube-system")
    await town.nominate("kube-system", "")
    asking = asyncio.ensure_future(town.onlooker.one_for(VICTIM))
    await town.clock.advance(NOMINATED_WITHIN - 0.1)
    await town.nominate("kube-system", "n1")
    await town.clock.advance(0.2)
    assert asking.done()
    assert asking.result() is not None


async def test_who_is_bound_or_gone_meanwhile_opens_nothing_any_more() -> None:
    """Of what was seen before nothing is left."""
    town = Town()
    town.pod("kube-system")
    assert await town.told(after=0.0) == "kube-system/waits"
    await KubeClient(transport=town).delete(PODS, namespace="kube-system", name="waits", grace_seconds=0)
    assert await town.told() is None


async def test_one_that_no_scheduler_looks_at_opens_nodes_for_a_minute_at_the_most() -> None:
    """Since it was seen first."""
    town = Town()
    town.pod("kube-system", schedulerName="nobody")
    assert await town.told(after=0.0) == "kube-system/waits"
    await town.clock.advance(59.0)
    assert await town.told(after=0.0) == "kube-system/waits"
    await town.clock.advance(2.0)
    assert await town.told() is None


async def test_a_hundred_who_ask_in_a_moment_ask_the_api_server_twice() -> None:
    """Once now and once after the nominations; each time for the few namespaces alone, and only who has no node."""
    town = Town()
    for number in range(3):
        town.pod("default", f"tenant-{number}")
    asking = [asyncio.ensure_future(town.onlooker.one_for(VICTIM)) for _ in range(100)]
    await town.clock.advance(REFUSED)
    assert [one.result() for one in asking] == [None] * 100
    each = ["/api/v1/namespaces", "/api/v1/namespaces/kube-system/pods", f"/api/v1/namespaces/{NAMES.namespace}/pods"]
    assert [one.path for one in town.asked] == each * 2
    chosen = [(one.query.get("labelSelector"), one.query.get("fieldSelector")) for one in town.asked]
    without_node = (None, "spec.nodeName=")
    assert chosen == [(f"{NAMES.runs_the_cluster}={LABELLED}", None), without_node, without_node] * 2


async def test_those_who_ask_one_after_another_share_looks_too() -> None:
    """So a kube-scheduler that evicts for hours asks for ten a second at the most."""
    town = Town()
    asking = []
    for _ in range(100):
        asking.append(asyncio.ensure_future(town.onlooker.one_for(VICTIM)))
        await town.clock.advance(0.01)
    await town.clock.advance(REFUSED)
    assert all(one.done() for one in asking)
    assert sum(one.path == "/api/v1/namespaces" for one in town.asked) <= 18


async def test_who_gives_up_leaves_the_look_to_the_next() -> None:
    """The API server waits for so long only."""
    town = Town()
    first = asyncio.ensure_future(town.onlooker.one_for(VICTIM))
    second = asyncio.ensure_future(town.onlooker.one_for(VICTIM))
    await asyncio.sleep(0)
    first.cancel()
    await town.clock.advance(REFUSED)
    assert (first.cancelled(), second.result()) == (True, None)


async def test_a_hiccup_of_the_api_server_is_passed_over() -> None:
    """It is asked a second time anyway; what it said before that counts for nothing."""
    town = Town()
    town.pod("kube-system")
    assert await town.told(after=0.0) == "kube-system/waits"
    await town.nominate("kube-system", "n2")
    town.troubles.append(TROUBLE)
    assert await town.told() is None


async def test_where_the_api_server_does_not_say_nobody_is_judged() -> None:
    """Though it did a moment ago, and says so again later."""
    town = Town()
    assert await town.told() is None
    town.troubles += [TROUBLE, TROUBLE]
    with pytest.raises(UnseenError, match="etcd has no leader"):
        await town.told()
    assert await town.told() is None


@pytest.mark.parametrize("more", [0, 1])
async def test_more_than_can_be_read_in_time_are_not_read(more: int) -> None:
    """It is said which; just as many are."""
    town = Town()
    for number in range(MOST_NAMESPACES + more):
        town.namespace(f"n{number}", **{NAMES.runs_the_cluster: LABELLED})
    if not more:
        assert await town.told() is None
        return
    with pytest.raises(UnseenError, match=f"more than {MOST_NAMESPACES} namespaces"):
        await town.told()


async def test_as_many_namespaces_as_are_read_are_judged_in_time_by_a_slow_api_server() -> None:
    """In what is left of the patience after a leader that hangs, at 100 ms a request."""
    town = Town()
    for number in range(MOST_NAMESPACES):
        town.namespace(f"n{number}", **{NAMES.runs_the_cluster: LABELLED})
    town.takes = 0.1
    assert await town.told(after=PATIENCE * (1 - LEADERS_PART)) is None
    assert len(town.asked) == 2 * (1 + MOST_NAMESPACES + 2)


async def test_more_pods_than_can_be_read_in_time_are_not_read() -> None:
    """Of the first page the others are not guessed."""
    town = Town()
    for number in range(MOST_PODS + 1):
        town.pod("kube-system", f"p{number}")
    with pytest.raises(UnseenError, match=f"more than {MOST_PODS} pods"):
        await town.told()


async def test_a_pod_that_trips_a_defect_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """For it nobody goes; for the next one, and where nobody waits, it is judged as ever."""
    seen = Preemptors.seen

    def trips(self: Preemptors, pod: Pod, *, labels: Mapping[str, str], now: float) -> None:
        if pod.metadata.name == "trips":
            raise KeyError(pod.key)
        seen(self, pod, labels=labels, now=now)

    monkeypatch.setattr(Preemptors, "seen", trips)
    town = Town()
    town.pod("kube-system", "trips")
    assert await town.told() is None
    town.pod("kube-system")
    assert await town.told(after=0.0) == "kube-system/waits"
