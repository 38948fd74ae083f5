"""GET: one object, a list, a watch; as JSON objects or as a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from . import presenting, tables
from .exchange import Answer, Stream
from .failures import ApiError, forbidden_field, invalid, not_acceptable
from .listing import list_page
from .watching import Notice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .exchange import Request
    from .store import Revision
    from .terms import Selection, Target
    from .verbs import Api

_TABLE = re.compile(r"application/json\s*;[^,]*\bas=Table\b[^,]*")


def table_version(accept: str) -> str:
    """Give the version of the table that the client prefers to objects, if it does."""
    for part in accept.split(","):
        if _TABLE.fullmatch(part.strip()) and "g=meta.k8s.io" in part:
            found = next((one for one in tables.TABLE_VERSIONS if re.search(rf"\bv={one}\b", part)), "")
            if found:
                return found
    return ""


def check_accept(accept: str) -> None:
    """Refuse a client that takes nothing that we speak."""
    kinds = {part.partition(";")[0].strip() for part in accept.split(",")}
    if not kinds & {"", "*/*", "application/json", "application/*", "application/yaml"}:
        raise not_acceptable(
            "only the following media types are accepted: application/json; "
            f"this server does not speak {', '.join(sorted(kinds))}"
        )


class Reader:
    """Answers reads."""

    def __init__(self, *, api: Api) -> None:
        self._api = api

    def get(self, target: Target, request: Request, *, now: float) -> Answer:
        """Give one object."""
        found = self._api.get(target)
        if version := table_version(request.accept):
            metadata = {"resourceVersion": str(found.version)}
            return Answer(body=_table(target, [found], request, metadata=metadata, now=now, version=version))
        return Answer(body=presenting.whole(target.resource, found))

    def list(self, target: Target, request: Request, *, now: float) -> Answer:
        """Give a page of a list."""
        page = list_page(self._api, target, request, selection=self.selection(target, request))
        if version := table_version(request.accept):
            return Answer(
                body=_table(target, page.revisions, request, metadata=page.metadata, now=now, version=version)
            )
        return Answer(body=presenting.collection(target.resource, page.revisions, metadata=page.metadata))

    def selection(self, target: Target, request: Request) -> Selection:
        """Read which objects are meant; a name in the address is one more condition."""
        fields = request.query.get("fieldSelector", "")
        if target.name:
            fields = ",".join(filter(None, [fields, f"metadata.name={target.name}"]))
        return self._api.select(target.resource, labels=request.query.get("labelSelector", ""), fields=fields)

    def watch(self, target: Target, request: Request, *, now: float) -> Stream:
        """Begin a watch, where the client left off or with all that is there."""
        selection = self.selection(target, request)
        after = request.number("resourceVersion")
        opening_wanted = _wants_opening(target, request, after=after)
        resource, newest = target.resource, self._api.store.version
        bookmarks, as_table = request.flag("allowWatchBookmarks"), table_version(request.accept)

        def row(told: Notice) -> bytes:
            metadata = {"resourceVersion": str(told.version)}
            body = _table(target, [told.revision], request, metadata=metadata, now=now, version=as_table)
            return presenting.line(told.type, body)

        render = row if as_table else presenting.teller(resource)

        def bookmark(version: int) -> bytes:
            return presenting.bookmark(resource, version)

        opening: list[bytes] = []
        if opening_wanted:
            listed = self._api.list(target, selection=selection)
            opening = [render(_as_added(one)) for one in listed]
        if request.flag("sendInitialEvents") and bookmarks:
            opening.append(presenting.bookmark(resource, newest, initial_end=True))
        start = newest if opening_wanted or after is None else after
        try:
            watch = self._api.watch(target, selection=selection, after=start)
        except ApiError as error:
            # As the API has it, a watch that comes too late is told so inside a stream that was accepted.
            opening = [error_line(error)]
            watch = self._api.watch(target, selection=selection, after=newest)
            return Stream(opening=opening, watch=watch, render=render, bookmark=None, timeout=None, finished=True)
        return Stream(
            opening=opening,
            watch=watch,
            render=render,
            bookmark=bookmark if bookmarks else None,
            timeout=request.number("timeoutSeconds") or None,
        )


def error_line(error: ApiError) -> bytes:
    """Tell a watcher why its stream ends."""
    return presenting.line("ERROR", msgspec.json.encode(error.status()))


def _as_added(revision: Revision) -> Notice:
    return Notice("ADDED", revision, revision.version)


def _wants_opening(target: Target, request: Request, *, after: int | None) -> bool:
    said = request.query.get("sendInitialEvents", "")
    match = request.query.get("resourceVersionMatch", "")
    if said and match != "NotOlderThan":
        why = "sendInitialEvents needs resourceVersionMatch=NotOlderThan"
        raise invalid(target.resource, "", [forbidden_field("resourceVersionMatch", why)])
    if match and not said:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        raise invalid(target.resource, "", [forbidden_field("resourceVersionMatch", why)])
    return request.flag("sendInitialEvents") if said else not after


def _table(
    target: Target, revisions: Iterable[Revision], request: Request, *, metadata: Any, now: float, version: str
) -> bytes:
    whole = request.query.get("includeObject") == "Object"
    return tables.table(target.resource, revisions, metadata=metadata, now=now, version=version, whole=whole)
