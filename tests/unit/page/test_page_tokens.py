"""Elsewhere than on this machine: who is let in by which token, and which replica answers for which."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.page.access import COOKIE
from aliquot_scheduler.web.peers import why_stranger
from support.centre_http import Authority
from support.page_stage import PageStage, ScriptedReviews, Served, events, get, page_served

HTML = {"Accept": "text/html"}
USERS = {"good": ("ann", ("pods", "nodes")), "none": ("eve", ())}


# --- elsewhere -------------------------------------------------------------------------------------------------------
@asynccontextmanager
async def over_tls(
    stage: PageStage, folder: Path, reviews: ScriptedReviews
) -> AsyncIterator[tuple[Served, aiohttp.ClientSession]]:
    """The page over TLS, and somebody who trusts it."""
    authority = Authority(folder)
    async with page_served(stage, tls=serving(authority), reviews=reviews) as served:
        connector = aiohttp.TCPConnector(ssl=authority.caller())
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as session:
            yield served, session


def serving(authority: Authority) -> ssl.SSLContext:
    """What a replica serves with."""
    files = authority.server_files()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def test_over_tls_nobody_looks_without_a_token(stage: PageStage, tmp_path: Path) -> None:
    """Programs get a 401 in JSON, people a form; neither sees anything of the cluster."""
    async with over_tls(stage, tmp_path, ScriptedReviews(USERS)) as (served, session):
        for path in ("/page", "/page/state.json", "/page/events?view=", "/page/history.json", "/page/pods/team/pod-u0"):
            status, text = await get(session, served.url + path)
            assert (status, "GPU" in text, "pod-u0" in text) == (401, False, False)
        status, text = await get(session, f"{served.url}/page", **HTML)
        assert (status, '<form method="post" action="/page/login">' in text) == (401, True)


@pytest.mark.parametrize(("token", "status"), [("good", 200), ("none", 401), ("made-up", 401)])
async def test_a_bearer_token_is_judged(stage: PageStage, tmp_path: Path, token: str, status: int) -> None:
    """Of the API server's knowing, and of the rights of whose it is."""
    async with over_tls(stage, tmp_path, ScriptedReviews(USERS)) as (served, session):
        assert (await get(session, f"{served.url}/page/state.json", Authorization=f"Bearer {token}"))[0] == status


async def test_people_log_in_and_out(stage: PageStage, tmp_path: Path) -> None:
    """The token is kept by the browser, out of scripts' reach, for this host and over TLS alone."""
    async with over_tls(stage, tmp_path, ScriptedReviews(USERS)) as (served, session):
        async with session.post(f"{served.url}/page/login", data={"token": "none"}, headers=HTML) as answer:
            assert (answer.status, "eve may not list pods" in await answer.text()) == (401, True)
            assert "Set-Cookie" not in answer.headers
        async with session.post(f"{served.url}/page/login", data={"token": "good"}, allow_redirects=False) as answer:
            cookie = answer.headers["Set-Cookie"]
            assert (answer.status, answer.headers["Location"]) == (303, "/page")
        for part in (f"{COOKIE}=good", "HttpOnly", "Secure", "SameSite=Strict", "Path=/"):
            assert part in cookie
        assert (await get(session, f"{served.url}/page"))[0] == 200
        async with session.post(f"{served.url}/page/logout", allow_redirects=False) as answer:
            assert answer.status == 303
        assert (await get(session, f"{served.url}/page"))[0] == 401


async def test_no_token_is_taken_in_plain(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """Nor for another site, nor as anything but a small form."""
    async with (
        page_served(stage, reviews=ScriptedReviews(USERS)) as served,
        session.post(f"{served.url}/page/login", data={"token": "good"}) as answer,
    ):
        assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)


@pytest.mark.parametrize("body", [b"", b"token=", b"x" * 100_000, b"\xff\xfe=1", b"other=good"])
async def test_what_is_no_token_is_refused(stage: PageStage, tmp_path: Path, body: bytes) -> None:
    """Whatever is posted, nobody is let in by it."""
    async with (
        over_tls(stage, tmp_path, ScriptedReviews(USERS)) as (served, session),
        session.post(f"{served.url}/page/login", data=body) as answer,
    ):
        assert (answer.status in {400, 401}, "Set-Cookie" in answer.headers) == (True, False)


async def test_another_site_can_log_nobody_in(stage: PageStage, tmp_path: Path) -> None:
    """A form elsewhere can't make a browser look as somebody else."""
    headers = {"Sec-Fetch-Site": "cross-site"}
    async with (
        over_tls(stage, tmp_path, ScriptedReviews(USERS)) as (served, session),
        session.post(f"{served.url}/page/login", data={"token": "good"}, headers=headers) as answer,
    ):
        assert answer.status == 403


# --- replicas --------------------------------------------------------------------------------------------------------
async def test_a_follower_shows_the_leader_s_page(stage: PageStage, tmp_path: Path) -> None:
    """Views and streams come through it as they are, to whoever it has let in; the leader trusts its certificate."""
    authority = Authority(tmp_path)
    client = authority.caller(authority.signs(CENTRE))
    other = PageStage({}, nodes=(1,))
    other.leads = False
    async with (
        page_served(stage, tls=serving(authority), is_replica=_is_replica) as leader,
        page_served(other, leader=lambda: leader.url, client=lambda: client) as follower,
        aiohttp.ClientSession() as session,
    ):
        status, text = await get(session, f"{follower.url}/page/pods/team/pod-u0")
        assert (status, "Pod team/pod-u0" in text) == (200, True)
        assert (await get(session, f"{follower.url}/page/nothing"))[0] == 404
        told = events(session, f"{follower.url}/page/events?view=&since=")
        await anext(told)
        stage.end("u0")
        _, changes = await anext(told)
        assert "n0" in changes["nodes"]["set"]
        assert (await get(session, f"{follower.url}/page", Host="evil.example"))[0] == 421


async def test_only_a_replica_passes_somebody_on(stage: PageStage, tmp_path: Path) -> None:
    """The word that one was judged elsewhere is worth nothing from anybody else."""
    authority = Authority(tmp_path)
    async with page_served(stage, tls=serving(authority), is_replica=_is_replica) as leader:
        for client in (None, authority.signs("system:kube-scheduler"), authority.signs("mallory")):
            connector = aiohttp.TCPConnector(ssl=authority.caller(client))
            async with aiohttp.ClientSession(connector=connector) as session:
                assert (await get(session, f"{leader.url}/page", Aliquot_Passed_By="me"))[0] == 401


@pytest.mark.parametrize("address", [None, "http://127.0.0.1:1", "https://127.0.0.1:1"])
async def test_a_follower_without_a_leader_says_so(
    stage: PageStage, session: aiohttp.ClientSession, address: str | None
) -> None:
    """An unknown address, one without TLS, or one where nobody listens."""
    stage.leads = False
    async with page_served(stage, leader=lambda: address) as follower:
        status, text = await get(session, f"{follower.url}/page")
        assert (status, "Nobody leads just now" in text) == (503, True)


async def test_a_leader_is_never_asked_in_plain(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """Though it would answer: what it says could be anybody's word."""
    other = PageStage({}, nodes=(1,))
    other.leads = False
    async with page_served(stage) as leader, page_served(other, leader=lambda: leader.url) as follower:
        assert (await get(session, f"{follower.url}/page"))[0] == 503


def _is_replica(request: web.Request) -> bool:
    assert request.transport
    return not why_stranger(request.transport.get_extra_info("peercert"), allowed=[CENTRE], now=0.0)
