"""One machine for commands: the embedded API server and a small kubelet in a thread of their own, pods as processes.

Nobody schedules; a test says who is bound: all at once, or one after another.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from aliquot_core.names import Names
from aliquot_core.objects import Node, Pod
from aliquot_kube.changes import Added, Change, Modified
from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock
from aliquot_kube.errors import ApiError
from aliquot_kube.mirror import Mirror
from aliquot_kube.plain import PlainServer, PlainTransport
from aliquot_kube.resources import NODES, PODS
from aliquot_standalone.apiserver.embedded import kubeconfig, serving
from aliquot_standalone.apiserver.store import Store
from aliquot_standalone.home import Home
from aliquot_standalone.kubelet.api_doors import ApiDoors
from aliquot_standalone.kubelet.node import SmallKubelet
from aliquot_standalone.kubelet.settings import Folders
from aliquot_standalone.pod_logs import pod_logs
from support.folders import lent_folder
from support.http_api import LONG_S, HttpApi
from support.kubelets import QUICK, kill_leftovers, new_plugin

NODE = "node"
COMMAND = str(Path(sys.executable).with_name("aliquot"))
_PATH = "/api/v1/namespaces/default/pods"


class SmallMachine:
    """What a test does with it."""

    def __init__(self, *, url: str, folder: Path, logs: Path, binds: threading.Event) -> None:
        self.url = url
        self.api = HttpApi(url=url)
        # While it is set, every pod without a gate is bound at once.
        self.binds = binds
        self.folder = folder
        # What pods print.
        self.logs = logs
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig(url)))

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a user whose kubeconfig names this machine."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("ALIQUOT_")}
        return {**plain, "KUBECONFIG": str(self.folder / "kubeconfig"), "ALIQUOT_HOME": str(self.folder / "up"), **more}

    def run(
        self, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        return subprocess.run(
            [COMMAND, *arguments],
            env=env or self.environment(),
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that goes on."""
        return subprocess.Popen(
            [COMMAND, *arguments],
            env=self.environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def pods(self) -> list[str]:
        """Who is there."""
        return [one["metadata"]["name"] for one in self.api.get(_PATH).ok()["items"]]

    def create(self, name: str, *command: str, labels: Mapping[str, str] | None = None, **spec: Any) -> None:
        """A pod that runs a command with a slice."""
        main = {
            "name": "main",
            "image": "none",
            "command": list(command),
            "resources": {"limits": {Names().compute: "10"}},
        }
        metadata = {"name": name, "labels": dict(labels or {})}
        body = {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [main], **spec}}
        self.api.post(_PATH, body).ok()

    def until(self, name: str, holds: Any) -> Mapping[str, Any]:
        """Wait until something holds of a pod."""
        with self.api.watch(_PATH, fieldSelector=f"metadata.name={name}") as watch:
            while True:
                event = watch.next()
                found: Mapping[str, Any] = event["object"]
                if event["type"] != "BOOKMARK" and holds(found):
                    return found

    def until_gone(self, name: str) -> None:
        """Wait until there is no such pod."""
        with self.api.watch(_PATH, fieldSelector=f"metadata.name={name}", resourceVersion="0") as watch:
            while name in self.pods():
                watch.next()


def phase(word: str) -> Any:
    """Whether a pod is in this phase."""
    return lambda pod: pod.get("status", {}).get("phase") == word


@contextlib.contextmanager
def small_machine(folder: Path) -> Iterator[SmallMachine]:
    """Serve for as long as the block lasts."""
    with lent_folder("a-") as root:
        background = _Background(root)
        url = background.start()
        try:
            yield SmallMachine(url=url, folder=folder, logs=background.folders.logs, binds=background.binds)
        finally:
            background.binds.set()
            background.stop()
            kill_leftovers(background.folders)


class _Background:
    def __init__(self, root: Path) -> None:
        self.binds = threading.Event()
        self.binds.set()
        self._home = Home(root, environment={})
        self.folders = Folders(root=self._home.node(NODE))
        self.folders.create()
        self._url = ""
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def start(self) -> str:
        self._thread.start()
        assert self._ready.wait(LONG_S)
        return self._url

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(LONG_S)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        store, clock = Store(), SystemClock()
        logs = pod_logs(store=store, home=self._home, clock=clock)
        async with serving(clock=clock, store=store, logs=logs) as server:
            transport = PlainTransport(PlainServer(url=server.url))
            client = KubeClient(transport=transport)
            async with _node(transport, self.folders):
                binding = asyncio.create_task(self._bind(transport, client))
                self._url = server.url
                self._ready.set()
                await self._stop.wait()
                await _cancelled(binding)
                for pod in await client.list(PODS):
                    await client.delete(PODS, namespace=pod.metadata.namespace, name=pod.metadata.name, grace_seconds=0)
            await transport.close()

    async def _bind(self, transport: PlainTransport, client: KubeClient) -> None:
        """Bind whoever has no gate, as soon as the test lets it."""
        news: asyncio.Queue[Pod] = asyncio.Queue()

        def note(change: Change[Pod]) -> None:
            if isinstance(change, Added | Modified) and not change.new.spec.node_name:
                news.put_nowait(change.new)

        mirror = Mirror[Pod](transport=transport, clock=SystemClock(), random=random.random, resource=PODS)
        mirror.subscribe(note)
        async with asyncio.TaskGroup() as work:
            work.create_task(mirror.run())
            while True:
                pod = await news.get()
                if not pod.spec.scheduling_gates:
                    await asyncio.to_thread(self.binds.wait)
                    with contextlib.suppress(ApiError):
                        await client.bind(namespace=pod.metadata.namespace, name=pod.metadata.name, node=NODE)


@contextlib.asynccontextmanager
async def _node(transport: PlainTransport, folders: Folders) -> AsyncIterator[None]:
    """A kubelet, and a plugin that has all of a GPU's compute."""
    doors = ApiDoors(node=NODE, transport=transport, clock=SystemClock(), random=random.random)
    kubelet = SmallKubelet(name=NODE, folders=folders, source=doors, sink=doors, clock=SystemClock(), settings=QUICK)
    running = asyncio.create_task(kubelet.run())
    await kubelet.serving.wait()
    plugin = new_plugin(folders, count=100, resource=Names().compute)
    await plugin.serve()
    await plugin.register()
    await _until_offered(transport)
    try:
        yield
    finally:
        await plugin.stop()
        await _cancelled(running)


async def _until_offered(transport: PlainTransport) -> None:
    offered = asyncio.Event()

    def note(change: Change[Node]) -> None:
        if isinstance(change, Added | Modified) and change.new.status.allocatable.get(Names().compute, "0") != "0":
            offered.set()

    mirror = Mirror[Node](transport=transport, clock=SystemClock(), random=random.random, resource=NODES)
    mirror.subscribe(note)
    following = asyncio.create_task(mirror.run())
    await offered.wait()
    await _cancelled(following)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """How it ended, and what it printed."""
    out, err = process.communicate(timeout=LONG_S)
    return process.returncode, out, err


def without_room(machine: SmallMachine, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command whose output goes to a full disk."""
    argv = [sys.executable, "-m", "aliquot_cli.main", *arguments]
    with Path("/dev/full").open("wb") as full:
        return subprocess.run(
            argv, stdout=full, stderr=subprocess.PIPE, env=machine.environment(), text=True, timeout=LONG_S, check=False
        )
