"""A cluster for `daemonset/uninstall.sh` whose kubectl is played."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "daemonset" / "uninstall.sh"
# A folder for each node, with what it bears (`bears`), whether pods of its agent (`agent`) or of its withdrawal
# (`withdraw`) or one of the centre (`centre`) are there, and its kubelet (`alive`); with one that answers they may
# still not end (`stuck`). Beside them what pods hold (`held`), who waits (`waiting`) or bears notes (`noted`), what is
# said to whoever changes pods (`keeps`), what API servers know (`serves`), what keeps the namespace (`lingers`), and
# which call, counted from the first, fails (`fails`), ends script and all when it is done (`cut`), or is followed by
# somebody's coming (`comes`): a pod with a gate or, where `granted` is there, one that has got a slice. Then what is
# installed: domains (`domains`), the namespaces that rights name (`rights`) and labels (`labelled`), and the one with
# the pod that withdraws (`withdraws`). The namespace is there while it is labelled, or somebody else made it
# (`stands`), with what is of others (`theirs`) now, or once nodes are on their way out (`appears`). Who asks by another
# domain, or in another namespace, finds nothing.
KUBECTL = r"""#!/bin/sh
all="$CLUSTER/.."
# A line for each call, in one write: several ask at once. All of this is run thousands of times, and every process that
# it starts costs as much as all else; of the files that say when something happens hardly any is there. Where one is,
# nobody else writes between a call's line and its number: two at once would both be the second, and none the first.
asks() { set -f; set -- $*; printf '%s \n' "$*" >>"$all/asked"; set +f; }
numbered() {
    exec 8>"$all/counting" && flock 8
    asks "$@"
    number=$(wc -l <"$all/asked")
    exec 8>&-
}
if [ -e "$all/fails" ] || [ -e "$all/cut" ] || [ -e "$all/comes" ]; then numbered "$@"; else asks "$@"; fi
now() { [ -e "$all/$1" ] && [ "$number" = "$(cat "$all/$1")" ]; }
! now fails || { echo "no answer" >&2; exit 1; }
ends() {
    if now comes; then
        if [ -e "$all/granted" ]; then echo Running >"$all/held"; else echo "team late" >>"$all/waiting"; fi
    fi
    ! now cut || kill -KILL 0
}
trap ends EXIT
with() { for node in "$CLUSTER"/*; do [ ! -e "$node/$1" ] || echo "${node##*/}"; done; }
# Their pods, each by its name and its node.
pods() { with "$1" | sed "s/.*/$1-& &/"; }
ended() { for node in $(with alive); do [ -e "$CLUSTER/$node/stuck" ] || rm -f "$CLUSTER/$node/$1"; done; }
# Who is named on the way in has lost what is patched away; several ask at once.
freed() {
    [ ! -e "$all/keeps" ] || { cat "$all/keeps" >&2; exit 1; }
    exec 9>"$all/freeing" && flock 9
    sed 's/.*"namespace": "\(.*\)", "name": "\(.*\)".*/\1 \2/' >"$all/freed"
    grep -vxF -f "$all/freed" "$all/$1" >"$all/still"
    if [ -s "$all/still" ]; then cp "$all/still" "$all/$1"; else rm -f "$all/$1"; fi
}
read -r domain <"$all/domains"
read -r namespace <"$all/withdraws"
case "$*" in
"config view"*) echo "there (https://me:secret@there)" ;;
"get pods --all-namespaces"*"\"$domain/grant"*) [ ! -e "$all/held" ] || cat "$all/held" ;;
"get pods --all-namespaces --field-selector spec.nodeName= "*"\"$domain/queue"*"\"$domain/admitted"*"\"$domain/room"*)
    cat "$all/waiting" "$all/noted" 2>/dev/null | sort -u ;;
"get pods --all-namespaces --field-selector spec.nodeName= "*"\"$domain/queue"*)
    [ ! -e "$all/waiting" ] || cat "$all/waiting" ;;
"patch --filename -"*"\"$domain/queue"*) [ ! -e "$all/waiting" ] || freed waiting ;;
"patch --filename -"*"\"$domain/admitted"*"--subresource status"*) [ ! -e "$all/noted" ] || freed noted ;;
"get customresourcedefinitions"*)
    for each in $(cat "$all/domains"); do
        for kind in queues queueviews; do echo "customresourcedefinition.apiextensions.k8s.io/$kind.$each"; done
    done ;;
"get clusterrolebindings"*) cat "$all/rights" ;;
"api-resources "*) printf '%s\n' pods events secrets leases.coordination.k8s.io events.events.k8s.io ;;
"--namespace $namespace get pods,secrets,leases.coordination.k8s.io "*!=aliquot*)
    printf '%s\n' ConfigMap/kube-root-ca.crt Lease/node-a Lease/pace Secret/sh.helm.release.v1.aliquot.v1 \
        Secret/aliquot-tls ServiceAccount/default
    [ ! -e "$all/theirs" ] || cat "$all/theirs" ;;
"--namespace $namespace get leases "*) printf 'lease.coordination.k8s.io/%s\n' node-a scheduler others ;;
"get --raw /apis/admissionregistration.k8s.io/v1") cat "$all/serves" ;;
"get namespaces"*) cat "$all/labelled" ;;
"get queues.$domain "*) echo queue/a; echo queue/b ;;
"get nodes"*"\"$domain/inventory"*) with bears ;;
"get nodes"*Ready*) with alive ;;
"label nodes"*"node.$domain/share-")
    ended agent
    [ ! -e "$all/appears" ] || mv "$all/appears" "$all/theirs" ;;
"--namespace $namespace delete deployments"*"--cascade=foreground --wait=false") ended centre ;;
"--namespace $namespace get pods --selector"*aliquot-agent*Ready*)
    for node in $(with alive); do [ ! -e "$CLUSTER/$node/agent" ] || echo "$node"; done ;;
"--namespace $namespace get pods --selector"*aliquot-agent*) pods agent ;;
"--namespace $namespace get pods --selector"*"aliquot-scheduler, aliquot-kube-scheduler"*) pods centre ;;
"--namespace $namespace get pods --selector"*aliquot-withdraw*) pods withdraw ;;
"--namespace $namespace get pods --selector  "*) [ ! -e "$all/lingers" ] || cat "$all/lingers" ;;
"get namespace $namespace --ignore-not-found --output name")
    [ ! -s "$all/labelled" ] && [ ! -e "$all/stands" ] && [ ! -e "$all/lingers" ] || echo "namespace/$namespace" ;;
"get namespace $namespace "*message*) echo "Some resources are remaining: pods. has 1 resource instances" ;;
"--namespace $namespace delete pods"*aliquot-withdraw)
    for node in $(with withdraw); do rm "$CLUSTER/$node/withdraw"; done ;;
"--namespace $namespace get configmap aliquot-withdraw"*) echo NODE --withdraw ;;
"create --filename -")
    read -r node how
    echo "$how" >"$all/how"
    if [ -e "$CLUSTER/$node/alive" ]; then rm "$CLUSTER/$node/bears"; else touch "$CLUSTER/$node/withdraw"; fi ;;
*"delete namespace "*) : >"$all/labelled" ;;
*delete*clusterrolebindings*) : >"$all/rights" ;;
*delete*customresourcedefinitions*) : >"$all/domains" ;;
*) [ "${1#get}" = "$1" ] || exit 0 ;;
esac
"""

# Time is played too.
SLEEP = """#!/bin/sh
echo "$*" >>"$CLUSTER/../slept"
"""
SERVES = '{"resources": [{"name": "validatingadmissionpolicies"}, {"name": "mutatingadmissionpolicies"}]}'

# The calls by which the guards, the namespace and the definitions go.
GUARDS_GO = "validatingadmissionpolicybindings,validatingadmissionpolicies"
NAMESPACE_GOES = "delete namespace --wait=false"
DEFINITIONS_GO = "app.kubernetes.io/part-of=aliquot customresourcedefinitions"


class Cluster:
    """Nodes, and the script run on them."""

    def __init__(self, folder: Path, nodes: Mapping[str, str]) -> None:
        self._folder = folder
        (folder / "nodes").mkdir()
        self._program = folder / "bin" / "kubectl"
        self._program.parent.mkdir()
        for name, text in (("kubectl", KUBECTL), ("sleep", SLEEP)):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        self.holds("serves", SERVES)
        for name, states in nodes.items():
            self.has(name, *states.split())
        self.is_installed()

    def is_installed(self, *, domain: str = "aliquot.dev", namespace: str = "aliquot-system") -> None:
        """By these names, all of it."""
        self.holds("domains", f"{domain}\n")
        for file in ("rights", "labelled", "withdraws"):
            self.holds(file, f"{namespace}\n")

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

    def uninstall(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run it, without patience (unless a variable says otherwise) and without a terminal."""
        env = {
            "PATH": f"{self._program.parent}{os.pathsep}{os.environ['PATH']}",
            "CLUSTER": str(self._folder / "nodes"),
            "ALIQUOT_PATIENCE": "0",
            **{f"ALIQUOT_{name.upper()}": value for name, value in variables.items()},
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
            # Who is cut off is so with all that it has called.
            start_new_session=True,
        )

    def bearing(self) -> set[str]:
        """Nodes on which something is left."""
        return {file.parent.name for file in (self._folder / "nodes").glob("*/bears")}

    def waiting(self) -> str:
        """Who has a gate, a line each."""
        file = self._folder / "waiting"
        return file.read_text() if file.exists() else ""

    @property
    def asked(self) -> str:
        """All that was, this time."""
        return (self._folder / "asked").read_text()


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
