"""What processes that have ended are still charged for is freed by the agent, and nothing of one that lives."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.isolation.departed import LOOK_S, Departed, Life
from aliquot_agent.isolation.limits_file import ACCOUNT_BYTES, ACCOUNT_MAGIC, Account, decode_account
from aliquot_agent.isolation.node_processes import NodeProcesses
from aliquot_agent.isolation.slice_files import SliceFiles
from aliquot_core.grant import ContainerGrant, Slice
from aliquot_core.quantities import MiB, Percent
from support.clocks import VirtualClock

SLOTS, SLOT, BORROWED = 8192, 192, 8192 + 1024 * 192 + 8 + 256 * 40
OWNER = Owner(pod="uid-1", container="main")
# As the account names its two processes.
FIRST, SECOND = Life(born=70, pid=5, namespace=9), Life(born=71, pid=6, namespace=9)


class Node:
    """A container whose account says that two processes hold something, and who of them lives."""

    def __init__(self, folder: Path) -> None:
        self.files = SliceFiles(folder=folder, library=folder / "libcuda")
        self.there = {FIRST, SECOND}
        self.asked: list[Collection[int]] = []
        self.meanwhile: Callable[[Node], None] | None = None
        self.clock = VirtualClock()
        self.departed = Departed(files=self.files, living=self, clock=self.clock)
        self.restart()

    def restart(self) -> None:
        """Make its files anew; the account as two processes have written it, the second with a block of the first."""
        part = Slice(
            gpu="GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a000", compute=Percent(10), limit=Percent(10), memory=MiB(1000)
        )
        grant = ContainerGrant(slices=(part,), isolation="interposer")
        self.own = self.files.write(token="a", owner=OWNER, grant=grant, driver="/driver", contexts={part.gpu: 0})
        data = bytearray(ACCOUNT_BYTES)
        struct.pack_into("<8sII", data, 0, ACCOUNT_MAGIC, 1, 2)
        for slot, (born, pid) in enumerate([(70, 5), (71, 6)]):
            struct.pack_into("<QII17Q", data, SLOTS + slot * SLOT, born, pid, 9, 100 + slot, *[0] * 15, 3)
        struct.pack_into("<Q", data, SLOTS + 1024 * SLOT, 1)
        struct.pack_into("<3Q4I", data, BORROWED, 7, 0, 3, 0, 1, 0, 0)
        (self.own / "account").write_bytes(data)

    def living(self, born: Collection[int]) -> set[Life]:
        """Those who live, of those who started then."""
        self.asked.append(sorted(born))
        if self.meanwhile:
            self.meanwhile(self)
        return {one for one in self.there if one.born in born}

    @property
    def account(self) -> Account:
        """What it says."""
        found = decode_account((self.own / "account").read_bytes(), gpus=1)
        assert found is not None
        return found

    @property
    def lives(self) -> list[int]:
        """How often each slot was cleared, from where it began."""
        data = (self.own / "account").read_bytes()
        return [struct.unpack_from("<Q", data, SLOTS + slot * SLOT + 144)[0] for slot in range(2)]


async def test_who_is_gone_is_charged_no_more_from_the_second_look_on(tmp_path: Path) -> None:
    """What it held and borrowed is free, what it lent is its borrowers'; the other's slot is as it was."""
    node = Node(tmp_path)
    await node.departed.look()
    node.there.discard(SECOND)
    await node.departed.look()
    assert node.account.processes == {5: (100,), 6: (101,)}
    await node.departed.look()
    assert node.account.processes == {5: (100,)}
    assert node.account.borrowed == (0,)
    assert node.lives == [3, 4]
    await node.departed.look()
    assert node.asked == [[70, 71], [70, 71], [70, 71], [70]]


@pytest.mark.parametrize(
    "again",
    [
        Life(born=71, pid=7, namespace=9),
        Life(born=72, pid=6, namespace=9),
        Life(born=71, pid=6, namespace=10),
    ],
    ids=["another-number", "another-start", "another-namespace"],
)
async def test_a_process_is_known_by_start_and_number_in_its_namespace(tmp_path: Path, again: Life) -> None:
    """One that has not all of it is another process."""
    node = Node(tmp_path)
    node.there = {FIRST, again}
    for _ in range(2):
        await node.departed.look()
    assert node.account.processes == {5: (100,)}


async def test_who_may_be_the_process_keeps_its_charge(tmp_path: Path) -> None:
    """The kernel tells not every agent of others' namespaces, nor every process of its own."""
    node = Node(tmp_path)
    with (node.own / "account").open("r+b") as file:
        file.seek(SLOTS)
        file.write(struct.pack("<QII", 70, 5, 0))
    node.there = {FIRST, Life(born=71, pid=6), Life(born=71, pid=6, namespace=10)}
    for _ in range(3):
        await node.departed.look()
    assert node.account.processes == {5: (100,), 6: (101,)}


async def test_who_is_found_again_is_not_gone(tmp_path: Path) -> None:
    """A look may miss a process; two in a row count."""
    node = Node(tmp_path)
    for there in (set[Life](), {FIRST, SECOND}) * 3:
        node.there = there
        await node.departed.look()
    assert node.account.processes == {5: (100,), 6: (101,)}


def taken_by_another(node: Node) -> None:
    """Its slot is another process's by now."""
    with (node.own / "account").open("r+b") as file:
        file.seek(SLOTS + SLOT)
        file.write(struct.pack("<QII", 80, 6, 9))


@pytest.mark.parametrize("change", [taken_by_another, Node.restart])
@pytest.mark.parametrize("during", [1, 2])
async def test_a_slot_that_changed_hands_is_let_be(tmp_path: Path, change: Callable[[Node], None], during: int) -> None:
    """Also where that happens while processes are looked through."""
    node = Node(tmp_path)
    node.there = {FIRST, Life(born=80, pid=6, namespace=9)}
    for look in (1, 2):
        node.meanwhile = change if look == during else None
        await node.departed.look()
    assert node.account.processes == {5: (100,), 6: (101,)}


@pytest.mark.parametrize("size", [0, 5, 15, SLOTS, SLOTS + 200, ACCOUNT_BYTES - 1])
async def test_what_a_tenant_broke_is_let_be(tmp_path: Path, size: int) -> None:
    """An account that is cut short is none, nothing is written there, and nothing fails."""
    node = Node(tmp_path)
    node.there = set()
    await node.departed.look()
    os.truncate(node.own / "account", size)
    before = (node.own / "account").read_bytes()
    for _ in range(3):
        await node.departed.look()
    assert (node.own / "account").read_bytes() == before
    (node.own / "account").unlink()
    await node.departed.look()


async def test_it_looks_every_ten_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no more often: it goes through all processes of the node."""
    node, looks = Node(tmp_path), list[float]()

    async def look() -> None:
        looks.append(node.clock.monotonic())

    monkeypatch.setattr(node.departed, "look", look)
    running = asyncio.create_task(node.departed.run())
    await node.clock.advance(2.5 * LOOK_S)
    running.cancel()
    assert looks == [0.0, 10.0, 20.0]


def test_a_real_process_is_known_by_its_start_its_number_and_its_namespace() -> None:
    """While it lives; one that ended and was not waited for yet is not there."""
    processes, here = NodeProcesses(), Path("/proc/self/ns/pid").stat().st_ino
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        born = processes.born(child.pid)
        assert Life(born=born, pid=child.pid, namespace=here) in processes.living({born})
        assert child.pid not in {life.pid for life in processes.living({born + 1})}
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.born(child.pid) == born
        assert child.pid not in {life.pid for life in processes.living({born})}
