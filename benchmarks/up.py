"""`aliquot up` at its largest: 250 simulated nodes x 8 A100, and 5,000 pods created over HTTP as fast as it takes them.

    .venv/bin/python benchmarks/up.py [--nodes 250] [--pods 5000]

Everything is real but the nodes: the command itself with its API server and scheduling loop, the centre as a process of
its own, webhooks, extender and bindings. This process creates the pods, and reads from one watch when each was bound
and ran. Memory is of the whole tree of processes; CPU tells where the time went, also on a machine that is shared.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from aliquot_core.names import Names
from aliquot_kube.plain import plain_server
from aliquot_standalone.home import Home
from support.centre_process import COMMAND, cpu_seconds, status_mib
from support.http_api import HttpApi

NAMES = Names()
PODS = "/api/v1/namespaces/default/pods"
CARDS = 8
MIB_A_PERCENT = 700
SIZES = (10, 20, 25, 30, 50)
CREATORS = 4
PATIENCE = 600.0
Json = dict[str, Any]


class Machine:
    """A running `aliquot up`."""

    def __init__(self, *, process: subprocess.Popen[bytes], home: Home) -> None:
        self.process = process
        self.home = home

    def api(self) -> HttpApi:
        """Its API server, as its owner."""
        server = plain_server(self.home.kubeconfig)
        assert server
        return HttpApi(url=server.url, token=server.token)

    def pids(self) -> dict[str, int]:
        """Its processes by name."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {"up": self.process.pid} | {_name_of(int(pid)): int(pid) for pid in children}

    def memory(self, line: str) -> dict[str, float]:
        """What each of them has resident, or had at the most."""
        return {name: status_mib(pid, line) for name, pid in self.pids().items()}

    def cpu(self) -> dict[str, float]:
        """What each of them has used."""
        return {name: cpu_seconds(pid) for name, pid in self.pids().items()}


class Placed:
    """When each pod was created, bound and at work, as one watch tells."""

    def __init__(self, *, api: HttpApi, pods: int) -> None:
        self._api = api
        self._pods = pods
        self.bound: dict[str, float] = {}
        self.at_work: dict[str, float] = {}
        self.done = threading.Event()
        self.watching = threading.Event()

    def follow(self) -> None:
        """Read the watch until all pods are at work."""
        with self._api.watch(PODS) as watch:
            self.watching.set()
            while len(self.at_work) < self._pods:
                pod = watch.next()["object"]
                name, now = pod["metadata"]["name"], time.perf_counter()
                if pod["spec"].get("nodeName"):
                    self.bound.setdefault(name, now)
                if pod["status"].get("phase") == "Running":
                    self.at_work.setdefault(name, now)
        self.done.set()


def _name_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return words[-2].decode() if len(words) > 1 else str(pid)


@contextmanager
def machine(nodes: int, *, folder: Path) -> Iterator[tuple[Machine, float]]:
    """Run `aliquot up` for as long as the block does; gives how long it took to be ready."""
    home = Home.of(str(folder / "home"), environment={})
    argv = [COMMAND, "up", "--folder", str(home.folder), "--simulate", f"{nodes}x{CARDS}xA100-80GB", "--full", "0"]
    began = time.perf_counter()
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen([*argv, "--port", "0", "--page-port", "0"], stdout=log, stderr=log)
    try:
        while home.running() is None:
            if process.poll() is not None or time.perf_counter() - began > PATIENCE:
                raise SystemExit((folder / "up.log").read_text())
            time.sleep(0.02)
        yield Machine(process=process, home=home), time.perf_counter() - began
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def create(api: HttpApi, *, first: int, pods: int) -> None:
    """Create every so many-th pod, one after another."""
    chance = random.Random(first)
    for number in range(first, pods, CREATORS):
        percent = chance.choice(SIZES)
        limits = {NAMES.compute: str(percent), NAMES.memory: str(percent * MIB_A_PERCENT)}
        container = {"name": "main", "image": "none:1", "resources": {"limits": limits}}
        metadata = {"name": f"pod-{number:05}", "annotations": {"sim.aliquot.dev/use": "70"}}
        api.post(PODS, {"metadata": metadata, "spec": {"containers": [container]}}).ok()


def told(amounts: dict[str, float], *, unit: str) -> str:
    """Spell amounts by process, and their sum."""
    parts = ", ".join(f"{name} {amount:.0f}" for name, amount in amounts.items())
    return f"{sum(amounts.values()):.0f} {unit} ({parts})"


def measure(machine: Machine, *, pods: int) -> None:
    """Create the pods and wait until all are at work."""
    print(f"{'memory at rest':<40} {told(machine.memory('VmRSS'), unit='MiB')}")
    placed = Placed(api=machine.api(), pods=pods)
    follower = threading.Thread(target=placed.follow, daemon=True)
    follower.start()
    placed.watching.wait(10)
    before, began = machine.cpu(), time.perf_counter()
    creators = [
        threading.Thread(target=create, args=(machine.api(),), kwargs={"first": first, "pods": pods}, daemon=True)
        for first in range(CREATORS)
    ]
    for one in creators:
        one.start()
    for one in creators:
        one.join(PATIENCE)
    created = time.perf_counter() - began
    if not placed.done.wait(PATIENCE):
        print(f"{'only':<40} {len(placed.bound)} of {pods} bound")
        return
    spent = {name: used - before.get(name, 0.0) for name, used in machine.cpu().items()}
    print(f"{f'{pods} pods created':<40} {created:.1f} s")
    print(f"{'all bound, from the first creation on':<40} {max(placed.bound.values()) - began:.1f} s")
    print(f"{'all at work':<40} {max(placed.at_work.values()) - began:.1f} s")
    print(f"{'CPU':<40} {told(spent, unit='s')}; {sum(spent.values()) / pods * 1000:.1f} ms a pod")
    print(f"{'memory then':<40} {told(machine.memory('VmRSS'), unit='MiB')}")
    print(f"{'memory at the most':<40} {told(machine.memory('VmHWM'), unit='MiB')}")
    print(f"{'load of the machine':<40} {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=250)
    parser.add_argument("--pods", type=int, default=5000)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="aliquot-bench-"))
    try:
        with machine(chosen.nodes, folder=folder) as (whole, ready):
            print(f"{f'ready with {chosen.nodes} nodes x {CARDS} GPUs':<40} {ready:.1f} s")
            measure(whole, pods=chosen.pods)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
