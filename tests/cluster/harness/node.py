"""One node: a mount namespace of its own with a containerd and a kubelet in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cluster.harness import binaries, leftovers, node_settings
from cluster.harness.api import Json
from cluster.harness.component import Component, answers
from cluster.harness.errors import ComponentError, HarnessError
from cluster.harness.ports import free_port
from cluster.harness.waiting import PATIENCE_SECONDS

# These three are the node's own; everything else it sees is the machine's. Shared propagation inside, as systemd
# makes it on a real node, so that a kubelet's mounts reach containers that ask for them; nothing leaves the node.
OWN_FOLDERS = ("run", "var/lib", "var/log")
HOLD = """
for own in run var/lib var/log; do mount --bind "$1/$own" "/$own" || exit 1; done
mount --make-rshared / && exec sleep infinity
"""


def says_ready(node: Json) -> bool:
    """Whether a node object's Ready condition is true."""
    conditions = node["status"].get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


class Node:
    """A node by its name; its files lie in `folder`, at the paths that they have on the node."""

    def __init__(
        self, *, name: str, folder: Path, kubeconfig: Path, kubelet_settings: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self.folder = folder
        self.kubelet_settings = dict(kubelet_settings or {})
        self._kubeconfig = kubeconfig
        self._port, self._healthz_port = free_port(), free_port()
        self._started: list[Component] = []
        for own in (*OWN_FOLDERS, "logs"):
            (folder / own).mkdir(parents=True, exist_ok=True)
        hold = ["unshare", "--mount", "--propagation", "private", "sh", "-c", HOLD, "hold", str(folder)]
        self._holder = Component(name=f"{name} holder", argv=hold, log=self._log("holder"), ready=self._is_held)
        self.containerd = self._make_containerd()
        self.kubelet = self._make_kubelet()

    @property
    def components(self) -> list[Component]:
        """Everything that was started on the node, for looking at logs."""
        return [self._holder, self.containerd, self.kubelet, *self._started]

    def path(self, path_on_node: str) -> Path:
        """Where a file of the node's own folders lies on this machine."""
        relative = path_on_node.lstrip("/").replace("var/run/", "run/", 1)
        if not relative.startswith(OWN_FOLDERS):
            return Path(path_on_node)
        return self.folder / relative

    def start(self, archives: Iterable[Path]) -> None:
        """Start the node without its kubelet: it needs no API server for that."""
        self._holder.start()
        self._holder.wait_ready()
        if str(self.folder) in Path("/proc/self/mountinfo").read_text():
            raise HarnessError(f"the mounts of {self.name} are seen outside of it")
        self.containerd.start()
        self.containerd.wait_ready()
        for archive in archives:
            self.import_image(archive)

    def stop(self) -> None:
        """End everything on the node; its mounts end with the last process."""
        for component in (*reversed(self._started), self.kubelet):
            component.stop()
        leftovers.end_node(self.folder)
        for component in (self.containerd, self._holder):
            component.stop()  # they are dead: this only takes their exit codes
        self._started.clear()

    def reboot(self, archives: Iterable[Path] = (), *, before_kubelet: Callable[[], object] = lambda: None) -> None:
        """End everything, lose what a reboot loses (/run), and start the node again; its kubelet comes last."""
        self.stop()
        shutil.rmtree(self.folder / "run")
        (self.folder / "run").mkdir()
        self.start(archives)
        before_kubelet()
        self.start_kubelet()
        self.kubelet.wait_ready()

    def start_kubelet(self) -> None:
        """Start the kubelet with the settings as they are now in `kubelet_settings`."""
        node_settings.write_kubelet(
            self.folder, port=self._port, healthz_port=self._healthz_port, changes=self.kubelet_settings
        )
        self.kubelet.start()

    def run_inside(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 30,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the node to its end; unless `check` is off, a failure raises with what it printed."""
        done = subprocess.run(
            self._inside(argv),
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            told = f"{done.stdout}{done.stderr}".strip()
            raise ComponentError(f"on {self.name}: {' '.join(argv)} ended with {done.returncode}: {told}")
        return done

    def start_inside(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        ready: Callable[[], bool] = lambda: True,
    ) -> Component:
        """Start a long-running program on the node, wait until it is ready; it is stopped with the node."""
        component = Component(
            name=f"{self.name} {name}", argv=self._inside(argv), log=self._log(name), ready=ready, env=env
        )
        self._started.append(component)
        component.start()
        component.wait_ready()
        return component

    def import_image(self, archive: Path) -> None:
        """Make an image known to the node's container runtime."""
        # The centre's, 230 MB, took over 30 s at a load of 28.
        self.ctr("images", "import", str(archive), timeout=4 * PATIENCE_SECONDS)

    def ctr(self, *arguments: str, check: bool = True, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        """Run containerd's own tool in Kubernetes' namespace."""
        argv = [str(binaries.path_of("ctr")), "--namespace", "k8s.io", *arguments]
        return self.run_inside(argv, check=check, timeout=timeout)

    def pids_of_containers(self) -> dict[str, int]:
        """The process ids of the running containers by container id, sandboxes included."""
        rows = [line.split() for line in self.ctr("tasks", "list").stdout.splitlines()[1:]]
        return {row[0]: int(row[1]) for row in rows if row[2] == "RUNNING"}

    def still_logs(self, folder: str) -> bool:
        """Whether the container runtime still writes what a container printed: its files there are open until then.

        `folder` is below that of all logs: where that lies in the node is not seen from outside.
        """
        found = False
        for opened in Path(f"/proc/{self.containerd.pid}/fd").iterdir() if self.containerd.running else ():
            # Others are closed meanwhile.
            with suppress(OSError):
                found = found or f"/{folder}/" in str(opened.readlink())
        return found

    def _inside(self, argv: Sequence[str]) -> list[str]:
        # By the holder's own exit code it would be another's process: refuse to enter a namespace that is gone.
        if not self._holder.running:
            raise ComponentError(f"{self.name} is not running")
        return ["nsenter", "--target", str(self._holder.pid), "--mount", "--", *argv]

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def _is_held(self) -> bool:
        return Path(f"/proc/{self._holder.pid}/comm").read_text().strip() == "sleep"

    def _make_containerd(self) -> Component:
        program = binaries.path_of("containerd")
        config = node_settings.write_containerd(self.folder)
        search = f"{program.parent}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # its shim, and runc
        return _OnNode(
            node=self,
            name="containerd",
            argv=[str(program), "--config", str(config)],
            env={"PATH": search},
            ready=lambda: self.ctr("version", check=False).returncode == 0,
        )

    def _make_kubelet(self) -> Component:
        argv = [
            str(binaries.path_of("kubelet")),
            f"--config={self.folder / 'kubelet.json'}",
            f"--kubeconfig={self._kubeconfig}",
            f"--hostname-override={self.name}",
            f"--cert-dir={self.folder / 'pki'}",
            "--v=2",
        ]
        url = f"http://127.0.0.1:{self._healthz_port}/healthz"
        return _OnNode(node=self, name="kubelet", argv=argv, ready=lambda: answers(url))


class _OnNode(Component):
    """A component that enters the node's namespace anew at each start: after a reboot it is another one."""

    def __init__(
        self,
        *,
        node: Node,
        name: str,
        argv: Sequence[str],
        ready: Callable[[], bool],
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name=f"{node.name} {name}", argv=argv, log=node._log(name), ready=ready, env=env)
        self._node = node
        self._command = list(argv)

    def start(self) -> None:
        self.argv = self._node._inside(self._command)
        super().start()
