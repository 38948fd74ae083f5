"""The page in a real browser: clicked through, followed live, read by keyboard and screen reader, and attacked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from aliquot_core.objects import OwnerReference, PodCondition
from aliquot_scheduler.page.usage import Usage, Use
from support.browser import ScriptError, Tab, browsing
from support.page_stage import PageStage, page_served
from support.queue_stage import queue

# One browser for all of them: it takes a second to begin.
pytestmark = pytest.mark.asyncio(loop_scope="module")

EVIL = '"><script>window.hit = 1</script><img src=x onerror="window.hit = 2"><svg onload="window.hit = 3">\'&lt;b&gt;'
replace = msgspec.structs.replace


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Tab]:
    """A browser."""
    async with browsing() as tab:
        yield tab


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Tab) -> Tab:
    """Its page, of which nothing is known yet, at a light system."""
    await browser.open("about:blank")
    await appearance(browser, "light")
    browser.said.clear()
    browser.requests.clear()
    browser.dialogs.clear()
    return browser


async def appearance(tab: Tab, scheme: str) -> None:
    """What the reader's system prefers."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    await tab.ask("Emulation.setEmulatedMedia", features=features)


@pytest.fixture
def stage() -> PageStage:
    """Two nodes, three queues, pods that run and pods that wait."""
    stage = PageStage({"red": queue(guarantee=200, limit=400), "blue": queue(), "grey": queue()}, nodes=(2, 1))
    for number, (where, compute) in enumerate((("red", 60), ("blue", 40), ("red", 100), ("blue", 30))):
        stage.submit(f"u{number}", compute, 20_000, queue=where, user="team")
    stage.run()
    owner = OwnerReference(kind="ReplicaSet", name="web-5d4f", controller=True)
    meta = stage.pods["u0"].metadata
    labels = meta.labels | {"pod-template-hash": "5d4f"}
    stage.see(replace(stage.pods["u0"], metadata=replace(meta, labels=labels, owner_references=[owner])))
    stage.submit("late", 100, 10_000, queue="grey", user="team")
    stage.round(after=1.0)
    return stage


async def text(tab: Tab, selector: str = "main") -> str:
    """What is written there."""
    return str(await tab.evaluate(f"document.querySelector({selector!r}).innerText"))


async def live(tab: Tab, url: str) -> None:
    """Go there, and wait until it is followed."""
    await tab.open(url)
    await tab.until_true("document.getElementById('live').textContent.startsWith('Live')")


async def test_every_view_is_whole_and_asks_nobody_else(tab: Tab, stage: PageStage) -> None:
    """No view throws, breaks its own policy, or loads anything from another place."""
    async with page_served(stage) as served:
        paths = ("", "/queues", "/waiting", "/applications", "/history", "/nodes/n0", "/gpus/n0/GPU-n0-0")
        for path in (*paths, "/pods/team/pod-u0", "/applications/team/Deployment/web"):
            await live(tab, f"{served.url}/page{path}")
            assert await tab.evaluate("document.querySelectorAll('h1').length") == 1
        assert all(url.startswith((served.url, "about:")) for url in tab.requests)
        # Now: of a server that ends a browser may say what it likes.
        assert tab.said == []


async def test_a_reader_clicks_from_the_cluster_down_to_a_pod_and_back(tab: Tab, stage: PageStage) -> None:
    """Cluster, node, GPU, pod, application, queues: each is one click from the one before."""
    async with page_served(stage) as served:
        await tab.open(f"{served.url}/")
        for link, heading in (
            ('a[href="/page/nodes/n0"]', "Node n0"),
            ('a[href="/page/gpus/n0/GPU-n0-0"]', "GPU 0 of n0"),
            ('#slices a[href$="/pod-u0"]', "Pod team/pod-u0"),
            ('dd a[href^="/page/applications/"]', "Deployment team/web"),
            ('nav a[href="/page/queues"]', "Queues"),
            ('nav a[href="/page/waiting"]', "Waiting"),
            ('nav a[href="/page"]', "Cluster"),
        ):
            await tab.click(link)
            await tab.until_true(f"document.querySelector('h1')?.textContent === {heading!r}")
        assert await tab.evaluate("document.querySelector('nav [aria-current]').textContent") == "Cluster"


async def test_what_happens_is_seen_without_a_reload(tab: Tab, stage: PageStage) -> None:
    """A pod that ends gives its slice back on the page, and the one that waited is shown to run."""
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page")
        await tab.evaluate("window.here = true")
        assert "100 % granted" in await text(tab, '[data-key="n0"]')
        stage.end("u2")
        await tab.until_true("/\\b0 % granted/.test(document.querySelector('[data-key=n0]').innerText)")
        stage.run(after=10.0)
        await tab.until_true("document.querySelector('#totals [data-key=waiting] .big').textContent === '0'")
        assert await tab.evaluate("window.here") is True


async def test_evictions_are_one_number_wherever_they_are_told(tab: Tab, stage: PageStage) -> None:
    """On the card, in the table under the chart, and for programs: what the centre has counted, by what for."""
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page")
        stage.evicted["for others"] = 50
        await tab.until_true("document.querySelector('#totals [data-key=evicted] .big').textContent === '50'")
        stage.evicted["for over-use"] = 6
        await tab.until_true("document.querySelector('#totals [data-key=evicted] .big').textContent === '56'")
        assert "50 for others, 6 for over-use" in await text(tab, "#totals [data-key=evicted]")
        told = "fetch('/page/state.json').then((answer) => answer.json())"
        assert (await tab.evaluate(f"{told}.then((state) => state.totals.evicted)")) == 56
        kept = "fetch('/page/history.json').then((answer) => answer.json())"
        total = f"{kept}.then((points) => points.reduce((sum, one) => sum + one.evicted, 0))"
        await tab.until_true(f"{total}.then((sum) => sum === 56)")
        await live(tab, f"{served.url}/page/history")
        assert "50 for others" in await text(tab, "#samples")
        lines = "document.querySelectorAll('#chart-evictions .u-legend .u-series').length"
        await tab.until_true(f"{lines} === 4")
        # A cause that comes while it is looked at gets its line.
        stage.evicted["as their group was broken"] = 1
        await tab.until_true(f"{lines} === 5")
        assert "as their group was broken" in await text(tab, "#chart-evictions .u-legend")


@pytest.mark.parametrize("path", ["", "/waiting", "/queues", "/history", "/nodes/n0"])
async def test_that_nothing_is_decided_stands_above_every_view(tab: Tab, stage: PageStage, path: str) -> None:
    """As long as it is so."""
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page{path}")
        assert "not been heard" not in await text(tab)
        stage.deaf = "the API server has not been heard for 9 s"
        await tab.until_true(f"document.querySelector('#paused').innerText.includes({stage.deaf!r})")
        stage.deaf = ""
        await tab.until_true("document.querySelector('#paused').innerText === ''")


@pytest.mark.parametrize(
    ("path", "region"),
    [("/waiting", "waiting"), ("/queues", "queues-compute"), ("/applications", "applications"), ("/nodes/n0", "gpus")],
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_on_a_phone_all_of_a_row_is_seen(tab: Tab, stage: PageStage, path: str, region: str, scheme: str) -> None:
    """Each cell lies within the screen, whole and with its column's name; on a large screen it is a table."""
    cells = f"[...document.querySelectorAll('#{region} td')]"
    seen = "cell.getBoundingClientRect().right <= innerWidth && cell.scrollWidth <= cell.clientWidth"
    named = "getComputedStyle(cell, '::before').content === JSON.stringify(cell.dataset.head) && cell.dataset.head"
    async with page_served(stage) as served:
        await appearance(tab, scheme)
        try:
            await tab.ask("Emulation.setDeviceMetricsOverride", width=375, height=800, deviceScaleFactor=1, mobile=True)
            await live(tab, f"{served.url}/page{path}")
            assert await tab.evaluate(f"{cells}.length") > 0
            assert await tab.evaluate(f"{cells}.filter((cell) => !({seen})).map((cell) => cell.innerText)") == []
            assert await tab.evaluate(f"{cells}.every((cell) => {named})") is True
            # A name that is broken would lie over the next, one that is too long over what it is of.
            apart = (
                "before.height <= cell.clientHeight && before.width < parseFloat(getComputedStyle(cell).paddingLeft)"
            )
            sized = "((style) => ({height: parseFloat(style.height), width: parseFloat(style.width)}))"
            named_apart = f"((before) => {apart})({sized}(getComputedStyle(cell, '::before')))"
            assert await tab.evaluate(f"{cells}.every((cell) => {named_apart})") is True
            assert await tab.evaluate("document.documentElement.scrollWidth") <= 375
        finally:
            await tab.ask("Emulation.clearDeviceMetricsOverride")
        assert await tab.evaluate(f"{cells}.every((cell) => getComputedStyle(cell).display === 'table-cell')") is True


async def test_on_a_phone_what_is_said_of_a_gpu_is_whole(tab: Tab, stage: PageStage) -> None:
    """To the number of its pods."""
    whole = "[...document.querySelectorAll('.gpus span')].every((one) => one.scrollWidth <= one.clientWidth)"
    async with page_served(stage) as served:
        try:
            await tab.ask("Emulation.setDeviceMetricsOverride", width=375, height=800, deviceScaleFactor=1, mobile=True)
            await live(tab, f"{served.url}/page")
            assert await tab.evaluate("document.querySelectorAll('.gpus span').length") == 3
            assert await tab.evaluate(whole) is True
        finally:
            await tab.ask("Emulation.clearDeviceMetricsOverride")


async def test_granted_is_shown_against_used(tab: Tab, stage: PageStage) -> None:
    """What is used comes on the page when it is known, and is called unknown until then."""
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page/pods/team/pod-u0")
        assert "unknown" in await text(tab, "#slices")
        stage.told.usage = Usage(at=1.0, slices={("n0", "GPU-n0-0", "team/pod-u0"): Use(compute=37, memory=1024)})
        await tab.until_true("document.querySelector('#slices').innerText.includes('37 %')")
        assert "1.0 GiB" in await text(tab, "#slices")


async def test_new_rows_come_in_their_order_and_old_ones_go(tab: Tab, stage: PageStage) -> None:
    """A table that is followed for a while is the one that a new reader gets."""
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page/waiting")
        for number in range(5):
            stage.submit(f"new{number}", 100, 1000, queue="grey", user="abc"[number % 3], priority=number)
        stage.gone("late")
        rows = "[...document.querySelectorAll('#waiting tr')].map((row) => row.dataset.key)"
        await tab.until_true(f"{rows}.length === 5 && !document.body.innerText.includes('team/pod-late')")
        followed = await tab.evaluate(rows)
        await live(tab, f"{served.url}/page/waiting")
        assert await tab.evaluate(rows) == followed
        assert len(followed) == 5


async def test_a_table_without_rows_is_not_shown(tab: Tab, stage: PageStage) -> None:
    """Nor its headings, while it is followed; with its first row it is there again."""
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page/waiting")
        shown = "document.querySelector('#waiting').checkVisibility()"
        await tab.until_true(shown)
        stage.gone("late")
        await tab.until_true(f"document.body.innerText.includes('Nobody waits.') && !{shown}")
        stage.submit("new", 100, 1000, queue="grey")
        await tab.until_true(shown)
        assert "team/pod-new" in await text(tab, "#waiting")


async def test_nothing_that_a_user_wrote_becomes_markup(tab: Tab, stage: PageStage) -> None:
    """A name, an owner, an annotation and a condition full of markup are shown as they were written; no script runs."""
    pod = stage.pods["late"]
    conditions = [PodCondition(type=EVIL, status="False", reason=EVIL, message=EVIL)]
    meta = replace(
        pod.metadata,
        name=EVIL,
        annotations={"aliquot.dev/note": EVIL, f"aliquot.dev/{EVIL}": "javascript:alert(1)"},
        owner_references=[OwnerReference(kind=EVIL, name=EVIL, controller=True)],
    )
    stage.see(replace(pod, metadata=meta, status=replace(pod.status, conditions=conditions)))
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page/waiting")
        await tab.click("#waiting a")
        await tab.until_true("document.querySelector('#notes')")
        await tab.until_true("document.getElementById('live').textContent === 'Live'")
        for part in ("h1", "#conditions", "#notes", "#pod"):
            assert EVIL in str(await tab.evaluate(f"document.querySelector({part!r}).textContent")), part
        # And again by the stream of changes.
        changed = replace(stage.pods["late"].status, conditions=[PodCondition(type="T", message=f"later {EVIL}")])
        stage.see(replace(stage.pods["late"], status=changed))
        await tab.until_true("document.querySelector('#conditions').textContent.includes('later')")
        assert f"later {EVIL}" in str(await tab.evaluate("document.querySelector('#conditions').textContent"))
        await live(tab, f"{served.url}/page/applications")
        assert await tab.evaluate("window.hit === undefined && !document.querySelector('main img, main script')")
        assert await tab.evaluate("[...document.links].every((link) => link.protocol === 'http:')")
        assert tab.dialogs == []
        assert tab.said == []


async def test_markup_that_got_in_all_the_same_would_do_nothing(tab: Tab, stage: PageStage) -> None:
    """The policy takes no inline script or handler, no style, and no element made of text but by the page itself."""
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page")
        with pytest.raises(ScriptError, match="TrustedHTML"):
            await tab.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit=1\">')")
        with pytest.raises(ScriptError, match="TrustedScript"):
            await tab.evaluate("document.body.setAttribute('onclick', 'window.hit = 4')")
        with pytest.raises(ScriptError, match="disallowed"):
            await tab.evaluate("trustedTypes.createPolicy('mine', {createHTML: (text) => text})")
        inline = (
            "document.head.append(Object.assign(document.createElement('style'), {textContent: 'h1 {color: red}'}))"
        )
        await tab.evaluate(inline)
        await tab.until(lambda: any("inline style" in said for said in tab.said))
        assert await tab.evaluate("window.hit === undefined")
        await tab.evaluate("fetch('http://127.0.0.2:9/').catch(() => null)")
        await tab.until(lambda: any("Content Security Policy" in said and "127.0.0.2" in said for said in tab.said))


async def test_everything_is_reached_by_keyboard(tab: Tab, stage: PageStage) -> None:
    """The first stop jumps over the menu, a key leads to the filter, the filter hides, and focus survives a change."""
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page")
        await tab.press("Tab", code=9)
        assert await tab.evaluate("document.activeElement.textContent") == "Skip to content"
        await tab.press("Enter", code=13, text="\r")
        await tab.until_true("document.activeElement.id === 'main'")
        await tab.press("/", code=191, text="/")
        assert await tab.evaluate("document.activeElement.id") == "filter-nodes"
        await tab.write("n1")
        await tab.until_true("document.querySelector('[data-key=n0]').hidden")
        assert await tab.evaluate("document.querySelector('[data-key=n1]').hidden") is False
        await tab.evaluate("document.querySelector('#nodes [data-key=n1] a[href*=gpus]').focus()")
        before = await text(tab, '[data-key="n1"]')
        stage.end("u3")
        await tab.until_true(f"document.querySelector('[data-key=n1]').innerText !== {before!r}")
        assert "/gpus/n1/" in str(await tab.evaluate("document.activeElement.getAttribute('href')"))
        assert await tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        stage.end("u2")
        await tab.until_true("document.querySelector('[data-key=n0]').textContent.includes('GPU 10 % granted')")
        assert await tab.evaluate("document.querySelector('[data-key=n0]').hidden") is True


async def test_a_screen_reader_finds_its_way(tab: Tab, stage: PageStage) -> None:
    """Landmarks, one heading of the first order, captions and scopes of tables, names of all links, a polite status."""
    async with page_served(stage) as served:
        for path in ("", "/queues", "/waiting", "/applications", "/history", "/gpus/n0/GPU-n0-0", "/pods/team/pod-u0"):
            await live(tab, f"{served.url}/page{path}")
            nodes = await accessible(tab)
            roles = {role for role, _ in nodes}
            assert {"banner", "navigation", "main", "status"} <= roles, path
            assert all(name for role, name in nodes if role in {"link", "button", "searchbox", "table", "heading"}), (
                path
            )
            assert await tab.evaluate(
                "[...document.querySelectorAll('main table:has(tbody[id])')].every((t) => t.caption)"
            )
            assert await tab.evaluate("[...document.querySelectorAll('.scroll th')].every((cell) => cell.scope)")
            assert await tab.evaluate("document.documentElement.lang") == "en"
        await live(tab, f"{served.url}/page")
        names = [name for role, name in await accessible(tab) if role == "link"]
        assert any(name.startswith("GPU 0") and "% granted" in name for name in names)


async def accessible(tab: Tab) -> list[tuple[str, str]]:
    """What the browser tells a screen reader: roles and names."""
    tree: dict[str, Any] = await tab.ask("Accessibility.getFullAXTree")
    nodes = (node for node in tree["nodes"] if not node.get("ignored"))
    return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes]


async def test_light_and_dark_follow_the_system_until_the_reader_chooses(tab: Tab, stage: PageStage) -> None:
    """And the choice is kept from page to page; text stands out from its ground in both."""
    ground = "getComputedStyle(document.body).backgroundColor"
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page")
        light = await tab.evaluate(ground)
        assert await contrast(tab) > 7
        await appearance(tab, "dark")
        assert await tab.evaluate(ground) != light
        assert await contrast(tab) > 7
        await tab.click("#theme")
        assert (await tab.evaluate(ground), await text(tab, "#theme")) == (light, "Theme: light")
        await live(tab, f"{served.url}/page/queues")
        assert (await tab.evaluate(ground), await text(tab, "#theme")) == (light, "Theme: light")
        await appearance(tab, "light")
        await tab.click("#theme")
        assert (await tab.evaluate(ground) != light, await text(tab, "#theme")) == (True, "Theme: dark")
        assert await contrast(tab) > 7
        await tab.evaluate("localStorage.clear()")


async def contrast(tab: Tab) -> float:
    """Of text and ground, as WCAG counts it."""
    script = """(() => {
      const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
      const light = (c) => { const [r, g, b] = c.match(/\\d+/g).map(Number);
        return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
      const style = getComputedStyle(document.body);
      const [a, b] = [light(style.color), light(style.backgroundColor)].sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05); })()"""
    return float(await tab.evaluate(script))


async def test_history_is_drawn_and_told(tab: Tab, stage: PageStage) -> None:
    """Points come as time passes, as lines on a canvas and as rows of a table."""
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page/history")
        await tab.until_true("document.querySelectorAll('#samples tr').length >= 3")
        await tab.until_true("document.querySelectorAll('.chart canvas').length === 3")
        assert tab.said == []


async def test_a_page_whose_leader_is_gone_says_so_and_comes_back(tab: Tab, stage: PageStage) -> None:
    """It is not shown as if it were still true, and is true again without a click."""
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page")
        stage.leads = False
        await tab.until_true("document.getElementById('live')?.textContent.startsWith('Connection lost')")
        # The browser has asked again, and was refused: from there on the page asks.
        await tab.until(lambda: any("503" in said for said in tab.said))
        stage.leads = True
        stage.end("u2")
        await tab.until_true("/\\b0 % granted/.test(document.querySelector('[data-key=n0]')?.innerText)")


async def test_a_pod_that_is_deleted_while_it_is_looked_at_is_told_to_be_gone(tab: Tab, stage: PageStage) -> None:
    """Its page does not stand still."""
    async with page_served(stage) as served:
        await live(tab, f"{served.url}/page/pods/team/pod-u0")
        stage.gone("u0")
        await tab.until_true("document.querySelector('main')?.innerText.includes('There is no such pod')")
