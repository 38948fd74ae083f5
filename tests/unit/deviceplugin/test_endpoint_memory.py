"""What the endpoint remembers: names it gave, and its state file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aliquot_core.door import Device
from aliquot_deviceplugin.endpoint import given_names, state
from aliquot_deviceplugin.endpoint.given_names import GivenNames
from aliquot_deviceplugin.endpoint.state_keeper import StateKeeper
from support.clocks import VirtualClock

COMPUTE = "aliquot.dev/compute"
TOKENS = st.text("0123456789abcdef", min_size=1, max_size=16)
STATES = st.builds(
    state.State,
    tables=st.dictionaries(st.text(max_size=20), st.lists(st.from_type(Device), max_size=5), max_size=3),
    names=st.dictionaries(TOKENS, st.lists(TOKENS, max_size=5), max_size=5),
)

TRUNCATED = STATES.map(msgspec.json.encode).flatmap(lambda raw: st.integers(0, len(raw)).map(lambda n: raw[:n]))


def test_same_ids_keep_all_their_names() -> None:
    """An init and an app container that share ids each find their name, in whatever order the ids come."""
    given = GivenNames()
    given.remember(resource=COMPUTE, ids=["a-1", "a-2"], name="first")
    given.remember(resource=COMPUTE, ids=["a-2", "a-1"], name="second")
    given.remember(resource="aliquot.dev/best-effort", ids=["a-1", "a-2"], name="of another resource")

    assert given.names(resource=COMPUTE, ids=["a-2", "a-1"]) == ["first", "second"]
    assert given.names(resource=COMPUTE, ids=["a-2"]) == []


def test_memory_is_bounded() -> None:
    """The newest sets and the newest names of a set are kept; the oldest go."""
    given = GivenNames()
    for number in range(given_names.MOST_SETS + 1):
        given.remember(resource=COMPUTE, ids=[f"a-{number}"], name=f"n{number}")
    for number in range(given_names.MOST_NAMES + 1):
        given.remember(resource=COMPUTE, ids=["a-1"], name=f"again{number}")

    assert len(given.snapshot()) == given_names.MOST_SETS
    assert given.names(resource=COMPUTE, ids=["a-0"]) == []
    assert given.names(resource=COMPUTE, ids=["a-1"]) == [f"again{n}" for n in range(1, given_names.MOST_NAMES + 1)]


def test_used_again_is_not_forgotten() -> None:
    """A set of ids that is given again is among the newest."""
    given = GivenNames()
    given.remember(resource=COMPUTE, ids=["old"], name="first")
    for number in range(given_names.MOST_SETS - 1):
        given.remember(resource=COMPUTE, ids=[f"a-{number}"], name="n")
    given.remember(resource=COMPUTE, ids=["old"], name="second")
    given.remember(resource=COMPUTE, ids=["one more"], name="n")

    assert given.names(resource=COMPUTE, ids=["old"]) == ["first", "second"]


@given(STATES)
def test_state_comes_back_as_it_was(before: state.State) -> None:
    """What is encoded is decoded to the same."""
    assert state.decode(msgspec.json.encode(before), where="here") == before


@given(st.binary(max_size=200) | TRUNCATED)
@example(b'{"version":1,"names":{"\xff":[]}}')
@example(b'{"version":1,"x":' + b"[" * 100_000)
def test_garbage_has_a_name(raw: bytes) -> None:
    """Whatever a file holds, it is a state or a `StateFileError`."""
    with contextlib.suppress(state.StateFileError):
        assert state.decode(raw, where="endpoint.json").version == state.VERSION


@pytest.mark.parametrize("raw", [b'{"version": 2}', b'{"version": 0, "old_field": 1}'])
def test_another_version_is_named(raw: bytes) -> None:
    """A newer or older file is refused by its version, whatever else is in it."""
    with pytest.raises(state.StateFileError, match="version"):
        state.decode(raw, where="here")


def test_no_file_is_no_error(tmp_path: Path) -> None:
    """A node that never ran an endpoint has no state."""
    assert state.read(tmp_path / "none.json") is None


def test_unreadable_file_has_a_name(tmp_path: Path) -> None:
    """A folder in the file's place is a named error."""
    with pytest.raises(state.StateFileError, match=str(tmp_path)):
        state.read(tmp_path)


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A full disk at any step leaves the former state whole and no draft behind."""
    path = tmp_path / "lib" / "endpoint.json"
    state.write(path, state.State(names={"a": ["old"]}))

    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path if call == "replace" else os, call, full)
    with pytest.raises(OSError, match="No space"):
        state.write(path, state.State(names={"a": ["new"]}))
    monkeypatch.undo()

    assert state.read(path) == state.State(names={"a": ["old"]})
    assert [entry.name for entry in path.parent.iterdir()] == ["endpoint.json"]
    assert path.stat().st_mode & 0o777 == 0o600


class Disk:
    """Takes what is written, or refuses."""

    def __init__(self) -> None:
        self.written: list[state.State] = []
        self.full = False
        self._tried = threading.Semaphore(0)

    async def tried(self) -> None:
        """Wait for the next attempt to write."""
        assert await asyncio.to_thread(self._tried.acquire, timeout=60)

    def write(self, content: state.State) -> None:
        """Keep it."""
        self._tried.release()
        if self.full:
            raise OSError(28, "No space left on device")
        self.written.append(content)


async def test_a_burst_is_one_write() -> None:
    """A hundred changes within half a second are written once, with the last of them."""
    clock, disk, now = VirtualClock(), Disk(), state.State(names={"a": ["last"]})
    keeper = StateKeeper(write=disk.write, snapshot=lambda: now, clock=clock)
    running = asyncio.ensure_future(keeper.run())
    for _ in range(100):
        keeper.changed()
    await clock.advance(0.49)
    early = list(disk.written)
    await clock.advance(0.02)
    await disk.tried()
    await keeper.flush()
    running.cancel()

    assert (early, disk.written) == ([], [now])


async def test_a_full_disk_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """A write that fails is said once, and made good later."""
    clock, disk = VirtualClock(), Disk()
    disk.full = True
    keeper = StateKeeper(write=disk.write, snapshot=state.State, clock=clock)
    running = asyncio.ensure_future(keeper.run())
    keeper.changed()
    with caplog.at_level(logging.WARNING):
        await clock.advance(0.6)
        await disk.tried()
        assert not await keeper.flush()
        disk.full = False
        await clock.advance(30)
        await disk.tried()
    running.cancel()

    assert "No space" in caplog.text
    assert disk.written == [state.State()]
