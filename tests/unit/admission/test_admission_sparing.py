"""What is said to a kube-scheduler that sends somebody away by priority."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from aliquot_core.objects import Pod
from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.onlooker import UnseenError
from aliquot_scheduler.admission.review import LONGEST_LOGGED, MalformedReviewError
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.sparing import (
    LEADERS_PART,
    MOST_PASSED_ON,
    NOBODY_GOES,
    PATIENCE,
    SPARE,
    Spared,
    Sparing,
)
from aliquot_scheduler.centre.binder import NotReadyError
from aliquot_scheduler.extender.forwarding import LeadersAnswer, NotSentError
from aliquot_scheduler.extender.preemptors import NOMINATED_WITHIN
from aliquot_standalone.installed import as_installed
from support import admitting
from support.centre import NAMES, make_pod

SLICE = {"name": "main", "resources": {"limits": {NAMES.compute: "30"}}}


def review(operation: str, container: dict[str, Any]) -> bytes:
    """As the API server asks; of a deletion there is nothing new, and of empty fields it sends nulls."""
    pod = {"metadata": {"name": "p", "namespace": "team", "labels": None}, "spec": {"containers": [container]}}
    asked: dict[str, Any] = {
        "uid": "u",
        "operation": operation,
        "userInfo": {"username": "system:kube-scheduler"},
        "oldObject": pod,
    }
    asked["object"] = None if operation == "DELETE" else pod
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()


DNS = make_pod("dns", {"name": "main"})
UNREACHABLE = NotSentError("the leader can't be reached", where=SPARE)
BLIND = NotReadyError("nothing was heard of pods for 151 s", where="centre")


class Leading:
    """Stands for a leader's knowledge, the way to the leader and a look of one's own; all note what they were asked."""

    def __init__(
        self,
        *,
        leads: bool = True,
        known: Pod | Exception | None = None,
        passed: Any = None,
        seen: Pod | Exception | None = None,
    ) -> None:
        self.leads, self.known, self.passed, self.seen = leads, known, passed, seen
        self.asked: list[str] = []

    async def one_for(self, victim: Pod) -> Pod | None:
        """Answer, or fail."""
        self.asked.append(f"here: {victim.metadata.name}")
        if isinstance(self.known, Exception):
            raise self.known
        return self.known

    async def one_seen(self, victim: Pod) -> Pod | None:
        """What the API server says, or that it does not."""
        self.asked.append(f"looked: {victim.metadata.name}")
        if isinstance(self.seen, Exception):
            raise self.seen
        return self.seen

    async def forward(self, path: str, body: bytes) -> LeadersAnswer | None:
        """Pass on; an answer is made of the status and the body that were given."""
        self.asked.append(f"leader: {path}")
        assert json.loads(body)["request"]["uid"] == "u"
        if isinstance(self.passed, Exception):
            raise self.passed
        if self.passed is None:
            return None
        status, said = self.passed
        return LeadersAnswer(status=status, body=said, content_type="application/json")

    def sparing(self) -> Sparing:
        """That asks it."""
        return Sparing(
            names=NAMES,
            leads=lambda: self.leads,
            one_for=self.one_for,
            one_seen=self.one_seen,
            forward=self.forward,
        )


def said(spared: Spared) -> dict[str, Any]:
    """What the API server reads."""
    response: dict[str, Any] = json.loads(spared.answer)["response"]
    assert response["uid"] == "u"
    return response


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
async def test_whoever_has_slices_is_said_not_to_be_there(operation: str) -> None:
    """Of any other refusal kube-scheduler tries again at once, for ever."""
    spared = await Leading().sparing().answer(review(operation, SLICE))
    response = said(spared)
    assert response["allowed"] is False
    assert response["status"] == {"status": "Failure", "code": 404, "reason": "NotFound", "message": NOBODY_GOES}
    assert spared.judged


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
async def test_whoever_has_none_goes(operation: str) -> None:
    """As ever, and nobody is asked."""
    leading = Leading(leads=False)
    assert said(await leading.sparing().answer(review(operation, {"name": "main"})))["allowed"] is True
    assert leading.asked == []


async def test_what_a_later_api_server_says_beside_is_passed_over() -> None:
    """Of the review, of who asks and of the pod."""
    asked, more = json.loads(review("DELETE", SLICE)), {"later": {"more": [1]}}
    asked["request"] |= more
    for part in ("userInfo", "oldObject"):
        asked["request"][part] |= more
    sparing = Leading().sparing()
    assert await sparing.answer(json.dumps(asked | more).encode()) == await sparing.answer(review("DELETE", SLICE))


async def test_for_what_runs_the_cluster_he_goes(caplog: pytest.LogCaptureFixture) -> None:
    """And it is told for whom."""
    with caplog.at_level(logging.INFO):
        spared = await Leading(known=DNS).sparing().answer(review("DELETE", SLICE))
    assert (said(spared)["allowed"], spared.judged) == (True, True)
    (line,) = caplog.records
    assert (line.message, vars(line)["pod"], vars(line)["for"]) == (
        *("goes for a pod that runs the cluster", "team/p", "team/pod-dns"),
    )


REFUSES = json.dumps({"response": {"uid": "u", "allowed": False}}).encode()
ALLOWS = json.dumps({"response": {"uid": "u", "allowed": True}}).encode()
UNSEEN = UnseenError("who waits could not be read: etcd has no leader", where="admission", remedy="see why")
LEADER, HERE, LOOKED = "leader: /spare", "here: p", "looked: p"
# Who is asked, by whom, and what comes of it: whether it goes, whether that was judged, and whom that asked.
ASKED: dict[str, tuple[Leading, str, bool, bool, list[str]]] = {
    "the leader, by a follower": (Leading(), "follower", False, True, [HERE]),
    "a follower; the leader refuses": (Leading(leads=False, passed=(200, REFUSES)), "", False, True, [LEADER]),
    "a follower; the leader allows": (Leading(leads=False, passed=(200, ALLOWS)), "", True, True, [LEADER]),
    "a follower that has become the leader": (Leading(leads=False), "", False, True, [LEADER, HERE]),
    **{
        f"{who}; {what}": (Leading(leads=False, passed=passed, seen=seen), hop, goes, judged, [*asked, LOOKED])
        for who, hop, passed, asked in (
            ("a follower, and nobody answers", "", UNREACHABLE, [LEADER]),
            ("a follower, and the leader is crowded", "", (503, REFUSES), [LEADER]),
            ("a follower, and the leader says nonsense", "", (200, b"{}"), [LEADER]),
            ("a follower that another asks", "another", (200, REFUSES), []),
        )
        for what, seen, goes, judged in (
            ("nobody waits", None, False, True),
            ("one waits", DNS, True, True),
            ("the API server does not say", UNSEEN, True, False),
        )
    },
    "the leader knows nothing; nobody waits": (Leading(known=BLIND), "", False, True, [HERE, LOOKED]),
    "the leader knows nothing; one waits": (Leading(known=BLIND, seen=DNS), "", True, True, [HERE, LOOKED]),
    "the leader knows nothing, nor is it said": (Leading(known=BLIND, seen=UNSEEN), "", True, False, [HERE, LOOKED]),
}


@pytest.mark.parametrize("row", ASKED)
async def test_who_can_t_be_judged_goes(row: str) -> None:
    """Neither by a leader nor by the API server: that is said, and is as if nobody were there.

    What was passed on is not passed on again.
    """
    leading, hop, goes, judged, asked = ASKED[row]
    leading.asked.clear()
    spared = await leading.sparing().answer(review("UPDATE", SLICE), hop=hop)
    assert (said(spared)["allowed"], spared.judged, leading.asked) == (goes, judged, asked)


async def test_that_no_leader_is_heard_is_logged_once_a_change(caplog: pytest.LogCaptureFixture) -> None:
    """However many ask meanwhile; and again when it was heard in between, or for another reason."""
    leading = Leading(leads=False)
    sparing = leading.sparing()
    with caplog.at_level(logging.INFO):
        for passed in (UNREACHABLE, UNREACHABLE, (200, REFUSES), UNREACHABLE, (503, REFUSES), (503, REFUSES)):
            leading.passed = passed
            await sparing.answer(review("DELETE", SLICE))
    told = [line.message for line in caplog.records if "without the leader" in line.message]
    assert [line.partition(": ")[2].partition("; ")[0] for line in told] == [
        *("/spare: the leader can't be reached",) * 2,
        "/spare: the leader answered with 503",
    ]


async def hangs(*_: object) -> Any:
    """Never answers."""
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("leads", [True, False])
async def test_a_leader_that_hangs_is_waited_for_half_the_time(leads: bool) -> None:
    """Here or elsewhere; so there is some left to look."""
    leading = Leading(leads=leads, seen=DNS)
    sparing = Sparing(
        names=NAMES,
        leads=lambda: leads,
        one_for=hangs,
        one_seen=leading.one_seen,
        forward=hangs,
        patience=0.02,
    )
    spared = await sparing.answer(review("DELETE", SLICE))
    assert (said(spared)["allowed"], spared.judged, leading.asked) == (True, True, [LOOKED])


async def test_who_hangs_is_not_waited_for_longer_than_the_api_server_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else nobody would be told why the victim went."""
    sparing = Sparing(names=NAMES, leads=lambda: False, one_for=hangs, one_seen=hangs, forward=hangs, patience=0.02)
    spared = await sparing.answer(review("DELETE", SLICE))
    assert (said(spared)["allowed"], spared.judged) == (True, False)
    assert "evicted by priority unjudged: no answer within" in caplog.records[-1].message


def test_the_api_server_waits_for_longer_than_we_do() -> None:
    """By what is installed; and who looks has time for it, and for what comes with it."""
    (webhook,) = (
        webhook
        for one in as_installed()
        for webhook in one.get("webhooks", ())
        if webhook["clientConfig"]["service"]["path"] == SPARE
    )
    assert webhook["timeoutSeconds"] > PATIENCE
    assert PATIENCE * (1 - LEADERS_PART) > 2 * NOMINATED_WITHIN


async def test_what_no_api_server_sends_is_told_apart() -> None:
    """Whoever sends it reads why."""
    with pytest.raises(MalformedReviewError):
        await Leading().sparing().answer(review("CREATE", SLICE))


async def test_whatever_names_he_gives_a_caller_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """The port asks for no certificate, and a body may be of 3 MiB."""
    long = "x" * 100_000
    asked = json.loads(review("DELETE", SLICE))
    asked["request"]["oldObject"] |= {"metadata": {"name": long}, "spec": {"nodeName": long, "containers": [SLICE]}}
    asked["request"]["userInfo"]["username"] = long
    wrong = admitting.written(admitting.container(long, compute="0"), notes={"placement": long})
    wrong["metadata"]["name"] = long
    admission = Admission(names=NAMES, settings=AdmissionSettings())
    with caplog.at_level(logging.INFO):
        await Leading().sparing().answer(json.dumps(asked).encode())
        admission.mutating(admitting.review(wrong, user=long))
        await admission.validating(admitting.review(wrong, user=long))
    kept, *refused = caplog.records
    assert [kept.message, *(line.message for line in refused)] == [
        *("kept from eviction by priority", "pod refused", "pod refused")
    ]
    texts = [vars(line)[name] for line in caplog.records for name in ("pod", "user")] + [vars(kept)["node"]]
    texts += [text for line in refused for text in vars(line)["problems"]]
    assert {len(text) > LONGEST_LOGGED + 1 for text in texts} == {False}


async def test_strangers_hold_few_of_the_connections_to_the_leader() -> None:
    """Each holds one for as long as the leader waits; who finds no place looks itself, and those behind do again."""
    leading, under_way, heard = Leading(leads=False), asyncio.Semaphore(0), asyncio.Event()
    passed_on = 0

    async def forward(_path: str, _body: bytes) -> LeadersAnswer | None:
        nonlocal passed_on
        passed_on += 1
        under_way.release()
        await heard.wait()
        raise UNREACHABLE

    sparing = Sparing(
        names=NAMES,
        leads=lambda: False,
        one_for=leading.one_for,
        one_seen=leading.one_seen,
        forward=forward,
        patience=60.0,
    )
    asking = [asyncio.create_task(sparing.answer(review("DELETE", SLICE))) for _ in range(MOST_PASSED_ON)]
    for _ in asking:
        await under_way.acquire()
    assert said(await sparing.answer(review("DELETE", SLICE)))["allowed"] is False
    assert (passed_on, leading.asked) == (MOST_PASSED_ON, ["looked: p"])
    heard.set()
    await asyncio.gather(*asking)
    await sparing.answer(review("DELETE", SLICE))
    assert passed_on == MOST_PASSED_ON + 1


async def test_a_defect_of_the_leader_s_is_followed_by_a_look() -> None:
    """As where nobody leads: else the API server is answered with an error, and the victim goes uncounted."""
    leading = Leading(known=KeyError("defect"))
    spared = await leading.sparing().answer(review("DELETE", SLICE))
    assert (said(spared)["allowed"], spared.judged) == (False, True)
    assert leading.asked == ["here: p", "looked: p"]


async def test_a_defect_of_the_look_is_counted_as_unjudged() -> None:
    """It is let go as the API server would, and the alert tells of it."""
    spared = await Leading(known=BLIND, seen=KeyError("defect")).sparing().answer(review("DELETE", SLICE))
    assert (said(spared)["allowed"], spared.judged) == (True, False)
