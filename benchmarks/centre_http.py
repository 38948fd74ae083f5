"""What the centre's HTTP adds to a decision: a filter call over TLS with a desk that decides nothing.

.venv/bin/python benchmarks/centre_http.py [--calls 400]

The server is a process of its own, so that its CPU time is its own; the caller keeps its connection, as kube-scheduler
does. Half of the names pass, half are refused with a sentence.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from aliquot_core.objects import Pod
from aliquot_scheduler.extender.decisions import Filtered
from aliquot_scheduler.extender.echo import Echo
from aliquot_scheduler.extender.wire import decode_placing, encode_filtered
from aliquot_scheduler.web.tls import TlsFiles
from support.centre_http import SCHEDULER, Authority, caller, replica

SIZES = (500, 1_000, 5_000)
WHY = "3 of 8 GPUs have 30 % free, none has also 20,000 MiB"
WARM = 20


class HalfPass:
    """Decides nothing, and answers much."""

    def filter(self, _: Pod, nodes: Sequence[str]) -> Filtered:
        """The first half, and a sentence for each of the rest."""
        half = len(nodes) // 2
        return Filtered(nodes=nodes[:half], failed=dict.fromkeys(nodes[half:], WHY))

    def prioritize(self, _: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """All the same."""
        return [450] * len(nodes)

    def prioritize_plain(self, _: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """Nothing is said."""
        return [0] * len(nodes)

    def preempt(self, _: Pod, offered: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:  # noqa: ARG002 - nobody
        """Nobody."""
        return {}

    async def bind(self, **_: str) -> str:
        """Done."""
        return ""


def asked(names: int) -> bytes:
    """A call as kube-scheduler writes it, with a pod of its usual size."""
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(40)]
    limits = {"aliquot.dev/compute": "30", "aliquot.dev/memory": "8000"}
    pod = {
        "metadata": {"name": "p", "namespace": "team", "uid": "u-1", "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "main", "image": "i", "env": env, "resources": {"limits": limits}}]},
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    }
    return msgspec.json.encode(
        {"Pod": pod, "Nodes": None, "NodeNames": [f"gpu-node-{number:05}.zone-a" for number in range(names)]}
    )


async def serve(folder: str) -> None:
    """Be the server: tell the port, then at each line of input the CPU time so far."""
    at = Path(folder)
    files = TlsFiles(certificate=f"{at}/tls.crt", key=f"{at}/tls.key", authority=f"{at}/ca.crt")
    async with replica(files, decisions=HalfPass()) as one:
        print(one.server.port, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(time.process_time(), flush=True)


async def measure(calls: int) -> None:
    """Call it, one call at a time, and print what it took."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        files = authority.server_files()
        server = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--serve", str(Path(files.key).parent), stdin=PIPE, stdout=PIPE
        )
        assert server.stdin
        assert server.stdout
        port = int(await server.stdout.readline())

        async def cpu() -> float:
            assert server.stdin
            assert server.stdout
            server.stdin.write(b"\n")
            return float(await server.stdout.readline())

        async with caller(authority.caller(authority.signs(SCHEDULER))) as scheduler:
            for names in SIZES:
                body = asked(names)
                took: list[float] = []
                for number in range(WARM + calls):
                    if number == WARM:
                        before = await cpu()
                    begun = time.perf_counter()
                    url = f"https://127.0.0.1:{port}/extender/filter"
                    async with scheduler.session.post(url, data=body) as response:
                        answer = await response.read()
                    took.append((time.perf_counter() - begun) * 1000)
                spent = (await cpu() - before) * 1000 / calls
                tell(names, took[WARM:], spent, asked=len(body), answered=len(answer), codec=codec(body))
        server.stdin.close()
        await server.wait()


def codec(body: bytes, *, rounds: int = 300) -> float:
    """CPU of decoding and encoding alone, in ms."""
    desk = HalfPass()
    begun = time.process_time()
    for _ in range(rounds):
        placing = decode_placing(body, echo=Echo())
        encode_filtered(desk.filter(placing.pod, placing.nodes), echo=Echo())
    return (time.process_time() - begun) * 1000 / rounds


def tell(names: int, took: list[float], spent: float, *, asked: int, answered: int, codec: float) -> None:
    """Print a line."""
    took.sort()
    print(
        f"filter, {names:>5} names ({asked // 1000:>3} KB in, {answered // 1000:>3} KB out), n={len(took)}: "
        f"p50 {statistics.median(took):5.2f} ms   p99 {took[int(len(took) * 0.99)]:6.2f} ms   "
        f"server's CPU {spent:5.2f} ms a call, of it decode + encode {codec:5.3f} ms"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--serve", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    asyncio.run(serve(options.serve) if options.serve else measure(options.calls))
