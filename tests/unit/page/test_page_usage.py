"""What is used, read from pages of metrics."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.gpus.model import GpuUsage
from aliquot_agent.isolation.ladder import Rung
from aliquot_agent.web.accounts import Accounts, SliceUse
from aliquot_agent.web.exposition import write
from aliquot_agent.web.figures import Figures, Sampled
from aliquot_agent.web.metrics import FiguresCollector, SlicesCollector
from aliquot_core.inventory import Gpu, Inventory
from aliquot_scheduler.page import scraping
from aliquot_scheduler.page.usage import RUNGS, NoUsage, Usage, Use, read_usage
from support.clocks import VirtualClock
from support.page_stage import until

MIB = 1024 * 1024


def test_an_agent_s_own_page_is_understood() -> None:
    """What an agent writes of its node is read back, with the node's name, pods' containers summed up."""
    slices = tuple(
        SliceUse(
            namespace="team",
            pod='odd"pod',
            container=name,
            gpu="GPU-1",
            compute=20,
            limit=20,
            memory_mib=100,
            used_percent=7,
            used_mib=30,
        )
        for name in ("one", "two")
    )
    figures = Figures(
        node="n1",
        version="0",
        inventory=Inventory(gpus=(Gpu(uuid="GPU-1", index=0, model="A100", memory=1000),)),
        sampled=Sampled(
            at=1.0,
            usages={"GPU-1": GpuUsage(uuid="GPU-1", memory_used_mib=70, utilization_percent=15)},
            claims={},
        ),
    )
    page = write([*FiguresCollector(figures).collect(), *SlicesCollector(slices).collect()])
    usage = read_usage({"a": page.decode()}, at=5.0)
    assert usage.of_gpu("n1", "GPU-1") == Use(compute=15, memory=70)
    assert usage.of_slice("n1", "GPU-1", 'team/odd"pod') == Use(compute=14, memory=60)
    assert usage.at == 5.0


def test_over_use_is_read_as_the_agent_writes_it() -> None:
    """Of two containers of a pod the one counts with which the agent has gone further; who keeps inside has none."""
    slices = tuple(
        SliceUse(namespace="team", pod=pod, uid=pod, container=name, gpu="G", compute=20, limit=20, memory_mib=100)
        for pod, name in (("hog", "one"), ("hog", "two"), ("calm", "one"))
    )
    rungs = {("hog", "one", "G"): Rung.THROTTLE, ("hog", "two", "G"): Rung.WARN}
    figures = Figures(node="n1", version="0", sampled=Sampled(at=1.0, accounts=Accounts(slices=slices)), over_use=rungs)
    usage = read_usage({"a": write(FiguresCollector(figures).collect()).decode()}, at=5.0)
    assert usage.of_slice("n1", "G", "team/hog") == Use(over_use="throttle")
    assert usage.of_slice("n1", "G", "team/calm") == Use()


def test_launches_that_passed_unpaid_are_read_as_the_agent_writes_them() -> None:
    """Those of a pod's containers together; of who is not paced nothing is known."""
    slices = tuple(
        SliceUse(namespace="team", pod=pod, uid=pod, container=name, gpu="G", compute=20, limit=20, memory_mib=100)
        for pod, name in (("long", "one"), ("long", "two"), ("whole", "one"))
    )
    unpaid = {("long", "one", "G"): 3, ("long", "two", "G"): 4}
    figures = Figures(node="n1", version="0", sampled=Sampled(at=1.0, accounts=Accounts(slices=slices)), unpaid=unpaid)
    usage = read_usage({"a": write(FiguresCollector(figures).collect()).decode()}, at=5.0)
    assert usage.of_slice("n1", "G", "team/long") == Use(unpaid=7)
    assert usage.of_slice("n1", "G", "team/whole") == Use()


def test_rungs_are_those_of_the_ladder() -> None:
    """What an agent may say, the page knows, in the same order."""
    assert [rung.name.lower() for rung in Rung if rung] == list(RUNGS)


def test_a_page_of_many_nodes_says_whose_each_line_is() -> None:
    """Samples that bear a node's name are that node's, whatever page they stand on."""
    text = "".join(f'aliquot_gpu_compute_used_ratio{{UUID="G",node="n{at}"}} 0.{at}\n' for at in range(1, 4))
    usage = read_usage({"federation": text}, at=0.0)
    assert [usage.of_gpu(f"n{at}", "G").compute for at in range(1, 4)] == [10, 20, 30]


def test_pages_of_nodes_whose_gpus_bear_the_same_names_are_kept_apart() -> None:
    """As simulated ones do: each page says once whose it is."""
    build, use = (
        'aliquot_build_info{{version="0",node="n{0}"}} 1\n',
        'aliquot_gpu_compute_used_ratio{{UUID="G"}} 0.{0}\n',
    )
    pages = {f"page{at}": build.format(at) + use.format(at) for at in (1, 2)}
    usage = read_usage(pages, at=0.0)
    assert [usage.of_gpu(f"n{at}", "G").compute for at in (1, 2, 3)] == [10, 20, None]


def test_a_page_that_names_no_node_is_good_for_a_gpu_s_own_uuid() -> None:
    """A real GPU's uuid is of one node, so the node need not be told."""
    usage = read_usage({"x": 'aliquot_gpu_memory_used_bytes{UUID="GPU-7"} 1048576\n'}, at=0.0)
    assert usage.of_gpu("anywhere", "GPU-7") == Use(memory=1)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "x", "1e300"])
def test_what_is_no_figure_is_passed_over(value: str) -> None:
    """No number that can't be is shown."""
    assert read_usage({"x": f'aliquot_gpu_memory_used_bytes{{UUID="G"}} {value}\n'}, at=0.0).gpus == {}


@given(text=st.text())
def test_any_text_is_read(text: str) -> None:
    """Whatever an address answers, reading it ends without an error."""
    tail = f'\naliquot_gpu_compute_used_ratio{{UUID="G",node="n"}} 0.5\n{text}'
    assert read_usage({"x": text + tail}, at=0.0).of_gpu("n", "G").compute in {50, None}


async def test_who_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """By its node, once it has told that, and in a word where the error has none; once for a whole outage."""
    silent, asked = asyncio.Event(), list[None]()

    async def metrics(_: web.Request) -> web.Response:
        asked.append(None)
        if silent.is_set():
            await asyncio.Event().wait()
        return web.Response(text='aliquot_build_info{version="0",node="n1"} 1\n')

    async def answered() -> bool:
        return usage.latest().at is not None

    app, clock = web.Application(), VirtualClock()
    app.add_routes([web.get("/metrics", metrics)])
    monkeypatch.setattr(scraping, "_PATIENCE", aiohttp.ClientTimeout(total=0.2))
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"
    usage = scraping.ScrapedUsage(addresses=[address], every=1.0, clock=clock)
    running = asyncio.create_task(usage.run())
    try:
        async with asyncio.timeout(60):
            # On a busy machine the first answer may be late too: what is told of that counts for nothing.
            await until(answered)
            caplog.clear()
            silent.set()
            while len(asked) < 4:
                await clock.advance(1.0)
                await asyncio.sleep(0)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await runner.cleanup()
    lines = [vars(line) for line in caplog.records if line.message == "what is used is not told"]
    assert [(line["address"], line["node"]) for line in lines] == [(address, "n1")]
    assert "Timeout" in lines[0]["error"]


def test_where_nobody_tells_all_is_unknown() -> None:
    """The door without a source says nothing, not zero."""
    assert NoUsage().latest() == Usage()
    assert Usage().of_slice("n", "g", "p") == Use()
