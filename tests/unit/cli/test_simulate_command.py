"""`aliquot simulate` from outside: what it prints, files packed or not, mistakes, Ctrl-C."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click import Context
from click.testing import CliRunner, Result

from aliquot_cli.main import main
from aliquot_cli.simulate_modes import _MEANT
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


def signalled(monkeypatch: pytest.MonkeyPatch, *numbers: signal.Signals) -> None:
    """Let these signals come at the fifth pod."""
    begin = runs.begin

    def begin_and_interrupt(*arguments: Any, **named: Any) -> Replay:
        replay = begin(*arguments, **named)
        steps = replay.steps

        def interrupted() -> Iterator[int]:
            for done in steps():
                for number in numbers if done == 5 else ():
                    # Else it would end whoever runs the tests.
                    assert signal.getsignal(number) is not signal.SIG_DFL
                    signal.raise_signal(number)
                yield done

        monkeypatch.setattr(replay, "steps", interrupted)
        return replay

    monkeypatch.setattr("aliquot_cli.simulate_places.begin", begin_and_interrupt)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_who_is_told_to_stop_prints_what_there_is_and_says_that_it_is_partial(
    files: list[str], monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    """By Ctrl-C, or by whoever ends processes: the run ends between two pods."""
    signalled(monkeypatch, number)
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    done = run(*files, "-o", "json")
    assert done.exit_code == code
    assert (json.loads(done.stdout)["pods"], json.loads(done.stdout)["partial"]) == (5, True)
    assert "interrupted after 5 of" in done.stderr
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.fixture
def heard_ctrl_c() -> Iterator[None]:
    """As where somebody sits before it: a shell has what it starts in the background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_ctrl_c")
def test_who_presses_ctrl_c_twice_does_not_wait(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends there and then, as any other command."""
    signalled(monkeypatch, signal.SIGINT, signal.SIGINT)
    done = run(*files, "-o", "json")
    assert (done.exit_code, done.stdout) == (130, "")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# --- what means nothing is refused -----------------------------------------------------------------------------------

STRAYS: list[tuple[str, str]] = [
    ("--time --order x", "--order says nothing with --time; it is for runs without --time or with --record"),
    ("--time --noderank x", "--noderank says nothing with --time; it is for runs without --time"),
    ("--time --mix learnt", "--mix says nothing with --time"),
    ("--time --print-mix", "--print-mix says nothing with --time; it is for runs with --print-mix"),
    ("--compress 0.4", "--compress says nothing without --time; it is for runs with --time"),
    ("--gpus-only", "--gpus-only says nothing without --time"),
    ("--hold 0", "--hold says nothing without --time"),
    ("--patience 0", "--patience says nothing without --time"),
    ("--after 0", "--after says nothing without --time"),
    ("--bootstrap 1", "--bootstrap says nothing without --time"),
    ("--teams 8", "--teams says nothing without --time"),
    ("--users 12", "--users says nothing without --time"),
    ("--queues x", "--queues says nothing without --time"),
    ("--slowdown 0", "--slowdown says nothing without --time"),
    ("--kubeconfig x", "--kubeconfig says nothing without --time; it is for runs with --record"),
    ("--print-mix --plot x.svg", "--plot says nothing with --print-mix; it is for runs without --time or with --time"),
    ("--print-mix --policy fgd", "--policy says nothing with --print-mix"),
    ("--record --time", "--time says nothing with --record"),
    ("--record -o json", "-o says nothing with --record"),
]


@pytest.mark.parametrize(("options", "said"), STRAYS, ids=[options for options, _ in STRAYS])
def test_an_option_that_would_change_nothing_is_refused(files: list[str], options: str, said: str) -> None:
    """Who gave it believes that it was heeded; nothing is replayed."""
    done = run(*files, *options.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_every_option_has_a_run_that_it_is_for() -> None:
    """A new one that is forgotten in the table would be ignored wherever it means nothing."""
    command = main.get_command(Context(main), "simulate")
    assert command is not None
    assert {parameter.name for parameter in command.params} == {*_MEANT, "help"}


@pytest.mark.parametrize("name", ["x.png", "x.PDF", "curves.tar.gz"])
def test_a_picture_that_would_not_be_one_is_refused(files: list[str], tmp_path: Path, name: str) -> None:
    """Curves are SVG, whatever the file is called."""
    done = run(*files, "--plot", str(tmp_path / name))
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"curves are drawn as SVG, not as {name.rpartition('.')[2]}; name it " in done.stderr
    assert run(*files, "--plot", str(tmp_path / "X.SVG")).exit_code == 0


@pytest.mark.parametrize("what", ["-ojson", "--print-mix"], ids=["more than a buffer", "less than a buffer"])
def test_a_full_disk_is_told_without_a_traceback(files: list[str], what: str) -> None:
    """In one sentence, and the process ends as one whose request could not be met."""
    command = [str(Path(sys.executable).with_name("aliquot")), *files, what]
    # As most people have it: what could not be written is held back, and tried again at the end.
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=150, env=usual
        )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        "aliquot: standard output: the result can't be written: No space left on device; send it to another place"
    )
    assert not {"Traceback", "Exception"} & set(done.stderr.split())


# --- the mix of the settings -----------------------------------------------------------------------------------------


def test_a_printed_mix_comes_back_from_the_settings(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file and from the variable: what is placed by it is what is placed by the list's own."""
    own = json.loads(run(*files, "-o", "json").stdout)
    assert own["mix"] == "given"
    file = tmp_path / "aliquot.toml"
    file.write_text(run(*files, "--print-mix").stdout)
    from_file = json.loads(run(*files, "--config", str(file), "-o", "json").stdout)
    monkeypatch.setenv("ALIQUOT_PLACEMENT_MIX", run(*files, "--print-mix", "-o", "json").stdout.strip())
    for told in (from_file, json.loads(run(*files, "-o", "json").stdout)):
        assert told["mix"] == "settings"
        assert told["allocated_pct_at"] == own["allocated_pct_at"]
    assert run("config").exit_code == 0


def test_a_mix_of_the_settings_is_used_unless_another_is_asked_for(files: list[str], tmp_path: Path) -> None:
    """By whoever runs it; and one that is not there is refused."""
    file = tmp_path / "aliquot.toml"
    file.write_text("[[placement.mix]]\nshare = 1\ngpus = 1\ncompute = 70\n")
    learnt = run(*files, "--config", str(file), "--mix", "learnt", "-o", "json")
    assert json.loads(learnt.stdout)["mix"] == "learnt"
    assert "(mix settings, " in run(*files, "--config", str(file)).stdout
    done = run(*files, "--mix", "settings")
    assert (done.exit_code, "the settings have no [[placement.mix]]" in done.stderr) == (2, True)


def test_pods_are_placed_by_the_mix_of_the_settings(tmp_path: Path) -> None:
    """Who may go anywhere leaves the cards to those who can't, as settings expect them; wrongly told, eight fail."""
    (tmp_path / "nodes").write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,65536,4,T4\nn1,64000,65536,4,A10\n")
    heading = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    (tmp_path / "pods").write_text(heading + "1000,1,1,500,\n" * 8 + "1000,1,1,500,T4\n" * 8)
    (tmp_path / "order").write_text("seed42\n" + "".join(f"{number}\n" for number in range(16)))
    files = ["simulate", *(f"--{what}={tmp_path / what}" for what in ("nodes", "pods", "order")), "-o", "json"]
    failed = {}
    for model in ("T4", "A10"):
        mix = "[[placement.mix]]\nshare = 1\ncores = 1\ngpus = 1\ncompute = 50\nmodels = '{}'\n"
        (tmp_path / model).write_text(mix.format(model))
        failed[model] = json.loads(run(*files, "--config", str(tmp_path / model)).stdout)["failed"]
    assert failed == {"T4": 0, "A10": 8}
