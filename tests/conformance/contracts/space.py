"""A namespace of its own for each test, the addresses in it, and what pods of several contracts have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from support.http_api import HttpApi, Json

GATE = [{"name": "aliquot.dev/queue"}]


@dataclass(frozen=True, kw_only=True)
class Space:
    """One namespace on the server under test."""

    api: HttpApi
    name: str

    @staticmethod
    def make(api: HttpApi) -> Space:
        """Make a namespace in which pods can be created (they need its service account)."""
        body = {"metadata": {"generateName": "conformance-"}}
        name = api.post("/api/v1/namespaces", body).ok()["metadata"]["name"]
        space = Space(api=api, name=name)
        with api.watch(f"{space.path}/serviceaccounts", fieldSelector="metadata.name=default") as watch:
            watch.next()
        return space

    @property
    def path(self) -> str:
        """The namespace itself."""
        return f"/api/v1/namespaces/{self.name}"

    @property
    def pods(self) -> str:
        """Its pods."""
        return f"{self.path}/pods"

    @property
    def config_maps(self) -> str:
        """Its config maps."""
        return f"{self.path}/configmaps"

    @property
    def leases(self) -> str:
        """Its leases."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.name}/leases"

    def listed(self, path: str, **query: str) -> list[Json]:
        """Give the items of a list."""
        return list(self.api.get(path, **query).ok()["items"])

    def create_pod(self, name: str, *, container: Json | None = None, labels: Json | None = None, **spec: Any) -> Json:
        """Create a pod that no scheduler takes."""
        return self.api.post(self.pods, pod(name, container=container, labels=labels, **spec)).ok()

    def bind(self, name: str, node: str = "nowhere", **metadata: Any) -> Json:
        """Bind a pod."""
        body = {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}
        return self.api.post(f"{self.pods}/{name}/binding", body).ok()


def pod(name: str, *, container: Json | None = None, labels: Json | None = None, **spec: Any) -> Json:
    """Spell a small pod."""
    main = {"name": "main", "image": "none:1", **(container or {})}
    metadata = {"name": name, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"schedulerName": "nobody", "containers": [main], **spec}}
