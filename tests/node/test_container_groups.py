"""Containers in cgroups of their own: who hides from every mark is found and ended all the same."""

from __future__ import annotations

import os
import select
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot_standalone.kubelet.containers import Ended, Launch, LocalProcesses, marked
from aliquot_standalone.kubelet.groups import Groups, groups_at, own_group, recorded_groups
from support.http_api import LONG_S
from support.pipes import Pipe
from support.require import skip_or_fail

# Leaves the session, clears the environment, and ignores what can be ignored.
HIDES = "setsid env -i /bin/sh -c 'trap \"\" TERM; echo $$ >pid; echo >ready; while :; do sleep 1; done' &"


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Groups]:
    """A node's groups; all in them is ended afterwards."""
    made = groups_at(tmp_path / "cgroup", name=f"test-{uuid.uuid4().hex[:8]}")
    if made is None:
        skip_or_fail("cgroup", f"no cgroups can be made below {own_group()}: cgroup v2, writable, is needed")
    yield made
    if made.folder.exists():
        (made.folder / "cgroup.kill").write_text("1")
        made.close()


def launch(folder: Path, script: str) -> Launch:
    """A launch of a shell script below a folder."""
    return Launch(
        id=f"{folder.name}.0000-uid.main.0",
        argv=["sh", "-c", script],
        env={"PATH": os.environ["PATH"]},
        folder=folder / "work",
        log_file=folder / "main.log",
        exit_file=folder / "main.exit",
    )


def ready(folder: Path) -> Pipe:
    """Heard when the process that hides has hidden."""
    (folder / "work").mkdir()
    return Pipe(folder / "work" / "ready")


async def test_who_clears_its_environment_and_leaves_its_session_is_ended(tmp_path: Path, groups: Groups) -> None:
    """It bears no mark and is in no process group of ours; its cgroup it has kept."""
    pipe, order = ready(tmp_path), launch(tmp_path, f"{HIDES} read x <go")
    go = Pipe(tmp_path / "work" / "go")
    runtime = LocalProcesses(groups=groups)
    process = runtime.start(order)
    await pipe.heard()
    stray = int((tmp_path / "work" / "pid").read_text())
    descriptor = os.pidfd_open(stray)
    assert stray not in marked(order.id)
    assert os.getpgid(stray) != process.pid
    assert groups.has_process_of("0000-uid")
    go.tell()
    assert await runtime.wait(process, order.exit_file) == Ended(0, "Completed")
    assert select.select([descriptor], [], [], 0.0)[0] == [descriptor]
    assert list(groups.folder.glob("pod*")) == []
    os.close(descriptor)
    pipe.close()
    go.close()


async def test_a_signal_reaches_who_hides(tmp_path: Path, groups: Groups) -> None:
    """Also the first one, which asks to end."""
    script = HIDES.replace('trap "" TERM', "trap 'exit 0' TERM".replace("'", '"'))
    pipe, order = ready(tmp_path), launch(tmp_path, f"{script} while :; do sleep 1; done")
    runtime = LocalProcesses(groups=groups)
    process = runtime.start(order)
    await pipe.heard()
    descriptor = os.pidfd_open(int((tmp_path / "work" / "pid").read_text()))
    runtime.signal(process, 15)
    assert select.select([descriptor], [], [], LONG_S)[0] == [descriptor]
    os.close(descriptor)
    await runtime.wait(process, order.exit_file)
    pipe.close()


async def test_a_process_may_make_groups_of_its_own(tmp_path: Path, groups: Groups) -> None:
    """Below its container's; they end and go with it."""
    order = launch(tmp_path, f"mkdir {groups.folder}/pod0000-uid.main.0/own && exit 3")
    runtime = LocalProcesses(groups=groups)
    assert await runtime.wait(runtime.start(order), order.exit_file) == Ended(3, "Error")
    assert list(groups.folder.glob("pod*")) == []


def test_groups_are_found_again(tmp_path: Path, groups: Groups) -> None:
    """By whoever starts next, whatever group that is in; after a reboot, or with another folder, new ones are made."""
    record = tmp_path / "cgroup"
    found = recorded_groups(record)
    assert found
    assert found.folder == groups.folder
    again = groups_at(record, name="another")
    assert again
    assert again.folder == groups.folder
    groups.close()
    assert recorded_groups(record) is None


class KilledError(BaseException):
    """Nobody catches it, as nobody catches SIGKILL."""


def test_groups_are_known_before_they_are_made(tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is killed while it makes some leaves none that nobody would ever remove."""

    def killed(_: Path) -> bool:
        raise KilledError

    monkeypatch.setattr("aliquot_standalone.kubelet.groups._can_be_joined", killed)
    record = tmp_path / "another"
    with pytest.raises(KilledError):
        groups_at(record, name=f"{groups.folder.name}-too")
    left = recorded_groups(record)
    assert left
    left.close()
    assert not left.folder.exists()


@pytest.mark.parametrize("text", ["", "relative", "/nowhere/at/all", "\0"])
def test_a_record_that_leads_nowhere_counts_for_nothing(tmp_path: Path, text: str) -> None:
    """As after a reboot."""
    record = tmp_path / "cgroup"
    assert recorded_groups(record) is None
    record.write_text(text)
    assert recorded_groups(record) is None


@pytest.mark.parametrize(
    ("mounts", "cgroup", "expected"),
    [
        (
            "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "0::/a.slice/b.scope\n",
            "a.slice/b.scope",
        ),
        ("30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/\n", ""),
        ("30 1 0:26 /in/it /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/in/it/own\n", "own"),
        ("30 1 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "1:cpu:/\n", None),
        ("30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "1:cpu:/\n", None),
    ],
)
def test_the_own_group_is_where_the_kernel_says(tmp_path: Path, mounts: str, cgroup: str, expected: str | None) -> None:
    """Cgroup v2 may be mounted anywhere, as a whole or in part, or not at all."""
    (tmp_path / "mountinfo").write_text(mounts)
    (tmp_path / "cgroup").write_text(cgroup)
    assert own_group(tmp_path) == (None if expected is None else Path("/sys/fs/cgroup") / expected)
