"""What our Kubernetes client costs: a list of 5,000 pods, 5,000 watch events, one small request, and memory at rest.

    .venv/bin/python benchmarks/kube_client.py

Bounded: some 40 s. Each figure is the median of three processes, rounds interleaved, over loopback HTTP from a server
in a process of its own; CPU is the client's alone. Read the ratios: wall times suffer from whatever else runs here.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PODS = 5_000
EVENTS = 5_000
PAGE = 500
REQUESTS = 1_000
ROUNDS = 3


def pod(number: int, *, version: int) -> dict[str, object]:
    """A pod of 4.4 KB, as real ones are: mostly what we do not read."""
    labels = {"app": f"train-{number % 50}", "pod-template-hash": "5d8f7c9b6d"}
    fields: dict[str, object] = {f"f:field-{n}": {".": {}, "f:more": {}} for n in range(40)}
    return {
        "metadata": {
            "name": f"train-{number}",
            "namespace": "team",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "labels": labels,
            "annotations": {"aliquot.dev/grant": json.dumps({"v": 1, "gpu": "GPU-1", "compute": 25, "memory": 8000})},
            "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": fields}],
        },
        "spec": {
            "nodeName": f"node{number % 100}",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/train:1",
                    "env": [{"name": f"VARIABLE_{n}", "value": "x" * 20} for n in range(15)],
                    "resources": {"limits": {"aliquot.dev/compute": "25", "aliquot.dev/memory": "8000"}},
                    "terminationMessagePath": "/dev/termination-log",
                }
            ],
            "volumes": [{"name": f"volume-{n}", "emptyDir": {"sizeLimit": "1Gi"}} for n in range(10)],
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": f"Type{n}", "status": "True", "lastTransitionTime": None} for n in range(5)],
            "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0, "image": "i", "imageID": "d"}],
        },
    }


# -- the server, in a process of its own -----------------------------------------------------------------------------


def serve(port: object) -> None:
    """Answer lists, watches and single pods from bytes that are ready."""
    pages = [
        json.dumps(
            {
                "metadata": {"resourceVersion": "9999", "continue": str(end) if end < PODS else ""},
                "items": [pod(number, version=number + 1) for number in range(end - PAGE, end)],
            }
        ).encode()
        for end in range(PAGE, PODS + 1, PAGE)
    ]
    one = json.dumps(pod(1, version=2)).encode()
    everything = json.dumps(
        {"metadata": {"resourceVersion": "9999"}, "items": [pod(n, version=n + 1) for n in range(PODS)]}
    ).encode()
    lines = [
        json.dumps({"type": "MODIFIED", "object": pod(n % PODS, version=10_000 + n)}).encode() + b"\n"
        for n in range(EVENTS)
    ]
    watch = b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in lines)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            target = head.split(b" ", 2)[1]
            if b"watch=true" in target:
                writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + watch)
                await writer.drain()
                continue
            body = one
            if target.startswith(b"/api/v1/pods"):
                token = target.partition(b"continue=")[2].partition(b"&")[0]
                body = pages[int(token or 0) // PAGE] if b"limit=" in target else everything
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

    async def quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(quiet, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])  # type: ignore[attr-defined]  # a multiprocessing.Connection
        await server.serve_forever()

    asyncio.run(run())


# -- the clients, each in a process of its own -----------------------------------------------------------------------


def cpu() -> float:
    """Milliseconds of CPU that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1000


def memory(field: str) -> float:
    """MiB from /proc: VmRSS is now, VmHWM the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def ours(url: str) -> dict[str, float]:
    """List and watch by `Mirror`."""
    from kubernetes.client import Configuration

    from aliquot_kube.changes import Modified
    from aliquot_kube.clock import SystemClock
    from aliquot_kube.credentials import Credentials
    from aliquot_kube.mirror import Mirror
    from aliquot_kube.resources import PODS as RESOURCE
    from aliquot_kube.transport import HttpTransport

    async def run() -> dict[str, float]:
        result = {"imported MiB": memory("VmRSS")}
        transport = HttpTransport(credentials=Credentials(lambda: Configuration(host=url)))
        mirror = Mirror(transport=transport, clock=SystemClock(), random=lambda: 0.5, resource=RESOURCE)
        seen, done = 0, asyncio.Event()

        def count(change: object) -> None:
            nonlocal seen
            if isinstance(change, Modified):
                seen += 1
                if seen == EVENTS:
                    done.set()

        mirror.subscribe(count)
        before, began = cpu(), time.perf_counter()
        task = asyncio.create_task(mirror.run())
        await mirror.synced()
        result |= {"list CPU ms": cpu() - before, "list ms": (time.perf_counter() - began) * 1000}
        before, began = cpu(), time.perf_counter()
        await done.wait()
        result |= {"watch CPU ms": cpu() - before, "events/s": EVENTS / (time.perf_counter() - began)}
        task.cancel()
        await transport.close()
        return result | {"peak MiB": memory("VmHWM"), "after MiB": memory("VmRSS")}

    return asyncio.run(run())


def official_typed(url: str) -> dict[str, float]:
    """List by the official client as its examples do."""
    from kubernetes import client

    result = {"imported MiB": memory("VmRSS")}
    api = client.CoreV1Api(client.ApiClient(client.Configuration(host=url)))
    before, began = cpu(), time.perf_counter()
    token = None
    kept = []
    while token != "":
        page = api.list_pod_for_all_namespaces(limit=PAGE, _continue=token)
        kept += page.items
        token = (page.metadata and page.metadata._continue) or ""  # noqa: SLF001 - their public name
    assert len(kept) == PODS
    result |= {"list CPU ms": cpu() - before, "list ms": (time.perf_counter() - began) * 1000}
    return result | {"peak MiB": memory("VmHWM"), "after MiB": memory("VmRSS")}


def at_rest(url: str) -> dict[str, float]:
    """What an agent's share of this package takes: two quiet watches, a heart-beat, small requests; no large list."""
    from kubernetes.client import Configuration

    from aliquot_kube.credentials import Credentials
    from aliquot_kube.transport import HttpTransport, Question

    async def run() -> dict[str, float]:
        result = {"imported MiB": memory("VmRSS")}
        transport = HttpTransport(credentials=Credentials(lambda: Configuration(host=url)))
        question = Question(method="GET", path="/api/v1/namespaces/team/pods/train-1")
        await transport.request(question)
        before = cpu()
        for _ in range(REQUESTS):
            await transport.request(question)
        result |= {"request CPU us": (cpu() - before) * 1000 / REQUESTS, "after MiB": memory("VmRSS")}
        await transport.close()
        return result

    return asyncio.run(run())


def by_calls(make: Callable[[str], Callable[[str], bytes]]) -> Callable[[str], dict[str, float]]:
    """Measure a blocking way to send small requests, without our threads and event loop."""

    def measured(url: str) -> dict[str, float]:
        call = make(url)
        imported = memory("VmRSS")
        call(f"{url}/one")
        before = cpu()
        for _ in range(REQUESTS):
            assert call(f"{url}/one")
        return {
            "imported MiB": imported,
            "request CPU us": (cpu() - before) * 1000 / REQUESTS,
            "after MiB": memory("VmRSS"),
        }

    return measured


def pool_of_theirs(url: str) -> Callable[[str], bytes]:
    """The pool that the official client builds, used directly: what `aliquot_kube` does."""
    from kubernetes.client import Configuration
    from kubernetes.client.rest import RESTClientObject

    pools = RESTClientObject(Configuration(host=url)).pool_manager
    return lambda target: pools.urlopen("GET", target, retries=False).data


def pool_of_ours(url: str) -> Callable[[str], bytes]:
    """A pool that we would build from the same configuration."""
    import urllib3
    from kubernetes.client import Configuration

    configuration = Configuration(host=url)
    pools = urllib3.PoolManager(ca_certs=configuration.ssl_ca_cert, maxsize=8)
    return lambda target: pools.urlopen("GET", target, retries=False).data


def api_client(url: str) -> Callable[[str], bytes]:
    """The official `ApiClient.call_api`, bytes out."""
    from kubernetes.client import ApiClient, Configuration

    client = ApiClient(Configuration(host=url))
    return lambda target: bytes(client.call_api("GET", target, {}).response.data)


CLIENTS: dict[str, Callable[[str], dict[str, float]]] = {
    "ours: list and watch": ours,
    "official, typed: list": official_typed,
    "ours: small requests": at_rest,
    "blocking: their pool": by_calls(pool_of_theirs),
    "blocking: own pool": by_calls(pool_of_ours),
    "blocking: ApiClient": by_calls(api_client),
}


def main() -> None:
    """Run every client three times and print the medians."""
    if len(sys.argv) == 3:
        print(json.dumps(CLIENTS[sys.argv[1]](sys.argv[2])))
        return
    ear, mouth = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(mouth,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ear.recv()}"
    results: dict[str, list[dict[str, float]]] = {name: [] for name in CLIENTS}
    for _ in range(ROUNDS):
        for name in CLIENTS:
            command = [sys.executable, __file__, name, url]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120)
            results[name].append(json.loads(done.stdout))
    server.terminate()
    for name, runs in results.items():
        figures = ", ".join(f"{key} {statistics.median(run[key] for run in runs):.1f}" for key in runs[0])
        print(f"{name:<24} {figures}")


if __name__ == "__main__":
    main()
