"""A replica of the centre as a real process, what it takes of the machine, and a kube-scheduler's calls to it."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from aliquot_standalone.apiserver.embedded import kubeconfig
from cluster.harness.component import Component, answers
from cluster.harness.ports import free_port
from support.centre_http import SCHEDULER, Authority

COMMAND = str(Path(sys.executable).with_name("aliquot"))
LOOPBACK = "127.0.0.1"
_PATIENCE_S = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")
Json = dict[str, Any]
T = TypeVar("T")


class CentreProcess:
    """One replica that asks an API server over plain HTTP."""

    def __init__(
        self,
        *,
        folder: Path,
        url: str,
        token: str,
        name: str = "centre",
        authority: Authority | None = None,
        code: Sequence[Path] = (),
    ) -> None:
        """Replicas that ask each other have one `authority`; `code` is where another version's packages lie."""
        self.authority = authority or Authority(folder / "tls")
        files = self.authority.server_files(folder=name)
        (folder / "kubeconfig").write_bytes(msgspec.json.encode(kubeconfig(url, token=token)))
        self.port, self.status_port = free_port(), free_port()
        self.log = folder / f"{name}.log"
        self.component = Component(
            name=name,
            argv=[COMMAND, "scheduler"],
            log=self.log,
            ready=partial(answers, f"http://{LOOPBACK}:{self.status_port}/readyz"),
            env={
                **({"PYTHONPATH": os.pathsep.join(map(str, code))} if code else {}),
                "ALIQUOT_LOG_FORMAT": "json",
                "ALIQUOT_SCHEDULER_NAME": name,
                "ALIQUOT_SCHEDULER_ADDRESS": f"https://{LOOPBACK}:{self.port}",
                "ALIQUOT_SCHEDULER_KUBECONFIG": str(folder / "kubeconfig"),
                "ALIQUOT_WEB_ADDRESS": LOOPBACK,
                "ALIQUOT_WEB_PORT": str(self.port),
                "ALIQUOT_WEB_STATUS_PORT": str(self.status_port),
                "ALIQUOT_WEB_CERTIFICATE": files.certificate,
                "ALIQUOT_WEB_KEY": files.key,
                "ALIQUOT_WEB_AUTHORITY": files.authority,
            },
        )

    def asker(self) -> Asker:
        """A kube-scheduler that asks this replica."""
        context = self.authority.caller(self.authority.signs(SCHEDULER))
        return Asker(port=self.port, context=context)

    def cpu_seconds(self) -> float:
        """What it has used of the processors so far."""
        return cpu_seconds(self.component.pid)

    def memory_mib(self) -> float:
        """What is resident of it now."""
        return status_mib(self.component.pid, "VmRSS")

    def peak_mib(self) -> float:
        """What was resident of it at the most."""
        return status_mib(self.component.pid, "VmHWM")


def cpu_seconds(pid: int) -> float:
    """What a process has used of the processors so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def exact_cpu_seconds(pid: int) -> float:
    """The same to the nanosecond, of all threads that live now."""
    told = (task.joinpath("schedstat").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    return sum(int(one.split()[0]) for one in told) / 1e9


def status_mib(pid: int, line: str) -> float:
    """A line of a process's status that is in kB."""
    found = next(text for text in Path(f"/proc/{pid}/status").read_text().splitlines() if text.startswith(f"{line}:"))
    return int(found.split()[1]) / 1024


class Asker:
    """kube-scheduler's side of the extender: one connection, one call after another."""

    def __init__(self, *, port: int, context: ssl.SSLContext, host: str = LOOPBACK) -> None:
        self._connection = http.client.HTTPSConnection(host, port, timeout=_PATIENCE_S, context=context)
        # Seconds that each call took, by verb.
        self.took: dict[str, list[float]] = {}

    def filter(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> list[str]:
        """The nodes that have room."""
        answer = self.call("filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        if error := answer.get("Error"):
            raise NotDecidedError(error)
        return list(answer["NodeNames"])

    def prioritize(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> dict[str, int]:
        """How good each is."""
        answer = self.call("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        return {grade["Host"]: grade["Score"] for grade in answer}

    def bind(self, pod: Mapping[str, Any], node: str) -> str:
        """Empty, or why it is not bound."""
        meta = pod["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        return str(self.call("bind", body).get("Error", ""))

    def place(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> str:
        """All three; the node where the pod is bound now."""
        grades = self.prioritize(pod, self.filter(pod, nodes))
        best = max(grades, key=grades.__getitem__)
        if why := self.bind(pod, best):
            raise NotDecidedError(why)
        return best

    def call(self, verb: str, body: Any) -> Any:
        """Ask, and note how long the answer took; the bytes are made before, and read after."""
        data = json.dumps(body, separators=(",", ":")).encode()
        began = time.perf_counter()
        try:
            status, text = self._send(f"/extender/{verb}", data)
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        self.took.setdefault(verb, []).append(time.perf_counter() - began)
        if status != http.client.OK:
            raise NotDecidedError(text.decode())
        return json.loads(text)

    def _send(self, path: str, data: bytes) -> tuple[int, bytes]:
        self._connection.request("POST", path, body=data, headers={"Content-Type": "application/json"})
        response = self._connection.getresponse()
        return response.status, response.read()

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class NotDecidedError(Exception):
    """The centre has not decided."""


def until_decided(ask: Callable[[], T], *, seconds: float) -> T:
    """Ask again and again until the centre decides; a refused connection is none."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except (OSError, NotDecidedError, http.client.HTTPException):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
