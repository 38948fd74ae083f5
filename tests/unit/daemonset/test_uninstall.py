"""Uninstalling where something does not answer, over a kubectl that is played: `tests/cluster` has the real one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "daemonset" / "uninstall.sh"
# A folder for each node, with what it bears (`bears`), whether pods of its agent (`agent`) or of its withdrawal
# (`withdraw`) are there, and its kubelet (`alive`). Beside them what pods hold (`held`), who waits (`waiting`), and
# which call fails, counted from the first (`fails`).
KUBECTL = r"""#!/bin/sh
all="$CLUSTER/.."
echo "$*" | tr '\n' ' ' >>"$all/asked"
echo >>"$all/asked"
[ "$(wc -l <"$all/asked")" != "$(cat "$all/fails" 2>/dev/null)" ] || { echo "no answer" >&2; exit 1; }
with() { for node in "$CLUSTER"/*; do [ ! -e "$node/$1" ] || basename "$node"; done; }
case "$*" in
"config view"*) echo "there (https://me:secret@there)" ;;
"get pods --all-namespaces"*grant*) [ ! -e "$all/held" ] || cat "$all/held" ;;
"get pods --all-namespaces"*schedulingGates*) [ ! -e "$all/waiting" ] || cat "$all/waiting" ;;
*"patch pod"*) rm -f "$all/waiting" ;;
"get customresourcedefinitions"*) echo customresourcedefinition.apiextensions.k8s.io/queues.aliquot.dev ;;
"get queues.aliquot.dev"*) echo queue/a; echo queue/b ;;
"get nodes"*inventory*) with bears ;;
"label nodes"*) for node in $(with alive); do rm -f "$CLUSTER/$node/agent"; done ;;
*"get pods --selector"*aliquot-agent*) with agent ;;
*"get pods --selector"*aliquot-withdraw*) with withdraw ;;
*"delete pods"*aliquot-withdraw) for node in $(with withdraw); do rm "$CLUSTER/$node/withdraw"; done ;;
*"get configmap aliquot-withdraw"*) echo NODE --withdraw ;;
"create --filename -")
    read -r node how
    echo "$how" >"$all/how"
    if [ -e "$CLUSTER/$node/alive" ]; then rm "$CLUSTER/$node/bears"; else touch "$CLUSTER/$node/withdraw"; fi ;;
*) [ "${1#get}" = "$1" ] || exit 0 ;;
esac
"""


class Cluster:
    """Nodes, and the script run on them."""

    def __init__(self, folder: Path, nodes: Mapping[str, str]) -> None:
        self._folder = folder
        self._program = folder / "bin" / "kubectl"
        self._program.parent.mkdir()
        self._program.write_text(KUBECTL)
        self._program.chmod(0o755)
        for name, states in nodes.items():
            self.has(name, *states.split())

    def has(self, node: str, *states: str) -> None:
        """So it is with a node from now on."""
        (self._folder / "nodes" / node).mkdir(parents=True, exist_ok=True)
        for state in states:
            (self._folder / "nodes" / node / state).touch()

    def lost(self, node: str) -> None:
        """A node is deleted, and with it its pods."""
        for state in (self._folder / "nodes" / node).iterdir():
            state.unlink()
        (self._folder / "nodes" / node).rmdir()

    def holds(self, file: str, text: str = "") -> None:
        """What is told of pods, or which call fails."""
        (self._folder / file).write_text(text)

    def uninstall(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it, without patience and without a terminal."""
        env = {
            "PATH": f"{self._program.parent}{os.pathsep}{os.environ['PATH']}",
            "CLUSTER": str(self._folder / "nodes"),
            "ALIQUOT_PATIENCE": "0",
        }
        (self._folder / "asked").write_text("")
        return subprocess.run(
            [SCRIPT, *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def bearing(self) -> set[str]:
        """Nodes on which something is left."""
        return {file.parent.name for file in (self._folder / "nodes").glob("*/bears")}

    @property
    def asked(self) -> str:
        """All that was, this time."""
        return (self._folder / "asked").read_text()


GUARDS_GO, NAMESPACE_GOES = "validatingadmissionpolicybindings,validatingadmissionpolicies", "delete namespace"


def test_a_dead_node_keeps_no_other_from_withdrawing_and_is_not_left_behind(tmp_path: Path) -> None:
    """It is named, and what guards what it bears stays; once it is back it withdraws as the others did."""
    cluster = Cluster(tmp_path, {"a": "alive agent bears", "b": "agent bears", "c": "alive agent bears"})
    told = cluster.uninstall("--yes")
    assert (told.returncode, cluster.bearing()) == (1, {"b"})
    assert told.stderr.startswith("node b does not answer: bring it back, or delete it (kubectl delete node b)")
    assert len(told.stderr.splitlines()) == 1
    # Nobody withdraws where an agent may live: it would write all of it anew.
    assert cluster.asked.count("create --filename -") == 2
    assert GUARDS_GO not in cluster.asked
    assert NAMESPACE_GOES not in cluster.asked
    assert cluster.uninstall("--yes").returncode == 1
    cluster.has("b", "alive")
    assert (cluster.uninstall("--yes").returncode, cluster.bearing()) == (0, set())
    assert GUARDS_GO in cluster.asked
    assert NAMESPACE_GOES in cluster.asked


@pytest.mark.parametrize("states", ["agent bears", "bears"], ids=["its pods are there", "its pods were removed"])
def test_a_dead_node_that_is_deleted_holds_up_nothing(tmp_path: Path, states: str) -> None:
    """And until then it does, also where its pods were deleted by force: nobody has withdrawn."""
    cluster = Cluster(tmp_path, {"a": "alive agent bears", "b": states})
    assert (cluster.uninstall("--yes").returncode, cluster.bearing()) == (1, {"b"})
    cluster.lost("b")
    assert cluster.uninstall("--yes").returncode == 0


@pytest.mark.parametrize(("more", "how"), [((), "--withdraw"), (("--no-wait",), "--withdraw-no-wait")])
def test_kubelets_are_waited_for_unless_told_not_to(tmp_path: Path, more: tuple[str, ...], how: str) -> None:
    """Each node waits for its own; who runs it is told what takes so long."""
    told = Cluster(tmp_path, {"a": "alive agent bears"}).uninstall("--yes", *more)
    assert told.returncode == 0
    assert (tmp_path / "how").read_text() == f"{how}\n"
    assert ("waiting for that" in told.stdout) is (not more)


# What is written or deleted, by the first words of the call.
CHANGES = ("delete", "create", "patch", "label")


def changes(cluster: Cluster) -> list[str]:
    """Calls that ask for more than a look."""
    return [line for line in cluster.asked.splitlines() if any(f"{word} " in line for word in CHANGES)]


def whole(folder: Path) -> Cluster:
    """Two nodes, and a pod that waits."""
    folder.mkdir()
    cluster = Cluster(folder, {"a": "alive agent bears", "b": "alive agent bears"})
    cluster.holds("waiting", "team one\n")
    return cluster


def test_whichever_call_fails_nothing_is_left_behind_unseen(tmp_path: Path) -> None:
    """A list that can't be had is not an empty one: it stops there, and the next run does the rest."""
    sound = whole(tmp_path / "sound")
    assert sound.uninstall("--yes").returncode == 0
    calls = sound.asked.splitlines()
    for number, call in enumerate(calls, start=1):
        cluster = whole(tmp_path / str(number))
        cluster.holds("fails", str(number))
        told = cluster.uninstall("--yes")
        # The name of the cluster is for the reader alone, and a pod that can't be freed is looked for again.
        spared = call.startswith("config view") or "patch pod" in call
        assert (told.returncode != 0) == (not spared), call
        if spared:
            continue
        assert "no answer" in told.stderr
        assert len(cluster.asked.splitlines()) == number or "gates" in call, call
        (tmp_path / str(number) / "fails").unlink()
        assert (cluster.uninstall("--yes").returncode, cluster.bearing()) == (0, set()), call


@pytest.mark.parametrize("question", ["grant", "schedulingGates", "get customresourcedefinitions", "get nodes"])
def test_who_can_not_look_does_nothing_and_names_the_cluster(tmp_path: Path, question: str) -> None:
    """The count of slices would else be none."""
    cluster = whole(tmp_path / "cluster")
    assert cluster.uninstall("--dry-run").returncode == 0
    number = next(at for at, call in enumerate(cluster.asked.splitlines(), start=1) if question in call)
    cluster.holds("fails", str(number))
    told = cluster.uninstall("--yes", "--force")
    assert (told.returncode, changes(cluster)) == (1, [])
    assert "there (https://there) can't be listed: nothing was done" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, ""),
        (["--forse"], 2, "--forse is no option: nothing was done"),
        (["--yes", "now"], 2, "now is no option: nothing was done"),
        (["--dry-run", "--yes"], 0, ""),
        ([], 1, "2 pods hold slices: end them, or run this with --force"),
        (["--yes"], 1, "2 pods hold slices: end them, or run this with --force"),
        (["--force"], 2, "nothing was done: say --yes"),
    ],
)
def test_nothing_goes_unless_it_was_said(tmp_path: Path, arguments: Sequence[str], code: int, said: str) -> None:
    """Neither by a slip of the hand nor where somebody only wants to know."""
    cluster = whole(tmp_path / "cluster")
    cluster.holds("held", "Running\nPending\n")
    told = cluster.uninstall(*arguments)
    assert (told.returncode, changes(cluster)) == (code, [])
    assert said in told.stderr


def test_what_is_to_go_is_told_in_numbers(tmp_path: Path) -> None:
    """Before it goes, and by whose name."""
    cluster = whole(tmp_path / "cluster")
    cluster.holds("held", "Running\n")
    assert cluster.uninstall("--dry-run").stdout == (
        "Aliquot is to go from there (https://there): its namespace aliquot-system, policies, webhooks and rights, "
        "2 queues,\nand what it wrote on 2 nodes. 1 pods hold slices; 1 wait, and lose its gate.\n"
    )
