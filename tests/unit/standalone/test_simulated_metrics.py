"""What simulated GPUs use is told by the names that agents use, so that the centre's page reads both alike."""

from __future__ import annotations

from aliquot_agent.gpus.model import GpuProcess, GpuUsage, ProcessKind
from aliquot_scheduler.page.usage import Use, read_usage
from aliquot_standalone.simulated.metrics import lines
from aliquot_standalone.simulated.owners import Owner


def test_the_page_reads_what_is_told() -> None:
    """GPUs and slices, whatever pods are called; a process that is nobody's counts for its GPU alone."""
    processes = (
        GpuProcess(pid=7, memory_mib=3_000, sm_percent=24, kind=ProcessKind.COMPUTE),
        GpuProcess(pid=8, memory_mib=500, sm_percent=6, kind=ProcessKind.COMPUTE),
    )
    usage = GpuUsage(uuid="GPU-1", memory_used_mib=3_500, utilization_percent=30, processes=processes)
    owners = {7: Owner(namespace="default", pod='o"d\\d\n', container="main")}
    text = "\n".join([*lines("sim-1", [usage], owners=owners), ""])
    read = read_usage({"http://a": text}, at=1.0)
    assert read.of_gpu("sim-1", "GPU-1") == Use(compute=30, memory=3_500)
    assert read.slices == {("sim-1", "GPU-1", 'default/o"d\\d\n'): Use(compute=24, memory=3_000)}


def test_what_a_gpu_does_not_say_is_not_told() -> None:
    """A gap is no zero."""
    usage = GpuUsage(uuid="GPU-1", memory_used_mib=0, utilization_percent=None)
    read = read_usage({"http://a": "\n".join(lines("sim-1", [usage], owners={}))}, at=1.0)
    assert read.of_gpu("sim-1", "GPU-1") == Use(compute=None, memory=0)


def test_how_busy_a_slice_is_where_nobody_knows_is_not_told() -> None:
    """As on instances of MIG: its memory is."""
    processes = (GpuProcess(pid=7, memory_mib=3_000, sm_percent=None, kind=ProcessKind.COMPUTE),)
    usage = GpuUsage(uuid="MIG-1", memory_used_mib=3_000, processes=processes)
    owners = {7: Owner(namespace="default", pod="p", container="main")}
    read = read_usage({"http://a": "\n".join(lines("sim-1", [usage], owners=owners))}, at=1.0)
    assert read.slices == {("sim-1", "MIG-1", "default/p"): Use(compute=None, memory=3_000)}
