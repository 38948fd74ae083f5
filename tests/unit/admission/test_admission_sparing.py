"""What is said to a kube-scheduler that sends somebody away by priority."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.review import LONGEST_LOGGED, MalformedReviewError
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.sparing import NOBODY_GOES, spare
from support import admitting
from support.centre import NAMES

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


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
def test_whoever_has_slices_is_said_not_to_be_there(operation: str) -> None:
    """Of any other refusal kube-scheduler tries again at once, for ever."""
    said = json.loads(spare(review(operation, SLICE), names=NAMES))["response"]
    assert said["uid"] == "u"
    assert said["allowed"] is False
    assert said["status"] == {"status": "Failure", "code": 404, "reason": "NotFound", "message": NOBODY_GOES}


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
def test_whoever_has_none_goes(operation: str) -> None:
    """As ever."""
    assert json.loads(spare(review(operation, {"name": "main"}), names=NAMES))["response"]["allowed"] is True


def test_what_no_api_server_sends_is_told_apart() -> None:
    """Whoever sends it reads why."""
    with pytest.raises(MalformedReviewError):
        spare(review("CREATE", SLICE), names=NAMES)


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
        spare(json.dumps(asked).encode(), names=NAMES)
        admission.mutating(admitting.review(wrong, user=long))
        await admission.validating(admitting.review(wrong, user=long))
    kept, *refused = caplog.records
    assert [kept.message, *(line.message for line in refused)] == [
        *("kept from eviction by priority", "pod refused", "pod refused")
    ]
    texts = [vars(line)[name] for line in caplog.records for name in ("pod", "user")] + [vars(kept)["node"]]
    texts += [text for line in refused for text in vars(line)["problems"]]
    assert {len(text) > LONGEST_LOGGED + 1 for text in texts} == {False}
