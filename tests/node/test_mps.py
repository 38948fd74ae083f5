"""MPS daemons are kept as the agent wishes: real processes, with a strict stand-in for NVIDIA's control program."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aliquot_agent.gpus.compute_modes import NvmlComputeModes
from aliquot_agent.isolation.gpu_modes import Told, Use, hindrance
from aliquot_agent.isolation.mps_control import MpsError
from aliquot_agent.isolation.mps_folder import AnotherKeeperError
from aliquot_agent.isolation.mps_keeper import MpsKeeper
from aliquot_kube.clock import SystemClock
from support.fake_nvml import FakeNvml
from support.mps import StandIn

CLOCK = SystemClock()
PATIENCE = 120.0


@pytest.fixture
def stand_in(fake_nvml: FakeNvml, tmp_path: Path) -> Iterator[StandIn]:
    """The control program on a node of four GPUs."""
    stand_in = StandIn(home=tmp_path, modes=f"{fake_nvml.state}.compute-")
    yield stand_in
    stand_in.close()


def keeper_of(stand_in: StandIn, *, multi_user: bool = True, silence: float = PATIENCE) -> MpsKeeper:
    """A keeper on the fake NVML and the stand-in."""
    return MpsKeeper(
        folder=stand_in.folder,
        modes=NvmlComputeModes(),
        control=lambda gpu: stand_in.control(gpu, clock=CLOCK, multi_user=multi_user),
        clock=CLOCK,
        most_clients=2,
        look=0.3,
        silence=silence,
    )


@asynccontextmanager
async def running(keeper: MpsKeeper) -> AsyncIterator[None]:
    """Let it keep."""
    work = asyncio.ensure_future(keeper.run())
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def until(held: Callable[[], bool], what: str) -> None:
    """Wait until it is so."""
    deadline = CLOCK.monotonic() + PATIENCE
    while not held():
        if CLOCK.monotonic() > deadline:
            pytest.fail(f"{what}: not within {PATIENCE:g} s")
        await CLOCK.sleep(0.02)


async def brought(stand_in: StandIn, gpu: str, use: Use) -> None:
    """Ask for a mode, and wait until containers may start in it."""
    stand_in.folder.want(gpu, use)
    await until(lambda: not hindrance(stand_in.folder.seat(gpu), use=use), f"{gpu} becomes {use}")


async def test_a_gpu_is_shared_alone_and_free_in_turn(stand_in: StandIn, fake_nvml: FakeNvml) -> None:
    """Each of two GPUs has its own daemon and mode; what is free again has no daemon and takes everybody."""
    first, second = (gpu.uuid for gpu in fake_nvml.gpus[:2])
    modes, held = NvmlComputeModes(), stand_in.folder.hold()
    async with running(keeper_of(stand_in)):
        await brought(stand_in, first, Use.SHARED)
        await brought(stand_in, second, Use.EXCLUSIVE)
        assert (modes.closed(first), modes.closed(second)) == (True, False)
        served = await asyncio.to_thread(stand_in.say, first, "stand-in: come 11 1000 30 0=4000M")
        assert served.startswith("served by")
        # Another user's too, by the same server.
        assert await asyncio.to_thread(stand_in.say, first, "stand-in: come 12 2000 20 0=500M") == served
        assert stand_in.pid(second) is None
        await brought(stand_in, first, Use.EXCLUSIVE)
        assert (modes.closed(first), stand_in.pid(first)) == (False, None)
        await brought(stand_in, first, Use.FREE)
    os.close(held)


async def test_a_full_daemon_and_a_faulty_one_let_nobody_start(stand_in: StandIn, fake_nvml: FakeNvml) -> None:
    """Both are said to who waits, and both pass when the clients have ended."""
    gpu, held = fake_nvml.gpus[0].uuid, stand_in.folder.hold()

    def why() -> str:
        return hindrance(stand_in.folder.seat(gpu), use=Use.SHARED)

    async with running(keeper_of(stand_in)):
        await brought(stand_in, gpu, Use.SHARED)
        for pid in (11, 12):
            await asyncio.to_thread(stand_in.say, gpu, f"stand-in: come {pid} 0 50 0=100M")
        await until(lambda: "2 processes" in why(), "it is full")
        assert await asyncio.to_thread(stand_in.say, gpu, "stand-in: fault") == "11 12", (
            "a fault takes all clients of the GPU"
        )
        await until(lambda: "fault" in why(), "it is faulty")
        await asyncio.to_thread(stand_in.say, gpu, "stand-in: go 11")
        await asyncio.to_thread(stand_in.say, gpu, "stand-in: go 12")
        await until(lambda: not why(), "it takes clients again")
    os.close(held)


async def test_a_fault_is_one_however_it_is_worded(stand_in: StandIn, fake_nvml: FakeNvml) -> None:
    """What the daemon says beside it hides it from nobody who would start there."""
    gpu, held = fake_nvml.gpus[0].uuid, stand_in.folder.hold()
    async with running(keeper_of(stand_in)):
        await brought(stand_in, gpu, Use.SHARED)
        await asyncio.to_thread(stand_in.say, gpu, "stand-in: come 11 0 50 0=100M")
        await asyncio.to_thread(stand_in.say, gpu, "stand-in: answer get_server_status Fault (since 3 s)")
        await until(lambda: "fault" in hindrance(stand_in.folder.seat(gpu), use=Use.SHARED), "it is said")
        assert "fault" in hindrance(stand_in.folder.seat(gpu), use=Use.SHARED)
    os.close(held)


async def test_a_daemon_that_does_not_quit_is_killed(stand_in: StandIn, fake_nvml: FakeNvml) -> None:
    """Who has the GPU alone next does not wait for it for ever, and its server goes with it."""
    gpu, held = fake_nvml.gpus[0].uuid, stand_in.folder.hold()
    async with running(keeper_of(stand_in)):
        await brought(stand_in, gpu, Use.SHARED)
        served = await asyncio.to_thread(stand_in.say, gpu, "stand-in: come 11 0 50 0=100M")
        assert await asyncio.to_thread(stand_in.say, gpu, "stand-in: refuse quit") == "spoilt"
        await brought(stand_in, gpu, Use.EXCLUSIVE)
    assert not NvmlComputeModes().closed(gpu)
    await until(lambda: _has_ended(Path("/proc") / served.split()[-1]), "its server has ended")
    os.close(held)


async def test_a_daemon_outlives_its_keeper_and_is_found_again(stand_in: StandIn, fake_nvml: FakeNvml) -> None:
    """A keeper that is gone is said to be away; the next one finds the daemon with its clients, and starts no other."""
    gpu, held = fake_nvml.gpus[0].uuid, stand_in.folder.hold()
    async with running(keeper_of(stand_in)):
        await brought(stand_in, gpu, Use.SHARED)
    before = stand_in.pid(gpu)
    served = await asyncio.to_thread(stand_in.say, gpu, "stand-in: come 11 0 50 0=100M")
    told = Told(use=Use.SHARED, clients=1, most_clients=2, servers=(int(served.split()[-1]),))
    os.close(held)
    assert "does not run" in hindrance(stand_in.folder.seat(gpu), use=Use.SHARED)
    assert stand_in.folder.was_kept()
    held = stand_in.folder.hold()
    with pytest.raises(AnotherKeeperError):
        stand_in.folder.hold()
    async with running(keeper_of(stand_in)):
        await until(lambda: stand_in.folder.seat(gpu).told == told, "its client is counted")
    assert stand_in.pid(gpu) == before
    os.close(held)


# What is said to it; or the signal that it gets.
LOST: dict[str, str | signal.Signals] = {
    "killed": signal.SIGKILL,
    "hung": signal.SIGSTOP,
    "hung with one question": "stand-in: hang get_server_status",
    "refuses one question": "stand-in: refuse get_client_list",
}


@pytest.mark.parametrize("how", list(LOST))
async def test_a_daemon_that_dies_or_hangs_is_replaced(stand_in: StandIn, fake_nvml: FakeNvml, how: str) -> None:
    """What it left is cleared, in the folder that containers have mounted; meanwhile nobody starts."""
    gpu, held = fake_nvml.gpus[0].uuid, stand_in.folder.hold()
    async with running(keeper_of(stand_in)):
        await brought(stand_in, gpu, Use.SHARED)
        other = fake_nvml.gpus[1].uuid
        await brought(stand_in, other, Use.SHARED)
    folder, before, beside = stand_in.folder.pipe(gpu), stand_in.pid(gpu), stand_in.pid(other)
    assert before is not None
    mounted = folder.stat().st_ino
    served = await asyncio.to_thread(stand_in.say, gpu, "stand-in: come 11 0 50 0=100M")
    server = Path("/proc") / served.split()[-1]
    assert (server / "comm").read_text().startswith("nvidia-cuda-mps")
    (folder / "lost").touch()
    if isinstance(lost := LOST[how], str):
        assert await asyncio.to_thread(stand_in.say, gpu, lost) == "spoilt"
    else:
        os.kill(before, lost)
    # Not too short: a busy machine takes its time to ask a daemon that is well.
    async with running(keeper_of(stand_in, silence=5.0)):
        await until(lambda: stand_in.pid(gpu) not in (None, before), "another daemon runs")
        await until(lambda: not hindrance(stand_in.folder.seat(gpu), use=Use.SHARED), "containers may start")
    assert folder.stat().st_ino == mounted
    assert not (folder / "lost").exists()
    # A server that was left would have kept the GPU from the next one.
    await until(lambda: _has_ended(server), "its server has ended")
    # Another GPU's is none of this.
    assert stand_in.pid(other) == beside
    assert not _has_ended(Path("/proc") / str(beside))
    os.close(held)


@pytest.mark.parametrize("cleared", [True, False])
async def test_after_a_reboot_all_begins_anew(stand_in: StandIn, fake_nvml: FakeNvml, cleared: bool) -> None:
    """Daemon, servers and mode are gone, the folder with them or not: nobody starts before there is another daemon."""
    gpu, held = fake_nvml.gpus[0].uuid, stand_in.folder.hold()
    async with running(keeper_of(stand_in)):
        await brought(stand_in, gpu, Use.SHARED)
    await asyncio.to_thread(stand_in.say, gpu, "stand-in: come 11 0 50 0=100M")
    before = stand_in.pid(gpu)
    stand_in.control(gpu, clock=CLOCK).kill()
    os.close(held)
    # The driver comes up with every GPU open.
    NvmlComputeModes().close(gpu, closed=False)
    if cleared:
        shutil.rmtree(stand_in.home / "mps")
    held = stand_in.folder.hold()
    assert hindrance(stand_in.folder.seat(gpu), use=Use.SHARED)
    async with running(keeper_of(stand_in)):
        await brought(stand_in, gpu, Use.SHARED)
    assert NvmlComputeModes().closed(gpu)
    assert stand_in.pid(gpu) not in (None, before)
    assert (await asyncio.to_thread(stand_in.say, gpu, "stand-in: come 12 0 50 0=100M")).startswith("served by")
    os.close(held)


async def test_a_keeper_that_is_told_to_leave_ends_daemons_and_opens_gpus(
    stand_in: StandIn, fake_nvml: FakeNvml
) -> None:
    """Else programs without MPS would find a GPU that takes nobody."""
    gpu, keeper = fake_nvml.gpus[0].uuid, keeper_of(stand_in)
    held = stand_in.folder.hold()
    async with running(keeper):
        await brought(stand_in, gpu, Use.SHARED)
    await keeper.leave()
    assert stand_in.pid(gpu) is None
    assert not NvmlComputeModes().closed(gpu)
    assert stand_in.commands(gpu)[-1].startswith("quit -t")
    os.close(held)


async def test_the_process_ends_its_daemons_when_it_is_told_to_stop(stand_in: StandIn, fake_nvml: FakeNvml) -> None:
    """`aliquot mps` itself: it does what is wanted in its folder, and leaves nothing behind."""
    gpu = fake_nvml.gpus[0].uuid
    told = {"ALIQUOT_MPS_FOLDER": str(stand_in.home / "mps"), "ALIQUOT_MPS_PROGRAM": str(stand_in.program)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "aliquot_cli.main", "mps", env=os.environ | fake_nvml.environment() | told
    )
    try:
        await brought(stand_in, gpu, Use.SHARED)
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert stand_in.pid(gpu) is None
    assert not NvmlComputeModes().closed(gpu)


async def test_one_user_at_a_time_without_the_switch(stand_in: StandIn, fake_nvml: FakeNvml) -> None:
    """With `multi_user` off a second user's client queues, as MPS has always done."""
    gpu, held = fake_nvml.gpus[0].uuid, stand_in.folder.hold()
    async with running(keeper_of(stand_in, multi_user=False)):
        await brought(stand_in, gpu, Use.SHARED)
        assert (await asyncio.to_thread(stand_in.say, gpu, "stand-in: come 11 1000 30 0=4000M")).startswith("served")
        assert await asyncio.to_thread(stand_in.say, gpu, "stand-in: come 12 2000 20 0=500M") == "queued"
    os.close(held)


async def test_a_daemon_is_not_started_on_an_open_gpu(stand_in: StandIn, fake_nvml: FakeNvml) -> None:
    """The stand-in refuses what the keeper must never do, and its words arrive with the GPU's name."""
    gpu = fake_nvml.gpus[0].uuid
    NvmlComputeModes().close(gpu, closed=False)
    stand_in.folder.clear(gpu)
    with pytest.raises(MpsError, match="takes more than one process"):
        await stand_in.control(gpu, clock=CLOCK).start()


async def test_the_stand_in_lets_no_mistake_of_ours_pass(stand_in: StandIn, fake_nvml: FakeNvml) -> None:
    """What its manual does not have is refused: another command or option, limits that are none, two for one GPU."""
    gpu = fake_nvml.gpus[0].uuid
    NvmlComputeModes().close(gpu, closed=True)
    stand_in.folder.clear(gpu)
    control = stand_in.control(gpu, clock=CLOCK)
    await control.start()
    with pytest.raises(MpsError, match="already running"):
        await control.start()
    for line, answer in (
        ("get_servers", "Invalid command: get_servers"),
        ("get_server_status 7", "Server 7 was not found"),
        ("stand-in: come 11 0 101 0=1M", "refused: limits that are none"),
        ("stand-in: come 11 0 30 1000", "refused: limits that are none"),
    ):
        assert await asyncio.to_thread(stand_in.say, gpu, line) == answer
    await control.quit()
    assert control.is_gone()
    with pytest.raises(MpsError, match="does not quit: Cannot find MPS control daemon"):
        await control.quit()
    (stand_in.folder.pipe(gpu) / "control").touch()
    with pytest.raises(MpsError, match="another daemon is in the way"):
        await control.start()


async def test_a_program_that_is_not_there_is_said(stand_in: StandIn, fake_nvml: FakeNvml) -> None:
    """The GPU's seat has the reason, for the container that waits."""
    gpu, held = fake_nvml.gpus[0].uuid, stand_in.folder.hold()
    stand_in.program.unlink()
    async with running(keeper_of(stand_in)):
        stand_in.folder.want(gpu, Use.SHARED)
        await until(lambda: (told := stand_in.folder.seat(gpu).told) is not None and bool(told.problem), "it is said")
    assert "can't be run" in hindrance(stand_in.folder.seat(gpu), use=Use.SHARED)
    os.close(held)


def _has_ended(process: Path) -> bool:
    """Whether it is gone, or only waited for."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
