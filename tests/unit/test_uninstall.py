"""Uninstalling with a node that does not answer, over a kubectl that is played: `tests/cluster` has the real one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "daemonset" / "uninstall.sh"
# A folder for each node, with what it bears (`bears`), whether pods of its agent (`agent`) or of its withdrawal
# (`withdraw`) are there, and its kubelet (`alive`).
KUBECTL = r"""#!/bin/sh
echo "$*" | tr '\n' ' ' >>"$CLUSTER/../asked"
echo >>"$CLUSTER/../asked"
with() { for node in "$CLUSTER"/*; do [ ! -e "$node/$1" ] || basename "$node"; done; }
case "$*" in
*"get nodes"*inventory*) [ ! -e "$CLUSTER/../broken" ] || exit 1; with bears ;;
"label nodes"*) for node in $(with alive); do rm -f "$CLUSTER/$node/agent"; done ;;
*"get pods --selector"*aliquot-agent*) [ ! -e "$CLUSTER/../mute" ] || exit 1; with agent ;;
*"get pods --selector"*aliquot-withdraw*) with withdraw ;;
*"delete pods"*aliquot-withdraw) for node in $(with withdraw); do rm "$CLUSTER/$node/withdraw"; done ;;
*"get configmap aliquot-withdraw"*) echo NODE ;;
"create --filename -")
    read -r node
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

    def fails(self, at: str) -> None:
        """The API server does not answer this."""
        (self._folder / at).touch()

    def uninstall(self) -> subprocess.CompletedProcess[str]:
        """Run it, without patience."""
        env = {
            "PATH": f"{self._program.parent}{os.pathsep}{os.environ['PATH']}",
            "CLUSTER": str(self._folder / "nodes"),
            "ALIQUOT_PATIENCE": "0",
        }
        return subprocess.run([SCRIPT], env=env, capture_output=True, text=True, timeout=100, check=False)

    def bearing(self) -> set[str]:
        """Nodes on which something is left."""
        return {file.parent.name for file in (self._folder / "nodes").glob("*/bears")}

    @property
    def asked(self) -> str:
        """All that was."""
        return (self._folder / "asked").read_text()


GUARDS_GO, NAMESPACE_GOES = "validatingadmissionpolicybindings,validatingadmissionpolicies", "delete namespace"


def test_a_dead_node_keeps_no_other_from_withdrawing_and_is_not_left_behind(tmp_path: Path) -> None:
    """It is named, and what guards what it bears stays; once it is back it withdraws as the others did."""
    cluster = Cluster(tmp_path, {"a": "alive agent bears", "b": "agent bears", "c": "alive agent bears"})
    told = cluster.uninstall()
    assert (told.returncode, cluster.bearing()) == (1, {"b"})
    assert told.stderr.startswith("node b does not answer: bring it back, or delete it (kubectl delete node b)")
    assert len(told.stderr.splitlines()) == 1
    # Nobody withdraws where an agent may live: it would write all of it anew.
    assert cluster.asked.count("create --filename -") == 2
    assert GUARDS_GO not in cluster.asked
    assert NAMESPACE_GOES not in cluster.asked
    assert cluster.uninstall().returncode == 1
    cluster.has("b", "alive")
    assert (cluster.uninstall().returncode, cluster.bearing()) == (0, set())
    assert GUARDS_GO in cluster.asked
    assert NAMESPACE_GOES in cluster.asked


@pytest.mark.parametrize("states", ["agent bears", "bears"], ids=["its pods are there", "its pods were removed"])
def test_a_dead_node_that_is_deleted_holds_up_nothing(tmp_path: Path, states: str) -> None:
    """And until then it does, also where its pods were deleted by force: nobody has withdrawn."""
    cluster = Cluster(tmp_path, {"a": "alive agent bears", "b": states})
    assert (cluster.uninstall().returncode, cluster.bearing()) == (1, {"b"})
    cluster.lost("b")
    assert cluster.uninstall().returncode == 0


@pytest.mark.parametrize("question", ["broken", "mute"])
def test_an_api_server_that_does_not_answer_is_not_taken_for_a_tidy_cluster(tmp_path: Path, question: str) -> None:
    """Whether it is asked for nodes or for pods."""
    cluster = Cluster(tmp_path, {"a": "alive agent bears"})
    cluster.fails(question)
    assert cluster.uninstall().returncode != 0
    assert NAMESPACE_GOES not in cluster.asked
