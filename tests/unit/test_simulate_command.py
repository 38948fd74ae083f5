"""`aliquot simulate` from outside: what it prints, files packed or not, mistakes, Ctrl-C."""

from __future__ import annotations

import gzip
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aliquot_cli.main import main
from aliquot_scheduler.simulating import runs
from aliquot_scheduler.simulating.replay import Replay

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{n},64000,262144,2,T4\n" for n in range(3))
PODS = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "2000,1024,1,460,\n2000,1024,1,540,\n" * 5


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Nodes and pods, the latter packed."""
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv.gz").write_bytes(gzip.compress(PODS.encode()))
    return ["simulate", "--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv.gz")]


def run(*arguments: str) -> Result:
    """The command, as a shell calls it."""
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("policy", ["aliquot", "bestfit", "gpupacking", "fgd", "random"])
def test_json_has_the_curves_and_what_they_are_of(files: list[str], policy: str) -> None:
    """Scripts read it."""
    done = run(*files, "--seed", "1", "--policy", policy, "-o", "json")
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert {"policy", "seed", "pods", "failed", "allocated_pct_at", "frag_pct_at", "seconds"} <= set(told)
    assert (told["policy"], told["seed"], told["ties"], told["partial"]) == (policy, 1, "fresh", False)
    assert told["pods"] == told["placed"] + told["failed"] >= 10
    assert told["allocated_pct_at"].keys() == told["frag_pct_at"].keys()


def test_a_person_gets_a_table_and_a_picture(files: list[str], tmp_path: Path) -> None:
    """The picture is one that any browser shows."""
    plot = tmp_path / "curves.svg"
    done = run(*files, "--plot", str(plot))
    assert done.exit_code == 0
    assert "ASKED FOR  ALLOCATED  FRAGMENTS" in done.stdout
    assert plot.read_text().startswith("<svg ")
    assert plot.read_text().count("<polyline") == 2


def test_pods_that_add_up_fill_the_cards(files: list[str]) -> None:
    """46 % and 54 % make a whole: that is what the value of a place is for."""
    told = json.loads(run(*files, "-o", "json").stdout)
    assert max(told["allocated_pct_at"].values()) > 90.0


def test_a_mistake_in_a_file_is_the_user_s_and_has_its_line(files: list[str], tmp_path: Path) -> None:
    """Exit code 3, no traceback."""
    bad = tmp_path / "bad.csv"
    bad.write_text(PODS + "2000,1024,1,nan,\n")
    done = run(*files[:3], "--pods", str(bad))
    assert done.exit_code == 3
    assert "bad.csv, line 12: gpu_milli 'nan' is not a whole number" in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\x1f\x8bnot really", "can't be read"), (b"\xff\xfe\x00", "can't be read"), (b"", "column cpu_milli")],
    ids=["broken gzip", "no text", "empty"],
)
def test_a_file_that_is_no_list_is_refused(files: list[str], tmp_path: Path, content: bytes, said: str) -> None:
    """With its name."""
    bad = tmp_path / "bad.csv"
    bad.write_bytes(content)
    done = run(*files[:3], "--pods", str(bad))
    assert done.exit_code == 3
    assert said in done.stderr
    assert "bad.csv" in done.stderr


def test_ctrl_c_prints_what_there_is_and_says_that_it_is_partial(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends between two pods."""
    begin = runs.begin

    def begin_and_interrupt(*arguments: Any, **named: Any) -> Replay:
        replay = begin(*arguments, **named)
        steps = replay.steps

        def interrupted() -> Iterator[int]:
            for done in steps():
                if done == 5:
                    signal.raise_signal(signal.SIGINT)
                yield done

        monkeypatch.setattr(replay, "steps", interrupted)
        return replay

    monkeypatch.setattr("aliquot_cli.simulate.begin", begin_and_interrupt)
    before = signal.getsignal(signal.SIGINT)
    done = run(*files, "-o", "json")
    assert done.exit_code == 130
    assert (json.loads(done.stdout)["pods"], json.loads(done.stdout)["partial"]) == (5, True)
    assert "interrupted after 5 of" in done.stderr
    assert signal.getsignal(signal.SIGINT) is before
