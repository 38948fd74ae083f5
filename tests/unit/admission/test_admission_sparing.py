"""What is said to a kube-scheduler that sends somebody away by priority."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aliquot_scheduler.admission.review import MalformedReviewError
from aliquot_scheduler.admission.sparing import NOBODY_GOES, spare
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
