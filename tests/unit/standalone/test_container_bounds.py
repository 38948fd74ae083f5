"""A container's limits of CPU and memory, and where they are written."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from aliquot_core.objects import Container, ResourceRequirements
from aliquot_standalone.kubelet import groups
from aliquot_standalone.kubelet.bounds import bounds_of
from aliquot_standalone.kubelet.containers import Ended, Launch, LocalProcesses
from aliquot_standalone.kubelet.groups import Groups

ID = "node.uid-1.main.0"
GROUP = "poduid-1.main.0"


@pytest.mark.parametrize(
    ("limits", "bounds"),
    [
        ({}, {}),
        ({"aliquot.dev/memory": "8000"}, {}),
        ({"memory": "1Gi"}, {"memory.max": "1073741824", "memory.oom.group": "1"}),
        ({"memory": "1500m"}, {"memory.max": "1", "memory.oom.group": "1"}),
        ({"cpu": "1500m"}, {"cpu.max": "150000 100000"}),
        ({"cpu": 2}, {"cpu.max": "200000 100000"}),
        ({"cpu": "1m"}, {"cpu.max": "1000 100000"}),
        ({"cpu": "0", "memory": "0"}, {}),
    ],
)
def test_limits_become_what_the_kernel_reads(limits: dict[str, str | int], bounds: dict[str, str]) -> None:
    """As the kubelet writes them; nothing, or nothing named, is no limit."""
    assert bounds_of(Container(name="main", resources=ResourceRequirements(limits=dict(limits)))) == bounds


def test_limits_are_written_where_there_is_a_file_for_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where a controller is not handed down, that is said, no file is made, and the container starts all the same."""
    (tmp_path / GROUP).mkdir()
    (tmp_path / GROUP / "memory.max").write_text("max")
    with caplog.at_level(logging.INFO):
        made = Groups(tmp_path).make(ID, bounds={"memory.max": "4096", "cpu.max": "1000 100000"})
    assert made == tmp_path / GROUP
    assert {file.name: file.read_text() for file in made.iterdir()} == {"memory.max": "4096"}
    assert [getattr(record, "limit", "") for record in caplog.records] == ["cpu.max"]


def test_a_process_without_a_number_here_is_nobody(tmp_path: Path) -> None:
    """The kernel tells one of another PID namespace as 0, which as the target of a signal is our own group."""
    node = Groups(tmp_path)
    (node.make(ID, bounds={}) / "cgroup.procs").write_text("0\n4711\n")
    assert node.members(ID) == [4711]


@pytest.mark.parametrize(
    ("events", "starved"),
    [("low 0\nmax 7\noom 1\noom_kill 1\n", True), ("low 0\nmax 7\noom 0\noom_kill 0\n", False), (None, False)],
)
async def test_whoever_the_kernel_killed_for_memory_is_said_to_be(
    tmp_path: Path, events: str | None, *, starved: bool
) -> None:
    """As in a cluster: 137 alone would have the author look for who killed the program."""
    order = Launch(
        id=ID,
        argv=["sh", "-c", "kill -9 $PPID"],
        env={"PATH": os.environ["PATH"]},
        folder=tmp_path,
        log_file=tmp_path / "log",
        exit_file=tmp_path / "code",
    )
    node = Groups(tmp_path / "groups")
    group = node.make(ID, bounds={})
    # Whoever joins writes its number there, which in a plain file would be read as somebody's.
    (group / "cgroup.procs").symlink_to(os.devnull)
    if events is not None:
        (group / "memory.events").write_text(events)
    runtime = LocalProcesses(groups=node)
    ended = await runtime.wait(runtime.start(order), order.exit_file)
    assert ended == Ended(137, "OOMKilled" if starved else "Error")


def test_a_node_s_folder_that_was_tidied_away_is_made_again(tmp_path: Path) -> None:
    """Somebody removes what is empty, and a node may have nothing to do for long."""
    node = Groups(tmp_path / "own" / "node")
    for _ in range(2):
        assert node.make(ID, bounds={}).is_dir()
        node.remove(ID)
        node.close()
        assert not node.folder.exists()


def test_each_controller_is_handed_down_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not there keeps no other from it; the group above comes first."""
    written: list[tuple[str, str]] = []

    def write(file: Path, text: str) -> None:
        written.append((str(file.relative_to(tmp_path)), text))
        if "memory" in text:
            raise OSError

    monkeypatch.setattr(groups, "_write", write)
    groups._hand_down(tmp_path / "own" / "node")
    own, node = "own/cgroup.subtree_control", "own/node/cgroup.subtree_control"
    assert written == [(own, "+memory"), (own, "+cpu"), (node, "+memory"), (node, "+cpu")]
