"""Whatever is wrong with a file of a trace: `aliquot simulate` says so with its line, or reads it rightly."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aliquot_cli.main import main
from support.traces import OPENB

NODES = "sn,cpu_milli,memory_mib,gpu,model,gpu_memory_mib,labels\n"
NODE = "n1,64000,262144,2,T4,16384,a=b\n"
PODS = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
POD = "1000,1024,1,500,\n"
TIMES = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,scheduled_time,deletion_time\n"
GOOD = {"nodes": NODES + NODE, "pods": PODS + POD, "order": "seed42\n0\n0\n", "noderank": "seed42\n0\n"}
# What the file is, what it says, and what is said of it.
BAD: list[tuple[str, str, str]] = [
    # Columns that are missing.
    ("nodes", NODES.replace("gpu,", "", 1) + "n1,1,1,T4,1,\n", "line 1: column gpu is missing; it has: sn, cpu_milli"),
    ("pods", PODS.replace(",gpu_spec", "") + "1,1,1,1\n", "line 1: column gpu_spec is missing"),
    ("pods", PODS.replace(",", ";") + POD, "line 1: column cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec is"),
    ("order", "seed1\n0\n", "line 1: column seed42 is missing; it has: seed1"),
    ("noderank", "", "line 1: column seed42 is missing; it has: nothing"),
    # Not a number.
    ("nodes", NODES + NODE + "n2,nan,1,1,T4,1,\n", "line 3: cpu_milli 'nan' is not a whole number"),
    ("nodes", NODES + "n1,1,1,1,T4,NaN,\n", "line 2: gpu_memory_mib 'NaN' is not a whole number"),
    ("pods", PODS + POD + "1,inf,1,500,\n", "line 3: memory_mib 'inf' is not a whole number"),
    ("order", "seed42\nnan\n", "line 2: pod 'nan' is not a whole number"),
    ("noderank", "seed42\nfirst\n", "line 2: place 'first' is not a whole number"),
    # Less than nothing, or more than anybody has.
    ("nodes", NODES + "n1,-1,1,1,T4,1,\n", "line 2: cpu_milli -1 is not between 0 and"),
    ("nodes", NODES + "n1,1,1e30,1,T4,1,\n", "line 2: memory_mib 1e30 is not between 0 and"),
    ("nodes", NODES + "n1,1,1,65,T4,1,\n", "line 2: gpu 65 is not between 0 and 64"),
    ("nodes", NODES + "n1,1,1,1,T4,-5,\n", "line 2: gpu_memory_mib -5 is not between"),
    ("pods", PODS + "1,1,-1,500,\n", "line 2: num_gpu -1 is not between"),
    ("pods", PODS + f"1,1,1,{'9' * 5_000},\n", "line 2: gpu_milli '999"),
    ("order", "seed42\n0\n-1\n", "line 3: pod -1 is not between 0 and 0"),
    ("order", "seed42\n7\n", "line 2: pod 7 is not between 0 and 0"),
    ("noderank", "seed42\n-3\n", "line 2: place -3 is not between"),
    # Models that nobody has.
    ("pods", PODS + POD + "1,1,1,500,H900|T5\n", "line 3: gpu_spec names 'H900, T5', which is no model of the nodes"),
    (
        "pods",
        PODS + POD + "1,1,1,500,T4|NOSUCH\n",
        "line 3: gpu_spec names 'NOSUCH', which is no model of the nodes; kn",
    ),
    ("nodes", NODES + "n1,1,1,1,,1,\n", "line 2: a node with GPUs names no model"),
    # Nobody at all, or too many.
    ("nodes", NODES, "it has no node"),
    ("nodes", NODES + "n1,1,1,0,,,\nn2,1,1,0,,,\n", "none of its nodes has a GPU; fill the column gpu"),
    ("pods", PODS, "it has no pod"),
    ("order", "seed42\n", "nobody arrives in column seed42"),
    ("noderank", "seed42\n0\n1\n", "it has places for 2 nodes, not for 1"),
    # No list.
    ("nodes", NODES + "n1,1\n", "line 2: it has 2 cells, the heading has 7"),
    ("pods", PODS + '1,1,1,500,"T4\n' + POD, "line 3: gpu_spec names 'T4"),
    ("pods", PODS + "1,1,1,500," + "x" * 200_000 + "\n", "line 2: no comma-separated list"),
    ("pods", PODS + "1,1,1,500,\0\n", "line 2: "),
]
# With --time.
BAD_TIMES: list[tuple[str, str]] = [
    (PODS + POD, "line 1: column creation_time, scheduled_time, deletion_time is missing"),
    (TIMES + "1,1,1,500,,nan,1,2\n", "line 2: creation_time 'nan' is not a whole number"),
    (TIMES + "1,1,1,500,,-1,1,2\n", "line 2: creation_time -1 is not between"),
    (TIMES + "1,1,1,500,,0,1,1e300\n", "line 2: deletion_time 1e300 is not between"),
    (TIMES + "1,1,1,500,,5,4,3\n", "line 2: the pod was created at 5, scheduled at 4 and deleted at 3"),
    (TIMES + "1,1,1,500,,,1,2\n", "line 2: creation_time is empty"),
    (TIMES + "1,1,1,500,T5,0,1,2\n", "line 2: gpu_spec names 'T5', which is no model of the nodes"),
    (TIMES + "1,1,1,500,T4|T5,0,1,2\n", "line 2: gpu_spec names 'T5', which is no model of the nodes"),
    (TIMES + "1,1,1,500,,0,,\n", "it has no pod with an end that a node could take"),
]


def written(folder: Path, files: dict[str, str | bytes]) -> list[str]:
    """The command's arguments."""
    arguments = ["simulate"]
    for what, content in files.items():
        place = folder / f"{what}.csv"
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        arguments += [f"--{what}", str(place)]
    return arguments


def run(arguments: list[str]) -> Result:
    """As a shell calls it."""
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize(("what", "content", "said"), BAD)
def test_a_bad_file_is_told_with_its_line(tmp_path: Path, what: str, content: str, said: str) -> None:
    """One sentence, with what to do; nothing is replayed."""
    done = run(written(tmp_path, {**GOOD, what: content}))
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith(f"aliquot: {tmp_path / what}.csv")
    assert said in done.stderr
    assert len(done.stderr) < 1_000 + len(str(tmp_path))


@pytest.mark.parametrize(("content", "said"), BAD_TIMES)
def test_so_is_one_with_times(tmp_path: Path, content: str, said: str) -> None:
    """A number read wrongly gives a wait that looks right."""
    done = run([*written(tmp_path, {"nodes": GOOD["nodes"], "pods": content}), "--time"])
    assert (done.exit_code, done.stdout) == (3, "")
    assert said in done.stderr


@pytest.mark.parametrize("what", ["nodes", "pods", "order"])
def test_a_packed_file_that_was_cut_off_is_told(tmp_path: Path, what: str) -> None:
    """Half a list would be half a result."""
    packed = gzip.compress(GOOD[what].encode())
    done = run(written(tmp_path, {**GOOD, what: packed[:-10]}))
    assert (done.exit_code, done.stdout) == (3, "")
    assert f"{what}.csv: can't be read: " in done.stderr


@pytest.mark.parametrize("what", GOOD)
def test_what_can_t_be_opened_is_told(tmp_path: Path, what: str) -> None:
    """Files that are not there, and folders."""
    arguments = written(tmp_path, dict(GOOD))
    (tmp_path / f"{what}.csv").unlink()
    assert f"{what}.csv: can't be read: No such file" in run(arguments).stderr
    (tmp_path / f"{what}.csv").mkdir()
    done = run(arguments)
    assert (done.exit_code, f"{what}.csv: can't be read: Is a directory" in done.stderr) == (3, True)


@pytest.mark.timeout(240)
def test_a_million_rows_packed_and_with_crlf_are_read(tmp_path: Path) -> None:
    """Each distinct need is looked at once, so they take seconds."""
    lines = [f"{1000 + number % 7 * 500},1024,1,{(number % 9 + 1) * 100},\r\n" for number in range(63)]
    pods = gzip.compress((PODS.replace("\n", "\r\n") + "".join(lines) * 15_874).encode(), compresslevel=1)
    nodes = NODES.replace("\n", "\r\n") + NODE.replace("\n", "\r\n")
    done = run([*written(tmp_path, {"nodes": nodes, "pods": pods}), "--policy", "bestfit", "-o", "json"])
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    # 1,000,062 rows ask for more than 130 % of two GPUs, so few of them arrive.
    assert 0 < told["placed"] <= told["pods"] < 30


@pytest.mark.timeout(180)
@pytest.mark.parametrize("form", ["json", "text"])
def test_ctrl_c_in_the_middle_of_a_real_run_leaves_a_partial_result(form: str) -> None:
    """What there is is printed and said to be partial, and the exit code is 130."""
    arguments = ["--nodes", "openb_node_list_gpu_node.csv", "--pods", "openb_pod_list_default.csv", "-o", form]
    command = [str(Path(sys.executable).with_name("aliquot")), "simulate", *arguments, "--policy", "fgd"]
    with subprocess.Popen(
        command, cwd=OPENB, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as running:
        try:
            assert running.stderr is not None
            # Its label comes when the replay begins.
            assert "fgd" in running.stderr.readline()
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=120)
        finally:
            running.kill()
    assert running.returncode == 130
    assert "partial result" in err
    if form == "json":
        told = json.loads(out)
        assert told["partial"] is True
        assert told["placed"] + told["failed"] == told["pods"] < 9_000
    else:
        assert " placed, " in out


@pytest.mark.parametrize("times", [(), ("--time", "--policy", "fifo")], ids=["", "time"])
def test_a_picture_that_can_t_be_drawn_costs_no_result(tmp_path: Path, times: tuple[str, ...]) -> None:
    """A folder that is not there is told before the run; where it turns out later, what came of it is told first."""
    arguments = [*written(tmp_path, {"nodes": GOOD["nodes"], "pods": TIMES + "1,1,1,500,,0,1,2\n"}), *times]
    early = run([*arguments, "--plot", str(tmp_path / "nowhere" / "x.svg")])
    assert (early.exit_code, early.stdout) == (2, "")
    assert "there is no folder" in early.stderr
    late = run([*arguments, "-o", "json", "--plot", "/dev/full"])
    assert late.exit_code == 3
    assert json.loads(late.stdout)
    assert "/dev/full: can't be written: No space left" in late.stderr
