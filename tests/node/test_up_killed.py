"""`aliquot up` that was killed: what dies with it, what outlives it, and what the next one or `down` makes of that."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from aliquot_core.grant import Slice, decode_grant
from support.endpoints import short_folder
from support.http_api import Json
from support.up_process import NAMES, PODS, aliquot, eventually, gone, naming, processes_of, running_up


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where one `aliquot up` keeps everything; short, for unix sockets."""
    with short_folder() as root:
        yield root / "home"


def test_what_it_started_dies_with_it(folder: Path) -> None:
    """Even when it is killed: no centre, endpoint or agent lives without it."""
    with running_up(folder) as up:
        started = [pid for name in ("scheduler", "endpoint", "agent") for pid in up.children(name)]
        assert len(started) == 3
        up.process.kill()
        assert gone(started)


def test_pods_outlive_a_kill_and_are_found_again(folder: Path) -> None:
    """The same processes, on the same slices; what ended meanwhile says how; nothing is given twice."""
    with running_up(folder) as up:
        up.run("lives", "sleep", "1000", compute="60")
        up.run("ends", "sleep", "1000", compute="60")
        up.until("lives", "Running")
        uid = up.until("ends", "Running")["metadata"]["uid"]
        before = up.pod("lives")
        process = processes_of(before["metadata"]["uid"])
        up.process.kill()
        up.process.wait()
    up.kill(uid)
    with running_up(folder) as up:
        ended = up.until("ends", "Failed")
        assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] != 0
        after = up.pod("lives")
        assert (after["metadata"]["uid"], after["status"]["phase"]) == (before["metadata"]["uid"], "Running")
        assert after["status"]["containerStatuses"][0]["restartCount"] == 0
        # One may have begun another just after it was looked at.
        assert process
        assert set(process) <= set(processes_of(before["metadata"]["uid"]))
        # Eight GPUs, 60 % of one taken: seven whole ones fit, and an eighth does not.
        for number in range(7):
            up.run(f"whole-{number}", "sleep", "1000", compute="100")
        for number in range(7):
            up.until(f"whole-{number}", "Running")
        held = {one.gpu for name in ["lives", *(f"whole-{one}" for one in range(7))] for one in _slices(up.pod(name))}
        assert len(held) == 8
        assert up.stop() == 0
    assert naming(folder) == []


def test_after_a_kill_nothing_is_held_for_pods_that_are_gone(folder: Path) -> None:
    """Their kubelet went too, so nothing of them can come: whoever needs their room has it at once."""
    with running_up(folder) as up:
        up.run("lives", "sleep", "1000")
        up.run("gone", "true")
        lives = up.until("lives", "Running")["metadata"]["uid"]
        ended = up.until("gone", "Succeeded")["metadata"]["uid"]
        up.api.delete(f"{PODS}/gone").ok()
        eventually(lambda: up.api.get(f"{PODS}/gone").code == HTTPStatus.NOT_FOUND)
        # Their agent tidies up once a minute.
        assert _has_slice(folder, ended)
        up.process.kill()
        up.process.wait()
    with running_up(folder) as up:
        assert _has_slice(folder, lives)
        assert not _has_slice(folder, ended)
        assert up.stop() == 0


def test_other_nodes_after_a_kill_leave_nothing_of_those_before(folder: Path) -> None:
    """No kubelet comes for a node that is there no more: its containers end, and its cgroups go."""
    uid, groups = _killed_with(folder, "lost")
    with running_up(folder, gpus="2xT4") as up:
        assert up.until("lost", "Failed")["status"]["reason"] == "NodeLost"
        assert processes_of(uid) == []
        assert [one for one in groups if one.exists()] == []
        assert up.stop() == 0


def test_down_ends_what_a_kill_has_left(folder: Path) -> None:
    """Containers whose `aliquot up` is gone are found by their mark, and go with their cgroups."""
    uid, groups = _killed_with(folder, "stays")
    assert "processes of pods that it had left" in aliquot("down", "--purge", folder=folder).stdout
    assert processes_of(uid) == []
    assert not folder.exists()
    assert [one for one in groups if one.exists()] == []


def _killed_with(folder: Path, name: str) -> tuple[str, list[Path]]:
    """A pod that outlives its `aliquot up`, and the cgroups that are left."""
    with running_up(folder) as up:
        up.run(name, "sleep", "1000")
        uid: str = up.until(name, "Running")["metadata"]["uid"]
        groups = _groups(folder)
        up.process.kill()
        up.process.wait()
    assert processes_of(uid)
    return uid, groups


def _groups(folder: Path) -> list[Path]:
    """Where the nodes' cgroups are; none where none can be made."""
    return [Path(record.read_text()) for record in folder.glob("nodes/*/cgroup")]


def _has_slice(folder: Path, uid: str) -> bool:
    """Whether a slice of the pod is written down on its node."""
    return any(uid in _content(spec) for spec in folder.glob("nodes/*/cdi/*.json"))


def _content(spec: Path) -> str:
    """Of a file that whoever has made it may remove between two looks."""
    try:
        return spec.read_text()
    except FileNotFoundError:
        return ""


def _slices(pod: Json) -> list[Slice]:
    grant = decode_grant(pod["metadata"]["annotations"][NAMES.grant])
    return [one for container in grant.containers.values() for one in container.slices]
