"""The folder of `aliquot up`: where it is, who runs there, and where its sockets lie."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot_agent.gpus.simulated import simulated_uuid
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_core.settings import LONGEST_SOCKET
from aliquot_standalone.home import FolderFullError, FolderUnfitError, Home, longest_socket


@pytest.mark.parametrize(
    ("said", "environment", "expected"),
    [
        ("/a", {"ALIQUOT_HOME": "/b"}, "/a"),
        ("", {"ALIQUOT_HOME": "/b", "XDG_STATE_HOME": "/c"}, "/b"),
        ("", {"XDG_STATE_HOME": "/c"}, "/c/aliquot"),
        ("", {"XDG_STATE_HOME": "relative"}, str(Path.home() / ".local/state/aliquot")),
    ],
)
def test_the_folder_is_the_one_that_was_named_last(said: str, environment: dict[str, str], expected: str) -> None:
    """A flag beats the variable, that beats the user's own place; a relative XDG folder counts for nothing."""
    assert Home.of(said, environment=environment).folder == Path(expected)


@pytest.mark.parametrize("length", [1, 20, 34, 40, 60, 200])
def test_sockets_fit_however_long_the_folders_path_is(length: int, tmp_path: Path) -> None:
    """They lie in the folder where they can, and in a short one of the same name each time where not."""
    home = Home(Path("/") / ("x" * length), environment={"XDG_RUNTIME_DIR": str(tmp_path / "none")})
    assert longest_socket(home.runtime) <= LONGEST_SOCKET
    daemon = MpsFolder(home.mps).pipe(simulated_uuid(node="n", index=0))
    assert len(os.fsencode(daemon / "control_privileged")) <= LONGEST_SOCKET
    assert (home.runtime.parent == home.folder) == (length <= 20)
    assert home.runtime == Home(home.folder, environment={}).runtime


def test_whoever_announced_itself_is_found_while_it_lives(tmp_path: Path) -> None:
    """A process is known by number and birth: another one of that number is not taken for it."""
    home = Home(tmp_path / "home", environment={})
    assert home.running() is None
    home.create()
    announced = home.announce(api="http://127.0.0.1:1", page="http://127.0.0.1:2", now=0.0)
    assert home.running() == announced
    assert (announced.pid, announced.started) == (os.getpid(), "1970-01-01T00:00:00+00:00")
    other = json.loads(home.up_file.read_bytes()) | {"born": "boot:1"}
    home.up_file.write_text(json.dumps(other))
    assert home.running() is None
    home.up_file.write_text("{")
    assert home.running() is None


def test_only_its_user_may_enter(tmp_path: Path) -> None:
    """Objects and certificates are the user's alone, and a place for sockets that others can write to is refused."""
    home = Home(tmp_path / "home", environment={"XDG_RUNTIME_DIR": str(tmp_path)})
    home.create()
    assert home.folder.stat().st_mode & 0o077 == 0
    home.runtime.chmod(0o777)
    with pytest.raises(FolderUnfitError, match="others can write there"):
        home.create()
    home.runtime.rmdir()


def test_a_folder_that_can_not_be_made_says_why(tmp_path: Path) -> None:
    """With what to do instead."""
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderUnfitError, match=r"Not a directory.*--folder"):
        Home(tmp_path / "file" / "home", environment={}).create()


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    """A full disk as a rule: a line that says where to make room, whatever was to be written."""
    home = Home(tmp_path / "home", environment={})
    home.create()
    for taken in (home.up_file, home.kubeconfig, home.folder / "last.json"):
        (taken / "in the way").mkdir(parents=True)
    writes: list[Callable[[], object]] = [
        lambda: home.announce(api="", page="", now=0.0),
        lambda: home.remember("8xA100-80GB"),
        lambda: home.write_kubeconfig(b"{}"),
    ]
    for write in writes:
        with pytest.raises(FolderFullError, match=r"can't be written: Is a directory; make room there, or"):
            write()


def test_only_what_is_ours_is_removed(tmp_path: Path) -> None:
    """Whatever was made, however much of it: what somebody else put there stays, whatever its name begins with."""
    home = Home(tmp_path / "home", environment={})
    home.create()
    home.remember("8xA100-80GB")
    for name in ("journal", "journal.cut-at-7", "journal.new", "lock", "journalism.txt"):
        (home.folder / name).write_text("x")
    home.node("a").mkdir(parents=True)
    assert home.purge() == [home.folder / "journalism.txt"]
    (home.folder / "journalism.txt").unlink()
    home.create()
    assert home.purge() == []
    assert not home.folder.exists()
    assert home.purge() == []


def test_a_folder_of_somebody_else_s_is_neither_used_nor_emptied(tmp_path: Path) -> None:
    """Be there folders and files of the very names that ours have."""
    home = Home(tmp_path, environment={})
    for name in ("logs", "nodes", "run", "centre"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "theirs").write_text("x")
    for name in ("journal", "kubeconfig", "lock"):
        (tmp_path / name).write_text("x")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FolderUnfitError, match=r"nothing was removed.*name the one"):
        home.purge()
    with pytest.raises(FolderUnfitError, match=r"is not empty \('centre' is there\).*--folder"):
        home.create()
    assert sorted(tmp_path.rglob("*")) == before
