"""A plain HTTP client of any API server, for tests that must not trust our own client."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
# Far longer than anything takes: a test that waits so long has failed.
LONG_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer: its code, and its body as JSON or as text."""

    code: int
    body: Any
    # What the server says beside the answer, without its number and the quotes around it.
    warnings: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why a Status refuses."""
        return str(self.body.get("reason", ""))

    @property
    def fields(self) -> set[str]:
        """Which fields an Invalid names."""
        return {cause["field"] for cause in self.body["details"]["causes"]}

    @property
    def version(self) -> str:
        """The resourceVersion of an object or list."""
        return str(self.body["metadata"]["resourceVersion"])

    def ok(self) -> Json:
        """Give the body of an answer that is no refusal."""
        assert self.code < http.client.BAD_REQUEST, self.body
        return dict(self.body)


@dataclass(frozen=True, kw_only=True)
class HttpApi:
    """One API server and one user."""

    url: str
    token: str = ""
    certificate: Path | None = None

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> Reply:
        """Send one request; a body of bytes goes out as it is, any other as JSON."""
        connection = self._connect()
        try:
            payload = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            headers = self._headers(accept=accept, content_type=content_type)
            connection.request(method, _with_query(path, query), body=payload, headers=headers)
            response = connection.getresponse()
            text = response.read()
            warnings = tuple(map(_warning, response.headers.get_all("Warning", [])))
            return Reply(code=response.status, body=_decoded(text), warnings=warnings)
        finally:
            connection.close()

    def get(self, path: str, **query: str) -> Reply:
        """GET."""
        return self.call("GET", path, **query)

    def post(self, path: str, body: Any, **query: str) -> Reply:
        """POST."""
        return self.call("POST", path, body, **query)

    def put(self, path: str, body: Any, **query: str) -> Reply:
        """PUT."""
        return self.call("PUT", path, body, **query)

    def patch(self, path: str, body: Any, *, kind: str = MERGE, **query: str) -> Reply:
        """PATCH."""
        return self.call("PATCH", path, body, content_type=kind, **query)

    def delete(self, path: str, body: Any = None, **query: str) -> Reply:
        """DELETE."""
        return self.call("DELETE", path, body, **query)

    @contextmanager
    def watch(self, path: str, **query: str) -> Iterator[WatchReader]:
        """Follow a collection."""
        connection = self._connect()
        try:
            headers = self._headers(accept="application/json", content_type="application/json")
            connection.request("GET", _with_query(path, {"watch": "1", **query}), headers=headers)
            response = connection.getresponse()
            assert response.status == http.client.OK, response.read()
            yield WatchReader(response)
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        where = urlsplit(self.url)
        assert where.hostname
        if where.scheme == "https":
            context = ssl.create_default_context(cafile=str(self.certificate))
            return http.client.HTTPSConnection(where.hostname, where.port, timeout=LONG_S, context=context)
        return http.client.HTTPConnection(where.hostname, where.port, timeout=LONG_S)

    def _headers(self, *, accept: str, content_type: str) -> dict[str, str]:
        headers = {"Accept": accept, "Content-Type": content_type}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers


class WatchReader:
    """The lines of a watch; reading waits, and fails the test after a long time."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> Json:
        """Give the next event."""
        line = self._response.readline()
        assert line, "the watch ended"
        return dict(json.loads(line))

    def until(self, holds: Callable[[Json], bool]) -> list[Json]:
        """Give all events up to the first for which something holds."""
        found = [self.next()]
        while not holds(found[-1]):
            found.append(self.next())
        return found

    def rest(self) -> list[Json]:
        """Give all events until the server ends the watch."""
        return [json.loads(line) for line in self._response]


def _warning(header: str) -> str:
    return header.removeprefix('299 - "').removesuffix('"').replace('\\"', '"')


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")
