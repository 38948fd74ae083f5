"""A plain client of the API server for tests: JSON in, JSON out. The project's own client is under test elsewhere."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from cluster.harness.errors import ApiError

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"  # JSON is YAML too
FIELD_MANAGER = "aliquot-tests"
TIMEOUT_SECONDS = 30
NOT_FOUND = 404


class Api:
    """Requests to one API server as one user; safe to use from several threads."""

    def __init__(self, *, host: str, port: int, token: str, certificate: Path, impersonate: str = "") -> None:
        self._host = host
        self._port = port
        self._certificate = certificate
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        if impersonate:
            self._headers["Impersonate-User"] = impersonate
        self._local = threading.local()
        self._connections: list[http.client.HTTPSConnection] = []
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._local = threading.local()

    def get(self, path: str, **query: str) -> Json:
        """GET a path."""
        return self.request("GET", path, query=query)

    def find(self, path: str) -> Json | None:
        """GET a path, or None where there is nothing."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def items(self, path: str, **query: str) -> list[Json]:
        """GET a list's items."""
        return list(self.get(path, **query)["items"])

    def post(self, path: str, body: Mapping[str, Any]) -> Json:
        """POST a body."""
        return self.request("POST", path, body=body)

    def put(self, path: str, body: Mapping[str, Any]) -> Json:
        """PUT a body."""
        return self.request("PUT", path, body=body)

    def patch(self, path: str, body: Any, *, kind: str = MERGE) -> Json:
        """PATCH with a merge patch, or the kind of patch that is named."""
        return self.request("PATCH", path, body=body, content_type=kind)

    def delete(self, path: str, **options: Any) -> Json:
        """DELETE, with DeleteOptions such as gracePeriodSeconds."""
        return self.request("DELETE", path, body=options)

    def create(self, obj: Mapping[str, Any]) -> Json:
        """Create an object at its own place."""
        return self.post(self.collection_of(obj), obj)

    def apply(self, obj: Mapping[str, Any]) -> Json:
        """Create or change an object by server-side apply."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return self.request("PATCH", self.path_of(obj), body=obj, query=query, content_type=APPLY)

    def path_of(self, obj: Mapping[str, Any]) -> str:
        """The path of an object that has a name."""
        return f"{self.collection_of(obj)}/{obj['metadata']['name']}"

    def collection_of(self, obj: Mapping[str, Any]) -> str:
        """The path of the objects of that kind, in the object's namespace."""
        version, kind = obj["apiVersion"], obj["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if (version, kind) not in self._resources:
            for resource in self.get(root)["resources"]:
                if "/" not in resource["name"]:
                    self._resources[version, resource["kind"]] = (resource["name"], resource["namespaced"])
        plural, namespaced = self._resources[version, kind]
        return f"{root}/namespaces/{obj['metadata']['namespace']}/{plural}" if namespaced else f"{root}/{plural}"

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send one request and return the decoded answer; anything but 2xx is an ApiError."""
        target = f"{path}?{urlencode(query)}" if query else path
        payload = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": content_type}
        try:
            status, text = self._send(method, target, payload, headers)
        except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
            # The server closed the idle connection, or was restarted: once more on a new one.
            self._local.connection = None
            status, text = self._send(method, target, payload, headers)
        answer = _decoded(text)
        if status >= http.client.MULTIPLE_CHOICES:
            reason, message = str(answer.get("reason", "")), str(answer.get("message", text[:300]))
            raise ApiError(status=status, reason=reason, message=message)
        return answer

    def _send(self, method: str, target: str, payload: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            context = ssl.create_default_context(cafile=str(self._certificate))
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_SECONDS, context=context)
            self._local.connection = connection
            self._connections.append(connection)
        try:
            connection.request(method, target, body=payload, headers=dict(headers))
            response = connection.getresponse()
            return response.status, response.read()
        except Exception:
            connection.close()
            self._local.connection = None
            raise


def _decoded(text: bytes) -> Json:
    try:
        answer = json.loads(text)
    except ValueError:
        return {"message": text.decode(errors="replace")}
    return answer if isinstance(answer, dict) else {"value": answer}
