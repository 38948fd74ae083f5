"""The page's addresses, for the centre's HTTP servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from http import HTTPStatus
from urllib.parse import unquote

import msgspec
from aiohttp import web

from aliquot_scheduler.page.access import COOKIE, Verdict, Visit, judge
from aliquot_scheduler.page.drawing import Steps
from aliquot_scheduler.page.frame import POLICY, document, login, notice
from aliquot_scheduler.page.html import tag
from aliquot_scheduler.page.hub import Hub, NobodyLeadsError
from aliquot_scheduler.page.passing import HOP, LeaderUnseenError, Passing
from aliquot_scheduler.page.reviews import LONGEST_TOKEN, Reviewer
from aliquot_scheduler.page.static import Static
from aliquot_scheduler.web.bodies import BodyCutError, BodyTooLargeError, problem, read_body

log = logging.getLogger(__name__)

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
# Whoever has not taken what was sent to them by then is cut off, and may come again.
_PATIENCE = 20.0
_FORM_PATIENCE = 5.0
_PROXIES = ("Forwarded", "X-Forwarded-For", "X-Real-IP")
# What a follower hands on to the leader, and back.
_ASKED_WITH = ("Accept", "Last-Event-ID")
_ANSWERED_WITH = ("Content-Type", "Retry-After", "Refresh")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageRoutes:
    """Shows, to those who may look."""

    def __init__(
        self,
        *,
        hub: Hub,
        reviewer: Reviewer,
        passing: Passing,
        leads: Callable[[], bool],
        is_replica: Callable[[web.Request], bool],
        hosts: Collection[str],
        readers: int,
    ) -> None:
        """`is_replica` tells whether a replica of the centre asks, by its certificate."""
        self._hub = hub
        self._reviewer = reviewer
        self._passing = passing
        self._leads = leads
        self._is_replica = is_replica
        self._hosts = hosts
        self._readers = readers
        self._static = Static()

    def routes(self) -> list[web.RouteDef]:
        """What an application adds to serve them."""
        shown = self._guarded
        return [
            web.get("/", _to_the_page),
            web.get("/page/static/{version}/{name:.+}", self._file),
            web.get("/page/login", self._login),
            web.post("/page/login", self._take_token),
            web.post("/page/logout", self._logout),
            # Nobody follows a stream to hear only that there is one.
            web.get("/page/events", shown(self._events), allow_head=False),
            web.get("/page/state.json", shown(self._state)),
            web.get("/page/history.json", shown(self._history)),
            web.get("/page", shown(self._view)),
            web.get("/page/{steps:.*}", shown(self._view)),
        ]

    # --- who may -----------------------------------------------------------------------------------------------------
    def _guarded(self, show: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if (refusal := await self._refusal(request)) is not None:
                return refusal
            try:
                if self._leads() or HOP in request.headers:
                    return await show(request)
                return await self._passed(request)
            except (NobodyLeadsError, LeaderUnseenError) as error:
                return self._nobody(str(error))

        return handle

    async def _refusal(self, request: web.Request) -> web.Response | None:
        verdict = judge(self._visit(request), hosts=self._hosts)
        match verdict:
            case Verdict.OPEN:
                return None
            case Verdict.LOGIN:
                token = _token(request)
                why = await self._reviewer.why_not(token)
                return self._ask_for_token(request, why if token else "") if why else None
            case Verdict.PLAIN:
                why = "The page is shown without TLS on the machine itself alone; elsewhere ask the port that has TLS."
                return problem(HTTPStatus.FORBIDDEN, why)
            case Verdict.STRANGE_HOST:
                why = "This is not a name that the page answers to; use localhost, or the setting page.hosts."
                return problem(HTTPStatus.MISDIRECTED_REQUEST, why)
            case Verdict.CROSS_SITE:
                return problem(HTTPStatus.FORBIDDEN, "Another site asks.")

    def _visit(self, request: web.Request) -> Visit:
        transport = request.transport
        peer, own = (transport.get_extra_info(name) if transport else None for name in ("peername", "sockname"))
        return Visit(
            tls=request.secure,
            replica=HOP in request.headers and self._is_replica(request),
            peer=str(peer[0]) if peer else "",
            own=str(own[0]) if own else "",
            host=request.headers.get("Host", ""),
            proxied=any(name in request.headers for name in _PROXIES),
            site=request.headers.get("Sec-Fetch-Site", ""),
            mode=request.headers.get("Sec-Fetch-Mode", ""),
        )

    # --- what is shown -----------------------------------------------------------------------------------------------
    async def _view(self, request: web.Request) -> web.Response:
        steps = _steps(request.rel_url.raw_path.removeprefix("/page"))
        drawn = await self._hub.drawn(steps)
        if drawn is None:
            return self._page(self._notice("There is nothing here"), HTTPStatus.NOT_FOUND)
        body = document(drawn.view, steps=steps, serial=drawn.serial, version=self._static.version)
        return self._page(body, HTTPStatus.OK if drawn.view.found else HTTPStatus.NOT_FOUND)

    async def _state(self, _: web.Request) -> web.Response:
        glance = await self._hub.glance()
        body = await asyncio.to_thread(msgspec.json.encode, glance.state)
        return web.Response(body=body, content_type="application/json", headers=_HEADERS)

    async def _history(self, request: web.Request) -> web.Response:
        try:
            since = float(request.query.get("since", "0"))
        except ValueError:
            return problem(HTTPStatus.BAD_REQUEST, "since is an instant in seconds")
        body = msgspec.json.encode(self._hub.history.since(since))
        return web.Response(body=body, content_type="application/json", headers=_HEADERS)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        hub = self._hub
        if hub.readers >= self._readers:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, headers={**_HEADERS, "Retry-After": "10"})
        steps = _steps(request.query.get("view", ""))
        since = request.headers.get("Last-Event-ID") or request.query.get("since", "")
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        hub.readers += 1
        try:
            await response.prepare(request)
            async for chunk in hub.follow(steps, since=since):
                async with asyncio.timeout(_PATIENCE):
                    await response.write(chunk)
        except (TimeoutError, ConnectionError):
            _cut(request)
        finally:
            hub.readers -= 1
        return response

    async def _file(self, request: web.Request) -> web.Response:
        file = self._static.file(request.match_info["version"], request.match_info["name"])
        if file is None:
            return problem(HTTPStatus.NOT_FOUND, "there is no such file")
        return web.Response(
            body=file.body, content_type=file.content_type, charset="utf-8", headers=_HEADERS | _FOR_EVER
        )

    # --- tokens ------------------------------------------------------------------------------------------------------
    async def _login(self, _: web.Request) -> web.Response:
        return self._page(login("", version=self._static.version), HTTPStatus.OK)

    async def _take_token(self, request: web.Request) -> web.Response:
        if not request.secure:
            return problem(HTTPStatus.FORBIDDEN, "A token is taken over TLS alone.")
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
            return problem(HTTPStatus.FORBIDDEN, "Another site asks.")
        try:
            body = await read_body(request, largest=2 * LONGEST_TOKEN, patience=_FORM_PATIENCE)
        except (BodyTooLargeError, BodyCutError):
            return problem(HTTPStatus.BAD_REQUEST, "This is no token.")
        name, _, value = body.decode("ascii", "replace").partition("=")
        token = unquote(value.replace("+", " ")).strip() if name == "token" else ""
        if why := await self._reviewer.why_not(token):
            return self._ask_for_token(request, why)
        answer = web.Response(status=HTTPStatus.SEE_OTHER, headers={**_HEADERS, "Location": "/page"})
        answer.set_cookie(COOKIE, token, secure=True, httponly=True, samesite="Strict", path="/")
        return answer

    async def _logout(self, _: web.Request) -> web.Response:
        answer = web.Response(status=HTTPStatus.SEE_OTHER, headers={**_HEADERS, "Location": "/page/login"})
        answer.del_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="Strict")
        return answer

    def _ask_for_token(self, request: web.Request, why: str) -> web.Response:
        if "text/html" not in request.headers.get("Accept", ""):
            return problem(HTTPStatus.UNAUTHORIZED, why or "Send a token: Authorization: Bearer ...")
        return self._page(login(why, version=self._static.version), HTTPStatus.UNAUTHORIZED)

    # --- where this replica does not lead ----------------------------------------------------------------------------
    async def _passed(self, request: web.Request) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in _ASKED_WITH if name in request.headers}
        async with self._passing.asked(request.path_qs, headers=headers) as answer:
            told = {name: answer.headers[name] for name in _ANSWERED_WITH if name in answer.headers}
            response = web.StreamResponse(status=answer.status, headers=_HEADERS | told)
            await response.prepare(request)
            try:
                async for chunk in answer.content.iter_any():
                    async with asyncio.timeout(_PATIENCE):
                        await response.write(chunk)
            except (TimeoutError, ConnectionError):
                _cut(request)
            return response

    def _nobody(self, why: str) -> web.Response:
        said = why or "This replica does not know yet, or no more, what there is."
        body = self._notice("Nobody leads just now", tag("p", said), again=True)
        return self._page(body, HTTPStatus.SERVICE_UNAVAILABLE)

    def _notice(self, title: str, *said: object, again: bool = False) -> str:
        return notice(title, *said, version=self._static.version, again=again)

    @staticmethod
    def _page(body: str, status: HTTPStatus) -> web.Response:
        return web.Response(text=body, status=status, content_type="text/html", headers=_HEADERS)


async def _to_the_page(_: web.Request) -> web.Response:
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={**_HEADERS, "Location": "/page"})


def _steps(written: str) -> Steps:
    return tuple(unquote(step) for step in written.split("/") if step)


def _token(request: web.Request) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else request.cookies.get(COOKIE, "")


def _cut(request: web.Request) -> None:
    """What a slow reader has not taken is not waited for."""
    if request.transport is not None:
        request.transport.abort()
