"""The page in a real browser: 1,000 GPUs and 5,000 pods, with everything that is used changing every five seconds.

    .venv/bin/python benchmarks/page.py [--nodes 125] [--loads 5] [--seconds 20]
    .venv/bin/python benchmarks/page.py --pictures docs

The page's own code on a played cluster serves from a process of its own, where a pod ends and another begins five
times a second; Chromium, which has to be there, says by its own counters what showing it costs. Of the server it is
measured how long its loop, on which decisions are made, was kept from others.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from aliquot_core.objects import Pod
from aliquot_scheduler.page.settings import PageSettings
from aliquot_scheduler.page.usage import Usage, Use
from support.browser import Tab, browsing
from support.centre import asks, bound
from support.centre_process import cpu_seconds, status_mib
from support.page_stage import PageStage, page_served
from support.queue_stage import queue

CARDS = 8
QUEUES = ("red", "green", "blue", "vision", "speech", "night")
SIZES = (30, 25, 20, 15, 10)
MIB_PER_PERCENT = 700
USAGE_EVERY = 5.0
POD_EVERY = 0.2
BORN = "2026-11-21T10:00:00Z"
_LOOK = 0.002
Place = tuple[str, str, int]


class Town(PageStage):
    """A full cluster that is never still."""

    def __init__(self, *, nodes: int) -> None:
        super().__init__({name: queue() for name in QUEUES}, nodes=(CARDS,) * nodes)
        self.chance = random.Random(7)
        self.lies: dict[str, Place] = {}
        for node in self.picture.nodes.values():
            for gpu in node.inventory.gpus:
                for size in SIZES:
                    self.come((node.name, gpu.uuid, size))
        self.use()

    def come(self, place: Place) -> None:
        """A pod begins."""
        node, gpu, size = place
        uid = f"u{self._born:06}"
        self._born += 1
        name = self.chance.choice(QUEUES)
        pod: Pod = asks(
            uid,
            size,
            size * MIB_PER_PERCENT,
            labels={"aliquot.dev/queue": name},
            creationTimestamp="2026-11-21T10:00:00Z",
        )
        pod = bound(pod, node=node, held={gpu: (size, size * MIB_PER_PERCENT)})
        self.see(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Running")))
        self.lies[uid] = place

    def use(self) -> None:
        """Everybody uses another part of what they have."""
        gpus: dict[tuple[str, str], list[int]] = {}
        slices = {}
        for uid, (node, gpu, size) in self.lies.items():
            used = self.chance.randint(0, size)
            slices[node, gpu, f"team/pod-{uid}"] = Use(compute=used, memory=used * MIB_PER_PERCENT)
            gpus.setdefault((node, gpu), []).append(used)
        of = {key: Use(compute=sum(parts), memory=sum(parts) * MIB_PER_PERCENT) for key, parts in gpus.items()}
        self.told.usage = Usage(at=time.time(), gpus=of, slices=slices)

    async def live(self) -> None:
        """Pods come and go."""
        until = time.monotonic() + USAGE_EVERY
        while True:
            await asyncio.sleep(POD_EVERY)
            uid = self.chance.choice(list(self.lies))
            place = self.lies.pop(uid)
            self.gone(uid)
            self.come(place)
            if time.monotonic() > until:
                self.use()
                until += USAGE_EVERY


async def serve(nodes: int) -> None:
    """Be the server: tell the address, and at each line of input how long others were kept waiting since the last."""
    town = Town(nodes=nodes)
    lags: list[float] = []

    async def beat() -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(_LOOK)
            lags.append(time.perf_counter() - begun - _LOOK)

    async with page_served(town, settings=PageSettings()) as served:
        living, beating = asyncio.ensure_future(town.live()), asyncio.ensure_future(beat())
        print(served.url, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            found, lags[:] = sorted(lags), []
            print(*(f"{1000 * found[int(len(found) * at)]:.1f}" for at in (0.5, 0.99, 0.9999)), flush=True)
        for task in (living, beating):
            task.cancel()


@asynccontextmanager
async def server(nodes: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A process that serves, and where."""
    command = [sys.executable, __file__, "--serve", "--nodes", str(nodes)]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert process.stdout
    assert process.stdin
    try:
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


async def metrics(tab: Tab) -> dict[str, float]:
    """The browser's own counters, in seconds."""
    told = await tab.ask("Performance.getMetrics")
    return {one["name"]: one["value"] for one in told["metrics"]}


async def first_paint(tab: Tab, url: str) -> float:
    """Milliseconds until something was seen."""
    await tab.open(url)
    await tab.until_true("performance.getEntriesByName('first-contentful-paint').length")
    return float(await tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))


# Every callback of the page's own for a frame, and every message that it reads, is timed; the frames of the benchmark
# itself, which scrolls as a reader would, are not.
WATCH = """(() => {
  window.seen = {took: [], slices: [], idle: 0, long: [], gap: 0, parts: 0};
  const told = (since) => {
    const took = performance.now() - since;
    seen.slices.push(took);
    seen.took[seen.took.length - 1] += took;
  };
  const [frame, parse] = [window.requestAnimationFrame.bind(window), JSON.parse];
  window.requestAnimationFrame = (work) => frame((now) => { const since = performance.now(); work(now); told(since); });
  const idle = window.requestIdleCallback.bind(window);
  window.requestIdleCallback = (work, how) => idle(() => {
    const since = performance.now();
    work();
    seen.idle += performance.now() - since;
  }, how);
  JSON.parse = (text) => {
    const since = performance.now();
    const found = parse(text);
    seen.took.push(0);
    told(since);
    return found;
  };
  new PerformanceObserver((list) => list.getEntries().forEach((e) => seen.long.push(e.duration)))
    .observe({type: 'longtask', buffered: false});
  new MutationObserver((found) => { seen.parts += found.length; })
    .observe(document.getElementById('main'), {childList: true, subtree: true});
  let last = performance.now();
  const scroll = (now) => { seen.gap = Math.max(seen.gap, now - last); last = now; scrollBy(0, 3); frame(scroll); };
  frame(scroll);
})()"""
COUNTERS = ("RecalcStyleDuration", "LayoutDuration", "TaskDuration")


async def measure(*, nodes: int, loads: int, seconds: float) -> None:
    """Load, then watch, and print."""
    async with server(nodes) as (process, url), browsing() as tab:
        paints = [await first_paint(tab, f"{url}/page") for _ in range(loads)]
        size = await tab.evaluate("performance.getEntriesByType('navigation')[0].decodedBodySize")
        elements = await tab.evaluate("document.querySelectorAll('*').length")
        print(f"{nodes * CARDS} GPUs, {nodes * CARDS * len(SIZES)} pods: {size / 1e6:.2f} MB, {elements} elements")
        print(f"first paint: median {statistics.median(paints):.0f} ms, at most {max(paints):.0f} ms (n={loads})")
        await tab.until_true("document.getElementById('live').textContent.startsWith('Live')")
        await lagged(process)
        before, cpu = await metrics(tab), cpu_seconds(process.pid)
        await tab.evaluate(WATCH)
        await asyncio.sleep(seconds)
        seen = await tab.evaluate("seen")
        after = await metrics(tab)
        style, layout, everything = (1000 * (after[name] - before[name]) / seconds for name in COUNTERS)
        took, slices = sorted(seen["took"]), seen["slices"]
        print(f"{seconds:.0f} s, {len(took)} updates, {seen['parts']} parts replaced")
        print(
            f"script for an update: median {statistics.median(took):.1f} ms, at most {took[-1]:.1f} ms, in slices of "
            f"{max(slices):.1f} ms at most; for what is off the screen {seen['idle'] / len(took):.1f} ms, in idle time"
        )
        print(
            f"each second: style {style:.1f} ms, layout {layout:.1f} ms, the whole browser's page {everything:.0f} ms"
        )
        long, gap = seen["long"], seen["gap"]
        print(f"tasks over 50 ms: {len(long)}, longest {max(long, default=0):.0f} ms; between two frames {gap:.0f} ms")
        used = (cpu_seconds(process.pid) - cpu) / seconds
        p50, p99, most = await lagged(process)
        print(f"server with one reader: {100 * used:.0f} % of a CPU, {status_mib(process.pid, 'VmRSS'):.0f} MiB")
        print(f"its loop kept others waiting: p50 {p50} ms, p99 {p99} ms, at most {most} ms")


async def draw(folder: Path) -> None:
    """The pictures of the documents: a small town by day and by night."""
    async with server(6) as (_, url), browsing() as tab:
        for name, scheme in (("page-light", "light"), ("page-dark", "dark")):
            await tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            await tab.open(f"{url}/page")
            await tab.until_true("document.getElementById('live').textContent.startsWith('Live')")
            await tab.picture(folder / f"{name}.png", width=1200, height=760)


async def lagged(process: asyncio.subprocess.Process) -> list[str]:
    """Since it was asked last."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"\n")
    return (await process.stdout.readline()).decode().split()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=125)
    parser.add_argument("--loads", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--pictures", metavar="FOLDER", help="only draw the pictures of the documents there")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    asyncio.run(
        serve(options.nodes)
        if options.serve
        else draw(Path(options.pictures))
        if options.pictures
        else measure(nodes=options.nodes, loads=options.loads, seconds=options.seconds)
    )
