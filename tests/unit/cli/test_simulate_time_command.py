"""`aliquot simulate --time` from outside: what it prints, queues from a file, mistakes, Ctrl-C."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aliquot_cli.main import main
from aliquot_scheduler.simulating.timed.contest import TimedRun

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,1,T4\n"
HEADING = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,scheduled_time,deletion_time,queue\n"
# Two halves run together where GPUs are shared, one after the other where they are not.
PODS = HEADING + "2000,1024,1,500,,0,0,3600,a\n" + "2000,1024,1,500,,0,5,3605,b\n" + "2000,1024,1,500,,0,5,,b\n"
QUEUE = "apiVersion: aliquot.dev/v1alpha1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {spec}\n---\n"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Nodes and pods."""
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return ["simulate", "--time", "--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]


def run(*arguments: str) -> Result:
    """The command, as a shell calls it."""
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("option", ["--compress", "--slowdown", "--hold", "--patience"])
@pytest.mark.parametrize("number", ["nan", "inf", "-1"])
def test_what_can_t_be_reckoned_with_is_refused(files: list[str], option: str, number: str) -> None:
    """Before anything runs: endless times are never over, and what is no number gives figures that mean nothing."""
    done = run(*files, option, number)
    assert (done.exit_code, option in done.output) == (2, True)


def test_arrivals_are_not_drawn_out_beyond_all_time(files: list[str]) -> None:
    """It is said before anything runs, and is no overflow in the middle."""
    done = run(*files, "--compress", "1e308")
    assert (done.exit_code, "--compress" in done.output) == (2, True)


@pytest.mark.parametrize(
    "given",
    ["--moves 5", "--hold 0", "--patience 60", "--grace 30", "--users 12", "--queues none.yaml", "--config none.toml"],
)
@pytest.mark.parametrize("policy", ["fifo", "whole-gpu-fifo"])
def test_what_only_our_own_policy_heeds_is_refused_with_another(files: list[str], policy: str, given: str) -> None:
    """Rather than left out of account in silence, also if it is what goes without saying; and nothing is read."""
    option, *_ = given.split()
    done = run(*files, "--policy", policy, *given.split())
    told = f"{option} says nothing to policy {policy}; it is for aliquot"
    assert (done.exit_code, told in " ".join(done.output.split())) == (2, True)


def test_settings_that_no_policy_heeds_are_not_told_of(files: list[str], tmp_path: Path) -> None:
    """A mix that lies in the environment's settings is our own policy's: without that nothing is said of it."""
    (tmp_path / "own").write_text("[[placement.mix]]\nshare = 1\ncores = 2\ngpus = 1\ncompute = 100\n")
    told = {
        policy: CliRunner().invoke(main, [*files, "--policy", policy], env={"ALIQUOT_CONFIG": str(tmp_path / "own")})
        for policy in ("fifo", "aliquot")
    }
    assert [one.exit_code for one in told.values()] == [0, 0]
    assert ["mix of the settings" in one.stdout for one in told.values()] == [False, True]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--after", "999"], "of 2 pods that could run none was created at 999 or later; choose an earlier second"),
        (["--after", "999", "--gpus-only"], "at 999 or later and asks for GPUs; choose an earlier second or all pods"),
    ],
)
def test_a_second_after_which_nobody_came_is_told(files: list[str], more: list[str], told: str) -> None:
    """And not that the list has no times."""
    done = run(*files, *more)
    assert (done.exit_code, done.stdout) == (3, "")
    assert told in done.stderr


@pytest.mark.parametrize("line", ['empties = "gpus"', 'drain_degraded = "yes"', "patience = -1"])
def test_values_that_a_centre_would_refuse_are_refused(files: list[str], tmp_path: Path, line: str) -> None:
    """Else a file that looks good here keeps the centre from starting."""
    (tmp_path / "wrong.toml").write_text(f"[queues]\n{line}\n")
    done = run(*files, "--config", str(tmp_path / "wrong.toml"))
    assert (done.exit_code, done.stdout) == (4, "")
    assert line.partition(" ")[0] in done.stderr


def test_policies_stand_side_by_side(files: list[str], tmp_path: Path) -> None:
    """A row each, with the hour that one half waits where GPUs are not shared; and a picture of them."""
    plot = tmp_path / "use.svg"
    done = run(*files, "--plot", str(plot))
    assert done.exit_code == 0, done.output
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert rows["2"].startswith("2 pods with GPUs, 1 left out")
    assert "30.0 min" in rows["whole-gpu-fifo"]
    assert "2.00 h" in rows["whole-gpu-fifo"]
    assert rows["fifo"].split()[1:3] == rows["aliquot"].split()[1:3] == ["0.0", "min"]
    assert "violations: whole-gpu-fifo 0, fifo 0, aliquot 0" in done.stdout
    assert "GPU time given by then, of what anybody could have given: whole-gpu-fifo 50.0 %\n" in done.stdout
    assert plot.read_text().count("<polyline") == 2 * 3


def test_json_has_a_report_for_each_policy(files: list[str]) -> None:
    """Scripts read it."""
    done = run(*files, "--policy", "whole-gpu-fifo", "--seed", "3", "-o", "json")
    (told,) = json.loads(done.stdout)
    assert (told["policy"], told["seed"], told["jobs"], told["ended"], told["partial"]) == (
        "whole-gpu-fifo",
        3,
        2,
        2,
        False,
    )
    assert told["wait"] == {"mean": 1800.0, "percentiles": {"50": 1800.0, "90": 3240.0, "99": 3564.0, "100": 3600.0}}
    assert (told["makespan"], told["quota_violations"], told["jain_wait"]) == (7200.0, 0, 0.5)


def test_options_change_what_is_asked(files: list[str]) -> None:
    """Slow-down for who shares, other arrivals, teams where the list has none."""

    def told(*more: str) -> dict[str, float]:
        (found,) = json.loads(run(*files, "--policy", "fifo", "-o", "json", *more).stdout)
        return {"makespan": found["makespan"], "jobs": found["jobs"]}

    assert told("--slowdown", "50") == {"makespan": 5400.0, "jobs": 2}
    assert told("--after", "0", "--bootstrap", "1", "--compress", "0.5") == {"makespan": 3600.0, "jobs": 2}


def test_patience_is_after_how_long_a_pair_is_not_passed_any_more(files: list[str], tmp_path: Path) -> None:
    """Where small ones come without end, two GPUs are never free at once by chance."""
    (tmp_path / "nodes.csv").write_text(NODES.replace(",1,T4", ",2,T4"))
    small = "".join(f"2000,1024,1,1000,,{at},{at},{at + 250},a\n" for at in range(0, 6000, 100))
    (tmp_path / "pods.csv").write_text(HEADING + small + "2000,1024,2,1000,,50,50,60,b\n")

    def longest(patience: str) -> float:
        done = run(*files, "--policy", "aliquot", "--patience", patience, "-o", "json")
        found: float = json.loads(done.stdout)[0]["wait"]["percentiles"]["100"]
        return found

    assert longest("300") < 4_000 < longest("100000")


def test_a_mix_of_the_settings_is_what_our_own_policy_goes_by(files: list[str], tmp_path: Path) -> None:
    """Who may go anywhere leaves the cards to those of whom settings tell; and it is said whose mix it was."""
    (tmp_path / "nodes.csv").write_text(NODES + "n1,64000,262144,1,A10\n")
    rows = "".join(f"2000,1024,1,1000,{model},{at},{at},{at + 100},a\n" for at, model in enumerate(["", "T4"]))
    (tmp_path / "pods.csv").write_text(HEADING + rows)
    waits = {}
    for model in ("T4", "A10"):
        mix = f"[[placement.mix]]\nshare = 1\ncores = 2\ngpus = 1\ncompute = 100\nmodels = '{model}'\n"
        (tmp_path / model).write_text(mix)
        done = run(*files, "--policy", "aliquot", "--config", str(tmp_path / model), "-o", "json")
        waits[model] = json.loads(done.stdout)[0]["wait"]["percentiles"]["100"]
    assert waits == {"T4": 0.0, "A10": 99.0}
    assert "; seed 42, mix of the settings\n" in run(*files, "--config", str(tmp_path / "T4")).stdout


def test_queues_of_a_file_are_kept_to(files: list[str], tmp_path: Path) -> None:
    """A limit of half a GPU lets one half in at a time."""
    queues = tmp_path / "queues.yaml"
    below = [QUEUE.format(name=name, spec="{parent: all}") for name in "ab"]
    queues.write_text(QUEUE.format(name="all", spec="{compute: {limit: 50}}") + "".join(below))
    done = run(*files, "--policy", "aliquot", "--queues", str(queues), "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["makespan"] == 7200.0


def test_borrowers_that_had_to_go_are_told(files: list[str], tmp_path: Path) -> None:
    """An owner comes ten minutes after a borrower took all: after the grace that is given it has its GPU."""
    pods = HEADING + "2000,1024,1,1000,,0,0,3600,b\n" + "2000,1024,1,1000,,600,600,1200,a\n"
    (tmp_path / "pods.csv").write_text(pods)
    queues = tmp_path / "queues.yaml"
    queues.write_text(QUEUE.format(name="a", spec="{compute: {guarantee: 100}}") + QUEUE.format(name="b", spec="{}"))
    asked = [*files, "--policy", "aliquot", "--queues", str(queues), "--grace", "20"]
    (told,) = json.loads(run(*asked, "-o", "json").stdout)
    assert (told["evictions"], told["most_evicted"], told["makespan"]) == (1, 1, 600 + 20 + 600 + 3600)
    assert (
        "sent away for others or moved: aliquot 1, nobody more than 1 times, 0.2 GPU hours lost" in run(*asked).stdout
    )


def test_pods_are_moved_where_that_is_allowed(files: list[str], tmp_path: Path) -> None:
    """Two halves lie apart once others have ended; one is moved beside the other for whom a whole GPU is wanted."""
    (tmp_path / "nodes.csv").write_text(NODES.replace(",1,T4", ",2,T4"))
    half, whole = "2000,1024,1,500,,{0},{0},{1},a\n", "2000,1024,1,1000,,{0},{0},{1},a\n"
    rows = [half.format(at, end) for at, end in ((0, 900_000), (1, 1_000), (2, 900_000), (3, 1_000))]
    (tmp_path / "pods.csv").write_text(HEADING + "".join([*rows, whole.format(2_000, 3_000)]))
    (never,) = json.loads(run(*files, "--policy", "aliquot", "-o", "json").stdout)
    (moved,) = json.loads(run(*files, "--policy", "aliquot", "--moves", "10", "-o", "json").stdout)
    assert (never["evictions"], moved["evictions"], moved["ended"]) == (0, 1, 5)
    assert moved["wait"]["mean"] < never["wait"]["mean"] / 10


def test_who_can_never_start_is_told(files: list[str], tmp_path: Path) -> None:
    """Both halves ask for more than their queues may give; the run has ended all the same."""
    queues = tmp_path / "queues.yaml"
    queues.write_text("".join(QUEUE.format(name=name, spec="{compute: {limit: 20}}") for name in "ab"))
    done = run(*files, "--policy", "aliquot", "--queues", str(queues))
    assert done.exit_code == 0
    assert "never started, whatever ended: aliquot 2" in done.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (QUEUE.format(name="a", spec="{}"), "it has no queue b"),
        (QUEUE.format(name="a", spec="{compute: {limt: 5}}"), "did you mean limit"),
        (QUEUE.format(name="a", spec="{parent: gone}"), "there is no queue 'gone'"),
        ("a: [1\n", "queues.yaml, line 2, column 1: no YAML"),
        ("kind: Pod\n", "document 1: it is no Queue"),
        ("kind: Queue\n", "it has no metadata.name"),
    ],
)
def test_queues_that_can_not_be_meant_are_refused(files: list[str], tmp_path: Path, text: str, told: str) -> None:
    """With what, where, and exit code 3, as the webhook would."""
    (tmp_path / "queues.yaml").write_text(text)
    done = run(*files, "--queues", str(tmp_path / "queues.yaml"))
    assert done.exit_code == 3
    assert told in done.stderr


def test_mistakes_are_said(files: list[str], tmp_path: Path) -> None:
    """A policy of the other kind is wrong usage; a pod list without times names the columns."""
    assert (
        "bestfit is none of whole-gpu-fifo, fifo, aliquot, which there are with --time"
        in run(*files, "--policy", "bestfit").stderr
    )
    without = [one for one in files if one != "--time"]
    assert run(*without, "--policy", "fifo").exit_code == 2
    (tmp_path / "pods.csv").write_text("cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n1,1,1,500,\n")
    done = run(*files)
    assert done.exit_code == 3
    assert "line 1: column creation_time, scheduled_time, deletion_time is missing" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_who_is_told_to_stop_gives_what_there_is_and_says_so(
    files: list[str], monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    """With the exit code that shells have for it; policies that were not begun are not in the report."""
    steps = TimedRun.steps

    def interrupted(self: TimedRun) -> Iterator[int]:
        for arrived in steps(self):
            yield arrived
            # Else it would end whoever runs the tests.
            assert signal.getsignal(number) is not signal.SIG_DFL
            signal.raise_signal(number)
            break

    monkeypatch.setattr(TimedRun, "steps", interrupted)
    done = run(*files, "-o", "json")
    assert done.exit_code == code
    (told,) = json.loads(done.stdout)
    assert (told["policy"], told["partial"]) == ("whole-gpu-fifo", True)
    assert "interrupted: whole-gpu-fifo ended 0 of 2 pods: partial" in done.stderr
