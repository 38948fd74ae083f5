"""A machine of two NUMA nodes, as a node of the test cluster may see it: what the kernel says is covered by files."""

from __future__ import annotations

from pathlib import Path

from cluster.harness.node import Node

KERNEL = Path("/sys/devices/system/node")


def pretend_two_sockets(node: Node) -> None:
    """Let everything on the node that looks from now on find two NUMA nodes; whoever looked before keeps what it saw.

    The first processor lies on the one, the second (or the first again) on the other.
    """
    folder = node.folder / "numa"
    folder.mkdir()
    processors = sorted(KERNEL.glob("node0/cpu[0-9]*"))[:2]
    for number in (0, 1):
        _socket(folder / f"node{number}", number=number, processor=processors[number % len(processors)])
    for file in ("online", "possible", "has_cpu", "has_memory"):
        (folder / file).write_text("0-1\n")
    node.run_inside(["mount", "--bind", str(folder), str(KERNEL)])


def _socket(folder: Path, *, number: int, processor: Path) -> None:
    folder.mkdir()
    (folder / "meminfo").write_text((KERNEL / "node0/meminfo").read_text().replace("Node 0", f"Node {number}"))
    (folder / "distance").write_text("10 20\n" if number == 0 else "20 10\n")
    (folder / "hugepages").mkdir()
    (folder / processor.name).symlink_to(f"/sys/devices/system/cpu/{processor.name}")
