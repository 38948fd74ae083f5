"""What the webhook is asked, whole and malformed, and one that answers without a socket."""

from __future__ import annotations

import asyncio
import json

from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.picture.there import There
from support.admitting import NAMES, container, mutated, review, written

ASKS = written(container(compute="30", memory="8k"))


def admission(*models: tuple[str, ...]) -> Admission:
    """A webhook in a cluster with these models."""
    return Admission(names=NAMES, settings=AdmissionSettings(), there=lambda: There(models=models))


def validated(body: bytes, *, models: tuple[str, ...] = ()) -> bytes:
    """The validating endpoint's answer, where no queues are known."""
    return asyncio.run(admission(*filter(None, [models])).validating(body))


GOOD = json.loads(review(mutated(ASKS)))


def with_request(**changes: object) -> bytes:
    """A review with some of its request changed."""
    return json.dumps({**GOOD, "request": {**GOOD["request"], **changes}}).encode()


MALFORMED = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "not UTF-8": review(ASKS).replace(b"team", b"\xff"),
    "half a surrogate": review(ASKS).replace(b"team", b"\\ud800"),
    "deep": b"[" * 100_000,
    "NaN": review(ASKS).replace(b'"30"', b"NaN"),
    "no request": json.dumps({key: value for key, value in GOOD.items() if key != "request"}).encode(),
    "another version": json.dumps({**GOOD, "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
    "another kind": with_request(kind={"kind": "Node"}),
    "a deletion": with_request(operation="DELETE"),
    "no pod": with_request(object=None),
    "a pod that is a list": with_request(object=[]),
    "a change from nothing": with_request(operation="UPDATE"),
    "containers that are none": with_request(object={"spec": {"containers": [5]}}),
    "an amount that is null": with_request(
        object={"spec": {"containers": [{"resources": {"limits": {"aliquot.dev/compute": None}}}]}}
    ),
    "a container that is null": with_request(object={"spec": {"containers": [None]}}),
    "a deep pod": review(ASKS).replace(b'"30"', b"[" * 5_000 + b"]" * 5_000),
}
