"""The server without a wire: a request and the time in, an answer or a stream out. Pure; nothing here waits.

The HTTP front and the simulation's transport are both thin shells around `Frontend.handle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .acts import Caller
from .bodies import APPLY, media_type
from .catalogue import NAMESPACES, PRIORITY_CLASSES, Catalogue
from .consulting import answered_by_nobody
from .definitions import follow_definitions
from .discovery import AGGREGATED, VERSION, discover, discover_all, wants_all_at_once
from .exchange import Answer, Log, Request, Result
from .failures import ApiError, bad_request, method_not_allowed, no_such_page
from .log_requests import log_wish
from .managers import Manager, manager_of
from .openapi import openapi
from .reading import Reader, check_accept
from .routing import find_target
from .served import SERVED
from .store import Store
from .terms import Target
from .verbs import Api
from .writing import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from .consulting import Asking
    from .metadata import Fresh

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_HEALTH = frozenset({"healthz", "livez", "readyz"})
_PLACING = frozenset({"binding", "eviction"})


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants to do what, for a guard to refuse."""

    user: str
    method: str
    target: Target


class Frontend:
    """One API server."""

    def __init__(
        self,
        *,
        fresh: Fresh,
        now: float,
        catalogue: Catalogue | None = None,
        store: Store | None = None,
        guard: Callable[[Call], None] | None = None,
    ) -> None:
        self.store = store or Store()
        self.catalogue = catalogue or Catalogue(SERVED)
        follow_definitions(self.store, self.catalogue)
        self.api = Api(store=self.store, catalogue=self.catalogue, fresh=fresh)
        self._reader = Reader(api=self.api)
        self._writer = Writer(api=self.api)
        self._guard = guard
        _furnish(self.api, now=now)

    def handle(self, request: Request, *, now: float) -> Result:
        """Answer a request where nobody can call webhooks; refusals are answers too."""
        return answered_by_nobody(self.converse(request, now=now))

    def converse(self, request: Request, *, now: float) -> Asking[Result]:
        """Answer a request, after asking the webhooks that it concerns."""
        try:
            return (yield from self._handle(request, now=now))
        except ApiError as error:
            return _refusal(error)
        except RecursionError:
            # Only bodies go so deep.
            return _refusal(bad_request("the body is nested too deep"))

    def _handle(self, request: Request, *, now: float) -> Asking[Result]:
        path = request.path
        if not path or path[0] not in {"api", "apis"}:
            return _about_the_server(self.catalogue, path, accept=request.accept)
        check_accept(request.accept)
        target = find_target(self.catalogue, path)
        if target is None:
            if request.method != "GET":
                raise method_not_allowed()
            if wants_all_at_once(request.accept, path):
                return Answer(body=msgspec.json.encode(discover_all(self.catalogue, path)), content_type=AGGREGATED)
            return Answer(body=msgspec.json.encode(discover(self.catalogue, path)))
        if self._guard:
            self._guard(Call(user=request.user, method=request.method, target=target))
        if request.method == "GET":
            return self._read(target, request, now=now)
        caller = Caller(user=request.user, manager=_manager(target, request))
        answer = yield from self._write(target, request, caller=caller, now=now)
        self.api.settle()
        return msgspec.structs.replace(answer, warnings=tuple(caller.warnings)) if caller.warnings else answer

    def _read(self, target: Target, request: Request, *, now: float) -> Result:
        if target.subresource in _PLACING:
            raise method_not_allowed()
        if target.subresource == "log":
            return Log(wish=log_wish(target, self.api.get(target).decode(), request))
        if request.flag("watch") and not target.subresource:
            return self._reader.watch(target, request, now=now)
        if target.name:
            return self._reader.get(target, request, now=now)
        return self._reader.list(target, request, now=now)

    def _write(self, target: Target, request: Request, *, caller: Caller, now: float) -> Asking[Answer]:
        writer, method = self._writer, request.method
        placing = target.subresource in _PLACING
        if target.subresource == "log":
            raise method_not_allowed()
        if method == "POST" and (placing or not target.name):
            if target.resource.namespaced and not target.namespace:
                raise method_not_allowed()
            return (yield from writer.create(target, request, caller=caller, now=now))
        if placing:
            raise method_not_allowed()
        if target.name and method == "PUT":
            return (yield from writer.update(target, request, caller=caller, now=now))
        if target.name and method == "PATCH":
            return (yield from writer.patch(target, request, caller=caller, now=now))
        if method == "DELETE" and target.name and not target.subresource:
            return (yield from writer.delete(target, request, caller=caller, now=now))
        if method == "DELETE" and not target.name:
            selection = self._reader.selection(target, request)
            return (yield from writer.delete_collection(target, request, selection=selection, caller=caller, now=now))
        raise method_not_allowed()


def _refusal(error: ApiError) -> Answer:
    return Answer(code=error.code, body=msgspec.json.encode(error.status()))


def _manager(target: Target, request: Request) -> Manager:
    return manager_of(
        request.query.get("fieldManager", ""),
        agent=request.agent,
        operation="Apply" if media_type(request.content_type) == APPLY else "Update",
        subresource=target.subresource,
        force=request.flag("force"),
    )


def _about_the_server(catalogue: Catalogue, path: tuple[str, ...], *, accept: str) -> Answer:
    if path[:1] == ("version",):
        return Answer(body=msgspec.json.encode(VERSION))
    if path and path[0] in _HEALTH:
        return Answer(body=b"ok", content_type="text/plain")
    if path[:1] == ("openapi",):
        return openapi(catalogue, path, accept=accept)
    raise no_such_page()


def _furnish(api: Api, *, now: float) -> None:
    """Put in what every cluster has from its first second."""
    for name in FIRST_NAMESPACES:
        _create_if_missing(api, Target(resource=NAMESPACES, name=name), {"metadata": {"name": name}}, now=now)
    for name, value in _SYSTEM_CLASSES.items():
        body = {"metadata": {"name": name}, "value": value}
        _create_if_missing(api, Target(resource=PRIORITY_CLASSES, name=name), body, now=now)


def _create_if_missing(api: Api, target: Target, body: dict[str, object], *, now: float) -> None:
    if api.store.get(target.resource.table, target.key) is None:
        api.add(target, body, now=now)
