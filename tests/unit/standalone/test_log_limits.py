"""What containers print is held within bounds, under those who write and those who read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from aliquot_standalone.apiserver.log_files import LogFiles
from aliquot_standalone.apiserver.logs import LogWish
from aliquot_standalone.kubelet import log_limits
from aliquot_standalone.kubelet.log_limits import LogKeeper, bound, hold_to
from support.clocks import VirtualClock

MOST = 64 * 1024
MIB = 1024 * 1024
LINE = b"%09d\n"
WISH = LogWish(namespace="default", pod="web", uid="u1", node="n", container="main")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A container's log file, still empty."""
    folder = tmp_path / "default_web_u1" / "main"
    folder.mkdir(parents=True)
    (folder / "0.log").touch()
    return folder / "0.log"


def flood(log: Path, *, lines: int, since: int = 0) -> None:
    """Print so many numbered lines, as a container does: by appending."""
    with log.open("ab") as file:
        file.write(b"".join(LINE % number for number in range(since, since + lines)))


def there(log: Path) -> bytes:
    """What of it has not been let go."""
    return log.read_bytes().lstrip(b"\0")


def held(log: Path) -> int:
    """What the file takes of the disk."""
    return log.stat().st_blocks * 512


async def read(log: Path, **wish: object) -> list[bytes]:
    """What a reader is given, line by line."""
    files = LogFiles(folder_of=lambda _: log.parents[2], ended=lambda _: True, clock=VirtualClock())
    wanted = msgspec.structs.replace(WISH, **wish)
    return b"".join([piece async for piece in files.read(wanted)]).split(b"\n")


async def test_the_end_of_a_flood_is_kept(log: Path) -> None:
    """However much is printed: the last half of the bound is there, and readers begin where the data do."""
    flood(log, lines=50_000)
    hold_to(MOST, files=[log])
    assert MOST // 2 <= held(log) <= MOST
    lines = await read(log)
    assert lines[-2:] == [LINE[:-1] % 49_999, b""]
    assert MOST // 2 <= sum(len(line) + 1 for line in lines) <= MOST
    assert await read(log, tail=2) == [LINE[:-1] % 49_998, LINE[:-1] % 49_999, b""]
    assert len(await read(log, tail=40_000)) == len(lines)


def test_what_was_let_go_is_let_go_once(log: Path) -> None:
    """A log that was large and holds little now is not looked at as a large one."""
    flood(log, lines=50_000)
    assert [hold_to(MOST, files=[log]) for _ in range(3)] == [[log], [], []]


@pytest.mark.timeout(60)
async def test_a_reader_does_not_look_for_lines_in_what_was_let_go(log: Path) -> None:
    """A terabyte that was printed and let go is not read through for the last lines."""
    with log.open("ab") as file:
        file.truncate(2**40)
    flood(log, lines=3)
    assert (await read(log, tail=9))[-4:] == [*(LINE[:-1] % number for number in range(3)), b""]


async def test_who_writes_goes_on(log: Path) -> None:
    """Nobody who prints is told, and nothing that is printed later is lost."""
    flood(log, lines=50_000)
    hold_to(MOST, files=[log])
    flood(log, lines=10, since=50_000)
    assert (await read(log))[-12:-1] == [LINE[:-1] % number for number in range(49_999, 50_010)]


def test_what_is_small_stays_whole(log: Path) -> None:
    """A log within its bound is not touched."""
    flood(log, lines=100)
    before = log.read_bytes()
    hold_to(MOST, files=[log, log.with_name("gone.log")])
    assert log.read_bytes() == before


async def test_a_reader_under_whom_the_beginning_goes_jumps_to_the_data(log: Path) -> None:
    """It is given no zeros for what was let go."""
    flood(log, lines=50_000)
    files = LogFiles(folder_of=lambda _: log.parents[2], ended=lambda _: True, clock=VirtualClock())
    pieces = files.read(WISH)
    first = await anext(pieces)
    hold_to(MOST, files=[log])
    rest = b"".join([piece async for piece in pieces])
    assert first.startswith(LINE % 0)
    # To the byte what is still there, and no zeros for the rest.
    assert rest == there(log)
    assert rest.endswith(LINE % 49_999)


async def test_a_log_is_gone_on_with_from_a_byte_whatever_was_let_go(log: Path) -> None:
    """Who was cut off names how much it has: nothing that is still there is left out, and nothing told twice."""
    flood(log, lines=50_000)
    hold_to(MOST, files=[log])
    flood(log, lines=10, since=50_000)
    new = [LINE[:-1] % number for number in range(50_000, 50_010)]
    assert await read(log, since=50_000 * len(LINE % 0)) == [*new, b""]
    assert await read(log, since=7) == await read(log)


@pytest.mark.parametrize(
    ("free", "held_to"),
    [(0, 1), (15, 1), (50, 5), (199, 19), (200, 20), (10**6, 20)],
)
def test_on_a_disk_that_is_nearly_full_less_is_kept(free: int, held_to: int) -> None:
    """A tenth of what is free at most, yet never so little that nobody can tell why a program failed; in MiB."""
    assert bound(most=20 * MIB, free=free * MIB) // MIB == held_to
    assert bound(most=MOST, free=free * MIB) == MOST


async def test_a_flood_is_told_once(log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However often it is cut: our own log is on the same disk."""
    caplog.set_level("INFO")
    clock = VirtualClock()
    keeper = LogKeeper(folder=tmp_path, written=lambda: [log], clock=clock, most=MIB, look=3.0, look_soon=1.0)
    keeping = asyncio.create_task(keeper.run())
    for _ in range(5):
        flood(log, lines=200_000)
        await clock.advance(2)
        assert held(log) <= MIB
    assert caplog.text.count("loses its older half") == 1
    keeping.cancel()


async def test_who_prints_is_looked_at_often_and_all_others_at_leisure(log: Path, tmp_path: Path) -> None:
    """A flood is cut before the next look at everything; what was left by a container that has ended is cut then."""
    left = log.with_name("1.log")
    clock = VirtualClock()
    keeper = LogKeeper(folder=tmp_path, written=lambda: [log], clock=clock, most=MIB, look=60.0, look_soon=1.0)
    keeping = asyncio.create_task(keeper.run())
    await clock.advance(0)
    for path in (log, left):
        flood(path, lines=200_000)
    await clock.advance(1.5)
    assert (held(log) <= MIB, held(left) <= MIB) == (True, False)
    await clock.advance(60)
    assert held(left) <= MIB
    keeping.cancel()


async def test_a_full_disk_lowers_the_bound_of_all(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next look at everything, without anybody's doing."""
    clock = VirtualClock()
    keeping = asyncio.create_task(
        LogKeeper(folder=tmp_path, written=list, clock=clock, most=8 * MIB, look=1.0, look_soon=1.0).run()
    )
    flood(log, lines=200_000)
    await clock.advance(5)
    whole = held(log)
    monkeypatch.setattr(log_limits, "_free", lambda _: 0)
    await clock.advance(5)
    assert (whole > MIB, held(log) <= MIB) == (True, True)
    keeping.cancel()


async def test_where_there_are_no_holes_the_log_is_emptied(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems can't; a reader that follows then begins anew."""
    monkeypatch.setattr(log_limits, "_punch", lambda _file, _end: False)
    flood(log, lines=50_000)
    files = LogFiles(folder_of=lambda _: log.parents[2], ended=lambda _: True, clock=VirtualClock())
    pieces = files.read(WISH)
    await anext(pieces)
    hold_to(MOST, files=[log])
    assert held(log) == 0
    flood(log, lines=3)
    assert b"".join([piece async for piece in pieces]) == b"".join(LINE % number for number in range(3))


def test_a_log_that_can_not_be_opened_is_told_and_the_others_are_held(
    log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One broken file costs nobody else their disk."""
    flood(log, lines=50_000)
    loop = tmp_path / "loop.log"
    loop.symlink_to(loop)
    hold_to(MOST, files=[loop, log])
    assert held(log) <= MOST
    assert "can't be held" in caplog.text
