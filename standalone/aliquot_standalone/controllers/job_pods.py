"""The pods and jobs that controllers make, with the names, labels and owners by which Kubernetes knows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aliquot_core.objects import ObjectMeta
from aliquot_standalone.controllers.objects import BATCH, CONTROLLER_UID, INDEX, JOB_NAME, TRACKING, Job

_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
Json = Mapping[str, Any]


def owned_by(owner: ObjectMeta, *, kind: str) -> list[Json]:
    """Write who made an object, and with whom it goes."""
    reference = {"apiVersion": BATCH, "kind": kind, "name": owner.name, "uid": owner.uid}
    return [{**reference, "controller": True, "blockOwnerDeletion": True}]


def pod_of(job: Job, *, index: int | None) -> Json:
    """Write a pod of a job."""
    meta, template = job.metadata, job.spec.template
    metadata = template.get("metadata", {})
    labels = {
        **metadata.get("labels", {}),
        CONTROLLER_UID: meta.uid,
        JOB_NAME: meta.name,
        # As older clients look for them.
        "controller-uid": meta.uid,
        "job-name": meta.name,
    }
    mark = {} if index is None else {INDEX: str(index)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{meta.name}-" if index is None else f"{meta.name}-{index}-",
            "namespace": meta.namespace,
            "labels": {**labels, **mark},
            "annotations": {**metadata.get("annotations", {}), **mark},
            "finalizers": [*metadata.get("finalizers", []), TRACKING],
            "ownerReferences": owned_by(meta, kind="Job"),
        },
        "spec": _spec_of(job, index=index),
    }


def _spec_of(job: Job, *, index: int | None) -> Json:
    spec: Json = job.spec.template.get("spec", {})
    if index is None:
        return spec
    told = {
        part: [_told(one, index) for one in spec[part]] for part in ("initContainers", "containers") if part in spec
    }
    return {"hostname": f"{job.metadata.name}-{index}", **spec, **told}


def _told(container: Json, index: int) -> Json:
    """Let a container know its part of an indexed job."""
    others = [one for one in container.get("env", []) if one.get("name") != _INDEX_VARIABLE]
    return {**container, "env": [*others, {"name": _INDEX_VARIABLE, "value": str(index)}]}
