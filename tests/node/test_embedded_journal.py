"""The embedded API server with a folder: killed at any instant, it goes on where it was."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aliquot_core.names import Names
from aliquot_kube.clock import SystemClock
from aliquot_standalone.composition import standing
from aliquot_standalone.home import Home
from aliquot_standalone.plan import plan
from aliquot_standalone.ports import choose_ports
from aliquot_standalone.settings import UpSettings
from support.endpoints import short_folder
from support.http_api import HttpApi

MAPS = "/api/v1/namespaces/default/configmaps"
SERVER = """
import asyncio, pathlib, sys
from aliquot_kube.clock import SystemClock
from aliquot_standalone.apiserver.embedded import serving

async def main():
    async with serving(clock=SystemClock(), folder=pathlib.Path(sys.argv[1])) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def running(folder: Path) -> Iterator[HttpApi]:
    """A server in a process of its own, which is killed in the end."""
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(folder)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout
        yield HttpApi(url=process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)


def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    """Every object that a client was told of comes back as it was; watches from before begin anew."""
    with running(tmp_path) as api:
        made = [api.post(MAPS, {"metadata": {"name": f"m-{number}"}}).ok() for number in range(50)]
        api.delete(f"{MAPS}/m-7")
        before = api.get(MAPS).ok()
    with running(tmp_path) as api:
        after = api.get(MAPS).ok()
        assert after["items"] == before["items"]
        assert len(after["items"]) == len(made) - 1
        assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
        with api.watch(MAPS, resourceVersion=before["metadata"]["resourceVersion"]) as watch:
            told = watch.next()
        assert (told["type"], told["object"]["code"]) == ("ERROR", 410)


def test_kinds_that_were_defined_are_served_again(tmp_path: Path) -> None:
    """A custom kind and its objects outlive the process."""
    schema = {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {
        "group": "example.dev",
        "scope": "Namespaced",
        "names": {"plural": "toys", "kind": "Toy"},
        "versions": [version],
    }
    definition = {"metadata": {"name": "toys.example.dev"}, "spec": spec}
    toys = "/apis/example.dev/v1/namespaces/default/toys"
    with running(tmp_path) as api:
        api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).ok()
        made = api.post(toys, {"metadata": {"name": "one"}}).ok()
    with running(tmp_path) as api:
        assert api.get(f"{toys}/one").ok() == made
        assert made["size"] == 3


async def _told(home: Home) -> list[str]:
    """What the terminal is told of what the folder had."""
    told: list[str] = []
    with ExitStack() as kept:
        ports = choose_ports(UpSettings(port=0, page_port=0), keep=kept.enter_context)
        machine = plan("1xT4", full=0, host="here")
        async with standing(home=home, plan=machine, names=Names(), ports=ports, clock=SystemClock(), say=told.append):
            pass
    return told


async def test_an_emptied_journal_is_told_at_the_terminal() -> None:
    """Whoever sees no object of his any more is told why; a new folder and one in order say nothing."""
    with short_folder() as root:
        home = Home(root / "home", environment={})
        assert await _told(home) == []
        assert await _told(home) == []
        home.journal.write_bytes(b"")
        (line,) = await _told(home)
        assert line.startswith("the journal is empty")
        assert await _told(home) == []
