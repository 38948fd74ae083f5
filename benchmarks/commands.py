"""What people wait for at their terminal: the commands before an `aliquot up` of this machine, and a screen of `top`.

    .venv/bin/python benchmarks/commands.py                     # prints a table
    .venv/bin/python benchmarks/commands.py --svg docs/top.svg  # draws the picture of the README, and measures nothing

Wall time and CPU time are the command's own, from its start to its end; the least of many is what it takes on a
machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from aliquot_cli.top.app import TopApp
from aliquot_cli.top.frame import Choice, Frame
from aliquot_scheduler.page.model import State
from support.top_scene import busy

COMMAND = str(Path(sys.executable).with_name("aliquot"))
_READY_WITHIN = 60.0
_ELSEWHERE = re.compile(r"@font-face \{.*?\}|<!--.*?-->", re.DOTALL)


@contextmanager
def up() -> Iterator[dict[str, str]]:
    """An `aliquot up` in a folder of its own; gives the environment of its user."""
    with tempfile.TemporaryDirectory(prefix="ab-") as folder:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("ALIQUOT_", "KUBECONFIG"))}
        given = {**plain, "ALIQUOT_HOME": folder}
        options = ["--simulate", "8xA100-80GB", "--port", "0", "--page-port", "0"]
        with subprocess.Popen([COMMAND, "up", *options], env=given, stdout=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + _READY_WITHIN
            while not (Path(folder) / "up.json").exists():
                if time.monotonic() > deadline or process.poll() is not None:
                    raise SystemExit("aliquot up did not come up")
                time.sleep(0.1)
            try:
                yield given
            finally:
                process.send_signal(signal.SIGINT)
                process.wait()


def timed(arguments: Sequence[str], *, env: dict[str, str], times: int) -> tuple[list[float], list[float]]:
    """Wall and CPU time of a command, each time it is run."""
    wall, cpu = [], []
    for _ in range(times):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(arguments, env=env, stdout=subprocess.DEVNULL, check=True)
        wall.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return wall, cpu


def milliseconds(seconds: Sequence[float]) -> str:
    """The least and the median."""
    return f"{1000 * min(seconds):.0f} / {1000 * statistics.median(seconds):.0f}"


def measure_commands(*, times: int) -> None:
    """Print what each command takes."""
    with up() as env:
        for words in (["--help"], ["run", "--", "true"], ["ps"], ["queue"], ["top", "--once"]):
            wall, cpu = timed([COMMAND, *words], env=env, times=times)
            print(f"| `aliquot {' '.join(words)}` | {milliseconds(wall)} | {milliseconds(cpu)} |")
        wall, cpu = timed(["true"], env=env, times=times)
        print(f"| `true` | {milliseconds(wall)} | {milliseconds(cpu)} |")


def measure_frames() -> None:
    """Print what a screen of a large cluster takes."""
    state = busy(nodes=125)
    pods, gpus = len(state.pods), state.totals.gpus

    def frame(choice: Choice) -> None:
        made = Frame(state=state, choice=choice, source="")
        made.head(160)
        for number in range(50):
            made.line(number, 160)

    for title, choice in (("GPUs", Choice()), ("GPUs, sorted, filtered", Choice(order=1, filter="train"))):
        took = [repeated(partial(frame, choice)) for _ in range(20)]
        print(f"| frame of {gpus} GPUs, {pods} pods: {title} | {milliseconds(took)} | |")
    print(f"| the same in the app, drawn anew | {milliseconds(asyncio.run(app_frames(state)))} | |")


def repeated(work: Callable[[], None]) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def app_frames(state: State) -> list[float]:
    """Seconds from a new state to what is on the screen."""
    took = []

    async def look() -> State:
        return state

    app = TopApp(look=look, source="", every=3600.0, choice=Choice())
    async with app.run_test(size=(160, 50)) as pilot:
        for _ in range(20):
            began = time.perf_counter()
            await app._see()  # noqa: SLF001 - what its timer calls
            await pilot.pause()
            took.append(time.perf_counter() - began)
    return took


async def picture() -> str:
    """The picture of the README: two nodes that are busy."""

    async def look() -> State:
        return busy(nodes=2, seed=11)

    app = TopApp(look=look, source="from the page", every=3600.0, choice=Choice())
    async with app.run_test(size=(118, 22)) as pilot:
        await pilot.pause()
        drawn = app.export_screenshot(title="aliquot top")
    # Nothing is fetched from elsewhere: any monospaced font will do.
    return _ELSEWHERE.sub("", drawn)


def main() -> None:
    """Measure, or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--times", type=int, default=20)
    asked = parser.parse_args()
    if asked.svg:
        asked.svg.write_text(asyncio.run(picture()))
        return
    print("| what | least / median, ms | CPU, ms |\n|---|--:|--:|")
    measure_frames()
    measure_commands(times=asked.times)


if __name__ == "__main__":
    main()
