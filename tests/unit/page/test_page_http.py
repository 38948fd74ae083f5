"""The page's addresses over real sockets: who is let in, what is said to whom, and who waits for nobody."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from aliquot_cli.cluster import Place
from aliquot_cli.pod_rows import Used
from aliquot_cli.usage import read_used
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.page.access import COOKIE
from aliquot_scheduler.page.hub import Glance, NobodyLeadsError
from aliquot_scheduler.page.settings import PageSettings
from aliquot_scheduler.page.usage import Usage, Use
from aliquot_scheduler.web.peers import why_stranger
from support.centre_http import Authority
from support.clocks import VirtualClock
from support.page_stage import PageStage, ScriptedReviews, Served, events, page_served, until
from support.queue_stage import queue

HTML = {"Accept": "text/html"}
USERS = {"good": ("ann", ("pods", "nodes")), "none": ("eve", ())}


@pytest.fixture
def stage() -> PageStage:
    """A node with two GPUs and a pod."""
    stage = PageStage({"red": queue()}, nodes=(2,))
    stage.submit("u0", 60, 20_000, queue="red")
    stage.run()
    return stage


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Somebody who calls."""
    # Cookies of an address without a name too, as a browser keeps them.
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


async def get(session: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, str]:
    """Ask."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with session.get(url, headers=named, allow_redirects=False) as answer:
        return answer.status, await answer.text()


def readers(served: Served, count: int) -> Callable[[], Awaitable[bool]]:
    """So many follow."""

    async def holds() -> bool:
        return served.hub.readers == count

    return holds


def looks(served: Served, count: int) -> Callable[[], Awaitable[bool]]:
    """It was looked so often."""

    async def holds() -> bool:
        return served.hub._looks >= count

    return holds


# --- this machine ----------------------------------------------------------------------------------------------------
async def test_on_this_machine_the_page_is_open(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """Every view answers with a whole document, an unknown one with 404, and `/` leads to it."""
    async with page_served(stage) as served:
        for path in ("/page", "/page/", "/page/queues", "/page/waiting", "/page/applications", "/page/history"):
            status, text = await get(session, served.url + path)
            assert (status, text.startswith("<!doctype html>")) == (200, True), path
        for path in ("/page/nothing", "/page/nodes/none", "/page/pods/a/b", "/page/gpus/n0/x", "/page/a/b/c/d/e"):
            assert (await get(session, served.url + path))[0] == 404, path
        async with session.get(served.url, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/page")


async def test_nothing_can_be_changed(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """No other method than GET is taken, but for the token."""
    async with page_served(stage) as served:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            for path in ("/page", "/page/state.json", "/page/events", "/page/pods/team/pod-u0"):
                async with session.request(method, served.url + path) as answer:
                    assert answer.status == 405, (method, path)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:10944"}, 421),
        ({"Host": "lab.example"}, 200),
        ({"Host": "localhost"}, 200),
        ({"X_Forwarded_For": "10.0.0.1"}, 403),
        ({"Forwarded": "for=10.0.0.1"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 200),
        ({"Aliquot_Passed_By": "me"}, 200),
    ],
)
async def test_other_names_proxies_and_sites_are_turned_away(
    stage: PageStage, session: aiohttp.ClientSession, headers: dict[str, str], status: int
) -> None:
    """Whoever binds a name of theirs to this machine reads nothing of it through somebody's browser."""
    settings = PageSettings(every=0.05, hosts=("lab.example",))
    async with page_served(stage, settings=settings) as served:
        for path in ("/page", "/page/state.json", "/page/history.json"):
            got, text = await get(session, served.url + path, **headers)
            assert got == status, (path, text)
            assert status == 200 or "GPU" not in text


async def test_whatever_address_is_asked_is_answered(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """Any bytes as steps and questions: shown, not found or not understood, and never an error of ours."""
    chance = random.Random(11)
    heads = ("", "nodes/", "gpus/n0/", "pods/team/", "applications/team/Pod/", "events?view=", "history.json?since=")
    async with page_served(stage, settings=PageSettings(every=0.01)) as served:
        for _ in range(300):
            tail = "".join(f"%{chance.randrange(256):02X}" for _ in range(chance.choice((1, 3, 30, 700))))
            url = URL(f"{served.url}/page/{chance.choice(heads)}{tail}", encoded=True)
            async with session.get(url, allow_redirects=False) as answer:
                assert answer.status in {200, 400, 404}, url


async def test_everything_bears_the_policy(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """No inline script, no frame, nothing from elsewhere, nothing kept; files under their version are kept for ever."""
    async with page_served(stage) as served:
        for path in ("/page", "/page/nothing", "/page/state.json", "/page/login"):
            async with session.get(served.url + path) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Cache-Control"] == "no-store"
                if path == "/page":
                    text = await answer.text()
        assert "<style" not in text
        assert " style=" not in text
        script = text.split('type="module" src="')[1].split('"')[0]
        async with session.get(served.url + script) as answer:
            assert (answer.content_type, "immutable" in answer.headers["Cache-Control"]) == ("text/javascript", True)
        for path in ("/page/static/0/page.js", "/page/static/../routes.py", f"{script}/../../../routes.py"):
            assert (await get(session, served.url + path))[0] == 404


async def test_programs_read_the_same(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """The state as JSON, and the history since an instant."""
    async with page_served(stage) as served:
        _, text = await get(session, f"{served.url}/page/state.json")
        (node,) = json.loads(text)["nodes"]
        assert node["gpus"][0]["slices"][0] | {"owner": ""} == {
            "pod": "team/pod-u0",
            "owner": "",
            "queue": "red",
            "stage": "running",
            "compute": 60,
            "memory": 20_000,
            "whole": False,
            "usedCompute": None,
            "usedMemory": None,
            "overUse": "",
            "unpaidLaunches": None,
            "usedSince": None,
            "mostMemory": None,
            "highCompute": None,
        }

        async def has_points() -> bool:
            return bool(json.loads((await get(session, f"{served.url}/page/history.json"))[1]))

        await until(has_points)
        assert json.loads((await get(session, f"{served.url}/page/history.json?since=9e12"))[1]) == []
        assert (await get(session, f"{served.url}/page/history.json?since=x"))[0] == 400


async def test_the_command_line_reads_what_a_pod_uses(stage: PageStage) -> None:
    """As the page has it of the pod's slices."""
    use = Use(compute=7, memory=9, unpaid=2, since=5.0, most_memory=11, high_compute=8)
    stage.told.usage = Usage(at=9.0, slices={("n0", f"GPU-n0-{at}", "team/pod-u0"): use for at in range(2)})
    async with page_served(stage) as served:
        used = await read_used(Place(kubeconfig=""), page=served.url)
    assert used == {
        "team/pod-u0": Used(compute=7, memory=9, unpaid_launches=2, since=5.0, most_memory=11, high_compute=8)
    }


# --- following -------------------------------------------------------------------------------------------------------
async def test_a_reader_is_told_only_what_changed_since_its_page(
    stage: PageStage, session: aiohttp.ClientSession
) -> None:
    """The document names what it shows; the stream begins there, and again there after a break."""
    async with page_served(stage) as served:
        _, text = await get(session, f"{served.url}/page")
        since = text.split('data-serial="')[1].split('"')[0]
        stage.end("u0")
        told = events(session, f"{served.url}/page/events?view=&since={since}")
        serial, changes = await anext(told)
        assert list(changes["nodes"]["set"]) == ["n0"]
        assert "keys" not in changes["nodes"]
        assert "legend" not in changes
        await told.aclose()
        stage.submit("u1", 30, 1000, queue="red")
        stage.run()
        async with session.get(f"{served.url}/page/events?view=&since=x", headers={"Last-Event-ID": serial}) as answer:
            async for line in answer.content:
                if line.startswith(b"data: "):
                    assert set(json.loads(line[6:])) <= {"nodes", "totals"}
                    break


async def test_a_reader_who_knows_nothing_is_told_everything(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """With a serial of another leader, or none."""
    async with page_served(stage) as served:
        _, changes = await anext(events(session, f"{served.url}/page/events?view=nodes/n0&since=gone"))
        assert set(changes) == {"node-state", "gpus", "pods", "pods-rest"}


async def test_a_slow_reader_holds_up_nobody_and_costs_no_memory(
    stage: PageStage, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes nothing is cut off in time, while others are told as ever."""
    monkeypatch.setattr("aliquot_scheduler.page.routes._PATIENCE", 0.3)
    async with page_served(stage, settings=PageSettings(every=0.02)) as served:
        host, _, port = served.url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(b"GET /page/events?view= HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        await until(readers(served, 1))
        # A node with a very long reason makes each change fill what the system buffers.
        long = "x" * 2_000_000
        told = events(session, f"{served.url}/page/events?view=&since=")
        at = 0
        while served.hub.readers > 1 or at < 2:
            at += 1
            stage.picture.nodes["n0"].out = f"{at} {long}"
            async with asyncio.timeout(60):
                async for _, changes in told:
                    if f">{at} " in changes.get("nodes", {}).get("set", {}).get("n0", ""):
                        break
        assert at < 20
        writer.close()


async def test_readers_are_numbered(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """One too many is asked to come later; who leaves makes room."""
    async with page_served(stage, settings=PageSettings(every=0.05, readers=2)) as served:
        url = f"{served.url}/page/events?view="
        one, two = await session.get(url), await session.get(url)
        async with session.get(url) as answer:
            assert (answer.status, "Retry-After" in answer.headers) == (503, True)
        one.close()
        two.close()

        async def gone() -> bool:
            # A reader that is gone is found out by what is said to it.
            stage.submit(f"x{served.hub._looks}", 1, 1)
            return served.hub.readers == 0

        await until(gone)
        async with session.get(url) as answer:
            assert answer.status == 200


async def test_nobody_looks_where_nobody_reads(stage: PageStage) -> None:
    """Without readers the picture is gone over only for the history."""
    clock = VirtualClock()
    async with page_served(stage, settings=PageSettings(every=1.0, sample=60.0), clock=clock) as served:
        await clock.advance(180.0)
        assert served.hub._looks == 4


async def test_what_was_seen_a_while_ago_is_not_shown_as_of_now(
    stage: PageStage, session: aiohttp.ClientSession
) -> None:
    """Where nobody follows, whoever asks has it looked anew, but not more often than readers are told."""
    clock = VirtualClock()
    async with page_served(stage, settings=PageSettings(every=1.0, sample=3600.0), clock=clock) as served:
        await clock.advance(0.0)
        assert "60 % granted" in (await get(session, f"{served.url}/page"))[1]
        stage.end("u0")
        assert "60 % granted" in (await get(session, f"{served.url}/page"))[1]
        await clock.advance(1.0)
        assert "60 % granted" not in (await get(session, f"{served.url}/page"))[1]


async def test_readers_are_let_go_when_the_server_ends(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """A page that is open somewhere does not hold up the end of the centre."""
    async with page_served(stage) as served:
        told = events(session, f"{served.url}/page/events?view=")
        await anext(told)
        begun = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - begun < 0.4


async def test_a_view_asked_for_as_all_ends_is_no_defect(stage: PageStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the asking and the drawing the hub may end, and says what it says from then on."""
    async with page_served(stage) as served:
        hub, glance = served.hub, await served.hub.glance()

        async def last_glance() -> Glance:
            served.looking.cancel()
            return glance

        monkeypatch.setattr(hub, "glance", last_glance)
        with pytest.raises(NobodyLeadsError):
            await hub.drawn(())


async def test_without_a_leader_that_is_said(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """And the page comes back by itself."""
    stage.leads = False
    async with page_served(stage) as served:
        status, text = await get(session, f"{served.url}/page")
        assert (status, "Nobody leads just now" in text, 'http-equiv="refresh"' in text) == (503, True, True)
        stage.leads = True
        assert (await get(session, f"{served.url}/page"))[0] == 200


async def test_a_defect_while_looking_stops_nothing_else(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """What is wrong with the page is logged; it goes on when it can."""
    async with page_served(stage, settings=PageSettings(every=0.01, sample=0.01)) as served:
        turns, stage.queues = stage.queues, None  # type: ignore[assignment]  # a defect
        assert (await get(session, f"{served.url}/page"))[0] == 500
        stage.queues = turns
        before = served.hub._looks
        await until(looks(served, before + 2))
        assert (await get(session, f"{served.url}/page"))[0] == 200


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
