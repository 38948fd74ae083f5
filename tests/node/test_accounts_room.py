"""The file system of accounts, mounted by a container and seen by the node, in a mount namespace of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.require import skip_or_fail

MIB = 4
# Before each part: the node's folder, shared as a node's disk is, and what a container with that folder does there.
NODE = """
import json, os, subprocess, sys
from pathlib import Path
from aliquot_agent.isolation.accounts_room import FILLING
from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.isolation.slice_files import IsolationFolderError, SliceFiles
from aliquot_core.grant import ContainerGrant

node = Path(sys.argv[1])
folder = node / "isolation"
for arguments in (["--bind", str(node), str(node)], ["--make-shared", str(node)]):
    subprocess.run(["mount", *arguments], check=True)
files = SliceFiles(folder=folder, library=node / "library")

def container(flag):
    command = [sys.executable, "-c", "from aliquot_cli.main import main; main()", "agent", flag]
    bidirectional = ["unshare", "--mount", "--propagation", "unchanged"]
    told = subprocess.run([*bidirectional, *command], check=True, capture_output=True, text=True)
    return [json.loads(line)["message"] for line in (told.stdout + told.stderr).splitlines()]

def start(name):
    owner = Owner(pod="uid", container=name)
    return files.write(token=name, owner=owner, grant=ContainerGrant(slices=()), driver="/driver", contexts={})

def kinds():
    return [line.split()[2] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[1] == str(folder)]

def taken(path):
    got = 0
    with path.open("ab", buffering=0) as account:
        try:
            while got < 1 << 26:
                got += account.write(bytes(4096))
        except OSError:
            pass
    return got
"""


def on_a_node(folder: Path, script: str) -> Any:
    """What a script tells as JSON, with the node's functions."""
    (folder / "library").write_bytes(bytes(700_000))
    environment = os.environ | {
        "ALIQUOT_AGENT_ISOLATION_FOLDER": str(folder / "isolation"),
        "ALIQUOT_AGENT_ISOLATION": "interposer",
        "ALIQUOT_AGENT_ACCOUNTS_MIB": str(MIB),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    own = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*own, "true"], check=False, capture_output=True).returncode:
        skip_or_fail("cluster", "no mount namespace may be made here: run it as root")
    command = [*own, sys.executable, "-c", f"{NODE}\n{script}", str(folder)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert not told.returncode, told.stderr
    return json.loads(told.stdout)


@pytest.mark.timeout(120)
def test_it_outlives_who_mounted_it_and_is_mounted_once(tmp_path: Path) -> None:
    """The node sees what a container mounted that has ended; the next one leaves it there, and one takes it away."""
    told = on_a_node(
        tmp_path,
        """
first = container("--make-room")
start("one")
again = container("--make-room")
size, there = os.statvfs(folder).f_blocks * os.statvfs(folder).f_frsize, [own.name for own in files.containers()]
mounted = kinds()
away = container("--take-room-away")
print(json.dumps([first, again, size, there, mounted, away, kinds(), container("--take-room-away")]))
""",
    )
    first, again, size, there, mounted, away, after, nothing = told
    assert "is a file system of 4 MiB" in first[0]
    assert "already" in again[0]
    assert (size, there, mounted) == (MIB << 20, ["one"], ["tmpfs"])
    assert "is unmounted" in away[0]
    assert after == []
    assert "nothing to take away" in nothing[0]


@pytest.mark.timeout(120)
def test_containers_that_run_are_not_hidden(tmp_path: Path) -> None:
    """Their files lie on the disk, and the agent needs them: the folder stays as it is."""
    told = on_a_node(tmp_path, 'start("one")\nprint(json.dumps([container("--make-room"), kinds()]))')
    assert "files of containers that run" in told[0][0]
    assert told[1] == []


@pytest.mark.timeout(120)
def test_who_enlarges_an_account_finds_no_room_and_others_start(tmp_path: Path) -> None:
    """What is free is filled: a tenant gets a few pages, the others keep theirs, and who starts next has an own one."""
    told = on_a_node(
        tmp_path,
        """
container("--make-room")
assert files.prepare() == ""
one, two = start("one"), start("two")
got = [taken(one / "account")]
os.truncate(one / "account", 262144)
three = start("three")
got.append(taken(one / "account"))
whole = [(own / "account").stat().st_blocks * 512 for own in (two, three)]
print(json.dumps([got, whole, sorted(files.tokens())]))
""",
    )
    got, whole, tokens = told
    assert max(got) <= 64 * 1024
    assert whole == [262_144, 262_144]
    assert tokens == ["one", "three", "two"]


@pytest.mark.timeout(120)
def test_who_is_gone_leaves_room_for_who_comes(tmp_path: Path) -> None:
    """As many containers start as the file system has room for, and as many again when they have ended."""
    told = on_a_node(
        tmp_path,
        """
container("--make-room")
def many(prefix):
    for number in range(100):
        try:
            start(f"{prefix}{number}")
        except IsolationFolderError as error:
            return number, str(error)
first = many("a")
files.collect(tokens=set())
filled = os.statvfs(folder).f_bavail
print(json.dumps([first, filled, many("b")]))
""",
    )
    (first, why), filled, (second, _) = told
    assert first == second
    assert first >= MIB * 3
    assert "No space left" in why
    assert filled == 0


@pytest.mark.timeout(120)
def test_only_a_small_file_system_of_its_own_is_filled(tmp_path: Path) -> None:
    """Not one of which the folder is a part, nor one so large that it holds more than accounts."""
    told = on_a_node(
        tmp_path,
        """
def filled(size, at):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(at)], check=True)
    folder.mkdir(exist_ok=True)
    files.collect(tokens=set())
    return (folder / FILLING).exists()
print(json.dumps([filled("4m", node), filled("2g", folder), filled("4m", folder)]))
""",
    )
    assert told == [False, False, True]
