"""Pods as the API server hands them to the webhook, its questions, and its reading of the answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.admission.mutation import mutate
from aliquot_scheduler.admission.review import decoded as read_part
from aliquot_standalone.apiserver.patches import json_patch

NAMES = Names()
PROFILE = "aliquot"
Json = dict[str, Any]


def container(name: str = "main", /, *, requests: Mapping[str, str] | None = None, **limits: str) -> Json:
    """A container; limits and requests go by their short names, `best_effort` too."""
    sections = {"limits": limits, "requests": requests or {}}
    named = {
        section: {NAMES.of(short.replace("_", "-")): str(amount) for short, amount in given.items()}
        for section, given in sections.items()
        if given
    }
    return {"name": name, "image": "x", "resources": named} if named else {"name": name, "image": "x"}


def written(
    *containers: Json,
    inits: Sequence[Json] = (),
    notes: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A pod's manifest; our labels and annotations go by their short names."""
    metadata: Json = {"name": "pod", "namespace": "team"}
    if notes:
        metadata["annotations"] = {NAMES.of(short): text for short, text in notes.items()}
    if labels:
        metadata["labels"] = {NAMES.of(short): text for short, text in labels.items()}
    lists = {"containers": list(containers), **({"initContainers": list(inits)} if inits else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**lists, **spec}}


_PODS = msgspec.json.Decoder(Pod)


def decoded(document: Json) -> Pod:
    """The pod as our code reads it."""
    return read_part(_PODS, json.dumps(document).encode(), what="object")


def mutated(document: Json) -> Json:
    """The pod after the patch, which an independent implementation carries out."""
    patch = mutate(decoded(document), document, names=NAMES, scheduler_name=PROFILE)
    result: Json = json_patch(document, patch)
    return result


def review(
    document: Any, *, old: Any = None, user: str = "ann", groups: Sequence[str] = ("system:authenticated",)
) -> bytes:
    """What the API server sends when the pod is created, or changed from an old one."""
    request = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE" if old is None else "UPDATE",
        "namespace": "team",
        "userInfo": {"username": user, "groups": list(groups)},
        "object": document,
        "oldObject": old,
        "dryRun": False,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def queue_review(name: str, spec: Any, *, old: Any = None, status: Any = None) -> bytes:
    """What the API server sends when a queue is created, changed from an old spec, or (spec None) deleted."""
    operation = "DELETE" if spec is None else "CREATE" if old is None else "UPDATE"
    new, before = ({"metadata": {"name": name}, "spec": each, "status": status or {}} for each in (spec, old or {}))
    request = {
        "uid": "u-1",
        "kind": {"group": "aliquot.dev", "version": "v1alpha1", "kind": "Queue"},
        "operation": operation,
        "name": name,
        "userInfo": {"username": "ann"},
        "object": None if spec is None else new,
        "oldObject": None if operation == "CREATE" else before,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def answered(body: bytes) -> Json:
    """The answer's inner part, with the patch as operations."""
    outer = json.loads(body)
    assert (outer["apiVersion"], outer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    answer: Json = outer["response"]
    assert answer.pop("uid") == "u-1"
    if "patch" in answer:
        assert answer.pop("patchType") == "JSONPatch"
        answer["patch"] = json.loads(base64.b64decode(answer["patch"]))
    return answer
