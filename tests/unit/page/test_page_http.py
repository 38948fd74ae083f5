"""The page's addresses over real sockets on this machine: what is shown to whom, and what is not."""

from __future__ import annotations

import json
import random

import aiohttp
import pytest
from yarl import URL

from aliquot_cli.cluster import Place
from aliquot_cli.pod_rows import Used
from aliquot_cli.usage import read_used
from aliquot_scheduler.page.settings import PageSettings
from aliquot_scheduler.page.usage import Usage, Use
from support.page_stage import PageStage, get, page_served, until


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
