"""A model of an API server's pods: versions, history, compaction. It answers with the bytes a real one would send."""

from __future__ import annotations

import itertools
import json
from typing import Any

Json = dict[str, Any]


def pod_json(*, name: str, uid: str, version: int, note: str = "") -> Json:
    """Write a pod with little in it."""
    metadata = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata | ({"annotations": {"note": note}} if note else {}), "spec": {}, "status": {}}


class PodStore:
    """What is, and what happened since the last compaction."""

    def __init__(self, *, version: int = 100) -> None:
        self.version = version
        self.pods: dict[str, Json] = {}
        self.history: list[tuple[int, Json]] = []
        self.compacted = version
        self._uids = itertools.count(1)

    def put(self, name: str) -> None:
        """Create or change a pod."""
        self.version += 1
        old = self.pods.get(name)
        uid = old["metadata"]["uid"] if old else f"uid-{next(self._uids)}"
        self.pods[name] = pod_json(name=name, uid=uid, version=self.version, note=str(self.version))
        self._happened("MODIFIED" if old else "ADDED", self.pods[name])

    def drop(self, name: str) -> None:
        """Delete a pod, if it is there."""
        old = self.pods.pop(name, None)
        if old is None:
            return
        self.version += 1
        last = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
        self._happened("DELETED", last)

    def compact(self) -> None:
        """Forget what happened: watches from before are Gone."""
        self.history.clear()
        self.compacted = self.version

    def events_after(self, version: int) -> list[Json] | None:
        """What happened since, or None where that is forgotten."""
        if version < self.compacted:
            return None
        return [event for at, event in self.history if at > version]

    def page(self, *, items: list[Json], version: int, token: str = "") -> bytes:
        """Spell a page of a list."""
        return json.dumps({"metadata": {"resourceVersion": str(version), "continue": token}, "items": items}).encode()

    def bookmark(self) -> bytes:
        """Spell a bookmark as the real server does for pods: hollow, with nulls."""
        thing = {"metadata": {"resourceVersion": str(self.version), "creationTimestamp": None}}
        return json.dumps(
            {"type": "BOOKMARK", "object": {**thing, "spec": {"containers": None}, "status": {}}}
        ).encode()

    def uids(self) -> dict[str, tuple[str, str]]:
        """What is, in short: key to uid and version."""
        return {
            f"default/{name}": (pod["metadata"]["uid"], pod["metadata"]["resourceVersion"])
            for name, pod in self.pods.items()
        }

    def _happened(self, kind: str, pod: Json) -> None:
        self.history.append((self.version, {"type": kind, "object": pod}))


GONE_EVENT = json.dumps(
    {"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}}
).encode()
