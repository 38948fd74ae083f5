"""`aliquot up`: everything on one machine, without a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Awaitable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from aliquot_agent.settings import AgentSettings
from aliquot_cli.finite import FiniteRange
from aliquot_cli.handing_out import hand_out
from aliquot_cli.running import run_until_stopped, until
from aliquot_cli.sources import FILE_VARIABLE, gather
from aliquot_core.clock import Clock
from aliquot_core.logs import LogSettings, configure_logging
from aliquot_core.names import Names
from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock
from aliquot_kube.resources import NODES, PODS
from aliquot_standalone.children import set_aside
from aliquot_standalone.composition import Whole, standing
from aliquot_standalone.demo.playing import check_stage, prepared
from aliquot_standalone.home import Home
from aliquot_standalone.plan import SIMULATED, gpus_here, plan
from aliquot_standalone.ports import choose_ports
from aliquot_standalone.settings import UpSettings
from aliquot_standalone.summary import summarise
from aliquot_standalone.whereabouts import FOLDER_VARIABLE


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of this run."""

    settings: UpSettings
    names: Names
    log: LogSettings
    agents: AgentSettings
    demo: bool
    exit_after: float | None
    summary: bool


@click.command()
@click.option("--config", "file", metavar="FILE", help="Settings file (default: $ALIQUOT_CONFIG).")
@click.option(
    "--simulate",
    "--gpus",
    "gpus",
    metavar="SPEC",
    help='GPUs to simulate, or "nvml" for this machine\'s own (default: as last time, else its own, else some).',
)
@click.option("--full", type=int, metavar="N", help="Simulated nodes that run pods' commands (default: 1, at most 4).")
@click.option("--folder", metavar="FOLDER", help="Where all state lies (default: $ALIQUOT_HOME).")
@click.option("--port", type=int, help="The API server's (default: 10980 if it is free; 0: any).")
@click.option("--page-port", type=int, help="The page's (default: 10944 if it is free; 0: any).")
@click.option("--demo", is_flag=True, help="Submit a lively mix of work, and tell what happens.")
@click.option(
    "--exit-after",
    type=FiniteRange(min=0),
    metavar="SECONDS",
    help="End by itself so long after it was ready.",
)
@click.option("--summary", type=click.Choice(["json"]), help="Print what there was at the end, and nothing else.")
def up(file: str | None, *, demo: bool, exit_after: float | None, summary: str | None, **flags: Any) -> None:
    """Share this machine's GPUs, or simulated ones: API server, centre, scheduling and nodes in one command.

    \b
    Examples:
      aliquot up --demo
      aliquot up --simulate 2x8xA100-80GB,4x4xL40S
      aliquot up --simulate A100-80GB:3g.40gb+2x1g.10gb
      aliquot up --exit-after 10 --summary json
    """
    if file:
        # Centre, endpoints and agents read the same settings.
        os.environ[FILE_VARIABLE] = str(Path(file).absolute())
    sources = gather(file=file, flags={"up": flags}, spelt={"gpus": "--simulate"}, whole=True)
    wish = Wish(
        settings=sources.resolve("up", UpSettings).value,
        names=sources.resolve("names", Names).value,
        log=sources.resolve("log", LogSettings).value,
        agents=sources.resolve("agent", AgentSettings).value,
        demo=demo,
        exit_after=exit_after,
        summary=summary is not None,
    )
    run_until_stopped(partial(_serve, wish=wish))


async def _serve(stop: asyncio.Event, *, wish: Wish) -> None:
    clock, settings = SystemClock(), wish.settings
    began = clock.monotonic()
    home = Home.of(settings.folder, environment=os.environ)
    remembered = home.remembered()
    gpus = settings.gpus or (SIMULATED if wish.demo else remembered or gpus_here())
    machine = plan(gpus, full=settings.full, host=socket.gethostname())
    if wish.demo:
        check_stage(machine, remembered=remembered)
    with contextlib.ExitStack() as kept:
        ports = choose_ports(settings, keep=kept.enter_context)
        home.create()
        kept.enter_context(_logged(home, settings=wish.log))
        say = partial(click.echo, err=True)
        async with standing(
            home=home,
            plan=machine,
            names=wish.names,
            ports=ports,
            clock=clock,
            say=say,
            agents=wish.agents,
        ) as whole:
            home.remember(gpus)
            await until(stop, _stay(whole, wish=wish, clock=clock, began=began))
    if not wish.summary:
        hand_out("ended; `aliquot up` goes on where it was, `aliquot down --purge` forgets it")


async def _stay(whole: Whole, *, wish: Wish, clock: Clock, began: float) -> None:
    await whole.start()
    ready = clock.monotonic() - began
    if not wish.summary:
        hand_out(_greeting(whole, ready=ready))
    await _until_first(whole.run(), _show(whole, wish=wish, clock=clock))
    if wish.summary:
        hand_out(msgspec.json.format(await _summary(whole, ready=ready)).decode())


async def _show(whole: Whole, *, wish: Wish, clock: Clock) -> None:
    """Tell the story if one is wanted, and stay."""
    if wish.demo:
        story, crowd = prepared(whole, clock=clock, say=partial(click.echo, err=wish.summary))
        await story.tell()
        whole.work(crowd.run)
        click.echo("\nFrom here on jobs come and go by themselves: look at the page, or `top`.", err=wish.summary)
    await clock.sleep(math.inf if wish.exit_after is None else wish.exit_after)


async def _until_first(*works: Awaitable[None]) -> None:
    """Wait for whichever ends first; its error is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _summary(whole: Whole, *, ready: float) -> bytes:
    client = KubeClient(transport=whole.transport)
    nodes, pods = await asyncio.gather(client.list(NODES), client.list(PODS))
    summary = summarise(
        nodes=nodes, pods=pods, names=whole.names, ready_seconds=ready, api=whole.url, page=whole.centre.page
    )
    return msgspec.json.encode(summary)


def _greeting(whole: Whole, *, ready: float) -> str:
    full = ", ".join(node.name for node in whole.plan.full)
    simulated = len(whole.plan.simulated)
    return "\n".join(
        (
            f"Ready after {ready:.1f} s: {whole.plan.gpus} on {_counted(len(whole.plan.names), 'node')}.",
            f"  pods' commands run on this machine as processes (node {full})" if full else "  nothing runs for real",
            *([f"  {_counted(simulated, 'node')} and what runs there: simulated"] if simulated else []),
            f"Page        {whole.centre.page}",
            f"API server  {whole.url}  (kubectl --kubeconfig {whole.home.kubeconfig} get pods -A)",
            "Try next, in another terminal:",
            *(f"  {_called(whole.home)} {words}" for words in _NEXT),
            "Ctrl-C ends everything.",
        )
    )


_NEXT = ("run --compute 30 --memory 8000 -- sh -c 'echo I have $ALIQUOT_GPUS'", "ps -A", "top")


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _called(home: Home) -> str:
    """How the person at this terminal calls us."""
    usual = Home.of("", environment=os.environ).folder
    name = our_name(found=shutil.which("aliquot") is not None, python=Path(sys.executable))
    return name if home.folder == usual else f"{FOLDER_VARIABLE}={home.folder} {name}"


def our_name(*, found: bool, python: Path) -> str:
    """What starts us from any folder: our command where a shell finds it, else the one beside Python, else Python."""
    if found:
        return "aliquot"
    beside = python.with_name("aliquot")
    return shlex.quote(str(beside)) if beside.exists() else f"{shlex.quote(str(python))} -m aliquot_cli.main"


@contextlib.contextmanager
def _logged(home: Home, *, settings: LogSettings) -> Iterator[None]:
    """Log to a file: the terminal is for what is told."""
    path = home.logs / "up.log"
    with home.writing():
        set_aside(path)
        stream = path.open("a")
    configure_logging(settings, stream=stream)
    # What can't be logged, on a full disk say, is not to fill the terminal instead.
    logging.raiseExceptions = False
    try:
        yield
    finally:
        configure_logging(settings)
        with contextlib.suppress(OSError):  # the rest of a log for which there is no room
            stream.close()
