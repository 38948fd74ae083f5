"""How long a pod may take to go, whatever number is written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot_standalone.apiserver.exchange import Answer, Request
from aliquot_standalone.apiserver.frontend import Frontend
from support.embedded_api import NOW, make_frontend

PODS = ("api", "v1", "namespaces", "default", "pods")
THIRTY_YEARS = 10**9


def ask(server: Frontend, method: str, *path: str, body: Any) -> Answer:
    """Send a request."""
    request = Request(method=method, path=(*PODS, *path), query={}, body=msgspec.json.encode(body), content_type="")
    answer = server.handle(request, now=NOW)
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize(
    ("own", "said", "kept"),
    [
        (2**63 - 1, None, THIRTY_YEARS),
        (30, 2**63 - 1, THIRTY_YEARS),
        (30, None, 30),
        (30, 90, 90),
    ],
)
def test_a_grace_that_no_calendar_knows_is_thirty_years(own: int, said: int | None, kept: int) -> None:
    """The API takes any 64-bit number, by the pod and by whoever deletes it, and a deletion must not break on it."""
    server = make_frontend()
    spec = {
        "containers": [{"name": "main", "image": "none:1"}],
        "nodeName": "somewhere",
        "terminationGracePeriodSeconds": own,
    }
    ask(server, "POST", body={"metadata": {"name": "run"}, "spec": spec})
    answer = ask(server, "DELETE", "run", body={} if said is None else {"gracePeriodSeconds": said})
    assert msgspec.json.decode(answer.body)["metadata"]["deletionGracePeriodSeconds"] == kept
