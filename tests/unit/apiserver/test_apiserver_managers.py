"""Owners of fields, where a clock or a nameless program makes the difference."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot_standalone.apiserver.exchange import Answer, Request
from aliquot_standalone.apiserver.frontend import Frontend
from support.embedded_api import NOW, make_frontend

MAPS = ("api", "v1", "namespaces", "default", "configmaps")
APPLY = "application/apply-patch+yaml"


def ask(server: Frontend, method: str, body: Any, *, kind: str = "", later: float = 0.0, **query: str) -> Any:
    """Write the config map and give what came of it."""
    path = MAPS if method == "POST" else (*MAPS, "one")
    request = Request(method=method, path=path, query=query, content_type=kind, body=msgspec.json.encode(body))
    answer = server.handle(request, now=NOW + later)
    assert isinstance(answer, Answer)
    assert answer.code in {200, 201}, answer.body
    return msgspec.json.decode(answer.body)["metadata"]


def config(**data: str) -> dict[str, Any]:
    """A config map."""
    return {"metadata": {"name": "one"}, "data": data}


def test_applying_the_same_later_changes_nothing() -> None:
    """Not even the time at which it was applied, so nobody who watches is woken."""
    server = make_frontend()
    first = ask(server, "PATCH", config(a="1"), kind=APPLY, fieldManager="me")
    assert ask(server, "PATCH", config(a="1"), kind=APPLY, fieldManager="me", later=100.0) == first


def test_programs_that_name_nobody_own_nothing() -> None:
    """Their objects have no owners, until somebody who names himself applies: then they had one before."""
    server = make_frontend()
    assert "managedFields" not in ask(server, "POST", config(a="1", b="2"))
    merge = "application/merge-patch+json"
    assert "managedFields" not in ask(server, "PATCH", {"data": {"b": "3"}}, kind=merge)
    told = ask(server, "PATCH", config(a="1"), kind=APPLY, fieldManager="me")["managedFields"]
    owned = {entry["manager"]: entry["fieldsV1"] for entry in told}
    assert owned == {"before-first-apply": {"f:data": {"f:a": {}, "f:b": {}}}, "me": {"f:data": {"f:a": {}}}}


def test_who_sends_back_what_was_read_changes_no_owners() -> None:
    """A program that reads, changes and writes takes what it changed, whether or not it carries the owners along."""
    server = make_frontend()
    ask(server, "PATCH", config(a="1", b="2"), kind=APPLY, fieldManager="me")
    told = ask(server, "PUT", config(a="1", b="9"), fieldManager="editor")["managedFields"]
    owned = {entry["manager"]: entry["fieldsV1"] for entry in told}
    assert owned == {"me": {"f:data": {"f:a": {}}}, "editor": {"f:data": {"f:b": {}}}}
