"""`aliquot up` and what goes wrong around it: a full disk, and processes that do not do as they are told."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus

import pytest

from support.endpoints import short_folder
from support.require import skip_or_fail
from support.up_process import PODS, Up, aliquot, calling, eventually, gone, naming, processes_of, running_up


@pytest.fixture
def up() -> Iterator[Up]:
    """One that runs, and leaves nothing behind."""
    with short_folder() as root:
        with running_up(root / "home") as up:
            yield up
            assert up.stop() == 0
        assert naming(root) == []


@contextmanager
def full_disk(up: Up) -> Iterator[None]:
    """Let no file of the process grow, nor a new one be written, as if the disk were full."""
    before = resource.prlimit(up.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it was to end meanwhile
            resource.prlimit(up.process.pid, resource.RLIMIT_FSIZE, before)


def test_a_full_disk_refuses_changes_and_ends_nothing(up: Up) -> None:
    """Who writes is told why, the terminal once; what runs goes on; with room again all is as ever, which is said."""
    up.run("runs", "sleep", "1000")
    up.run("ends", "sleep", "1000")
    up.until("runs", "Running")
    uid = up.until("ends", "Running")["metadata"]["uid"]
    with full_disk(up):
        refused = up.api.post(
            PODS, {"metadata": {"name": "late"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        )
        assert refused.code == HTTPStatus.INTERNAL_SERVER_ERROR
        assert "could not be written to disk and was not made" in refused.body["message"]
        assert _told_next(up).startswith("changes can't be written to disk and are refused")
        # Whoever looks is told so too, before anything else is made of what is read.
        for words in (("ps",), ("explain", "runs")):
            told = aliquot(*words, folder=up.home.folder).stderr
            assert told.startswith("aliquot: changes can't be written to disk and are refused; what runs goes on (")
        # Its end can't be written either: not in the API, nor in the memory of its node.
        up.kill(uid)
        eventually(lambda: not processes_of(uid))
        assert up.process.poll() is None
        assert up.pod("runs")["status"]["phase"] == "Running"
    up.until("ends", "Failed")
    up.run("late", "true")
    up.until("late", "Succeeded")
    assert _told_next(up) == "changes are written to disk again"


def _told_next(up: Up) -> str:
    """The next line at its terminal."""
    assert up.process.stdout
    return up.process.stdout.readline().strip()


def test_it_ends_in_order_on_a_full_disk(up: Up) -> None:
    """Nothing that ends needs room; what was there is there the next time."""
    up.run("runs", "sleep", "1000")
    up.until("runs", "Running")
    with full_disk(up):
        assert up.stop() == 0


def test_a_process_that_forks_away_and_ignores_sigterm_is_ended(up: Up) -> None:
    """With its session left and SIGTERM ignored it is killed when its grace is over, and its GPU is free."""
    script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & while :; do sleep 1; done"
    up.run("stubborn", "sh", "-c", script, compute="100")
    uid = up.until("stubborn", "Running")["metadata"]["uid"]
    eventually(lambda: len(processes_of(uid)) >= 3)
    up.api.delete(f"{PODS}/stubborn").ok()
    eventually(lambda: up.api.get(f"{PODS}/stubborn").code == HTTPStatus.NOT_FOUND)
    assert processes_of(uid) == []
    for number in range(8):
        up.run(f"whole-{number}", "sleep", "1000", compute="100")
    for number in range(8):
        up.until(f"whole-{number}", "Running")


def test_a_process_that_floods_its_log_fills_no_disk(up: Up) -> None:
    """Only the end of what it printed is kept, and others print and are read meanwhile."""
    up.run("flood", "sh", "-c", "yes | head -c 300000000; echo the end; exec sleep 1000")
    uid = up.until("flood", "Running")["metadata"]["uid"]
    up.run("quiet", "echo", "heard")
    up.until("quiet", "Succeeded")
    assert up.log("quiet") == "heard\n"
    log = next(up.home.folder.glob(f"nodes/*/logs/default_flood_{uid}/main/0.log"))
    eventually(lambda: log.stat().st_size > 300_000_000 and log.stat().st_blocks * 512 <= 20 * 1024 * 1024)
    assert up.log("flood", tailLines="2") == "y\nthe end\n"


def test_all_that_stays_after_a_stop_is_ended_by_force(up: Up) -> None:
    """A pod that ignores SIGTERM does not keep `aliquot up` from ending; the fixture sees that nothing is left."""
    up.run("stubborn", "sh", "-c", "trap '' TERM; while :; do sleep 1; done", terminationGracePeriodSeconds=3600)
    uid = up.until("stubborn", "Running")["metadata"]["uid"]
    assert up.stop(signal.SIGTERM) == 0
    assert processes_of(uid) == []


def _told_that_it_has_ended(process: subprocess.Popen[str]) -> bool:
    _, told = process.communicate(timeout=60)
    lines = told.splitlines()
    return process.returncode == 4 and "`aliquot up` has ended" in lines[-1] and len(lines) <= 3


def test_who_waits_for_a_slice_is_told_that_all_has_ended(up: Up) -> None:
    """In few lines, with the code of a cluster's fault, instead of waiting for the next one."""
    up.run("holds", "sleep", "1000", compute="800")
    up.until("holds", "Running")
    with calling("run", "--name", "waits", "--compute", "100", "--", "true", folder=up.home.folder) as process:
        assert process.stderr
        assert process.stderr.readline().startswith("aliquot: waits: ")
        assert up.stop() == 0
        assert _told_that_it_has_ended(process)


def test_who_follows_a_log_is_told_that_all_was_killed() -> None:
    """The pod lives, but nobody will tell of it."""
    with short_folder() as root, running_up(root / "home", gpus="1xT4") as up:
        up.run("talks", "sh", "-c", "echo here; exec sleep 1000")
        up.until("talks", "Running")
        with calling("logs", "-f", "talks", folder=up.home.folder) as process:
            assert process.stdout
            assert process.stdout.readline() == "here\n"
            up.stop(signal.SIGKILL)
            assert _told_that_it_has_ended(process)
        aliquot("down", folder=up.home.folder)


def _printed_number(up: Up, name: str) -> int:
    eventually(lambda: up.log(name).endswith("\n"))
    return int(up.log(name).split()[1])


def test_who_hides_from_every_mark_is_ended_with_its_pod() -> None:
    """Out of the session, with an empty environment and deaf to SIGTERM: its cgroup tells whose it is."""
    hides = "setsid env -i /bin/sh -c 'trap \"\" TERM; echo pid $$$$; while :; do sleep 1; done' & exec sleep 1000"
    strays = []
    with short_folder() as root, running_up(root / "home") as up:
        if not list(up.home.folder.glob("nodes/*/cgroup")):
            assert up.stop() == 0
            skip_or_fail("cgroup", "aliquot up can make no cgroups here: cgroup v2, writable, is needed")
        for name in ("first", "second"):
            up.run(name, "sh", "-c", hides)
            up.until(name, "Running")
            strays.append(_printed_number(up, name))
        up.api.delete(f"{PODS}/first").ok()
        assert gone(strays[:1])
        up.process.kill()
        up.process.wait()
        assert "that it had left" in aliquot("down", folder=up.home.folder).stdout
        assert gone(strays[1:])
        assert naming(root) == []
