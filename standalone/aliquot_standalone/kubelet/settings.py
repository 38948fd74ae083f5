"""Where one small kubelet keeps everything: below one root folder, so that several run side by side."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from aliquot_core.objects import Pod
from aliquot_standalone.kubelet.errors import SocketPathError
from aliquot_standalone.kubelet.log_limits import MOST

# sockaddr_un holds 108 bytes with the closing zero; the longest name below a root is some 60.
LONGEST_SOCKET_PATH = 107


class Folders(msgspec.Struct, frozen=True, kw_only=True):
    """The folders of one node; the same names as under the real kubelet's root."""

    root: Path
    # Where sockets lie if the root's path is too long for them; may be lost when the machine starts anew.
    runtime: Path | None = None

    @property
    def place(self) -> str:
        """Short and different for each root: tells one node's processes from another's."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:8]

    @property
    def device_plugins(self) -> Path:
        """Plugins' sockets and kubelet.sock."""
        return self._sockets / "device-plugins"

    @property
    def plugins_registry(self) -> Path:
        """Sockets of plugins that wait for the kubelet to call."""
        return self._sockets / "plugins_registry"

    @property
    def pod_resources(self) -> Path:
        """The socket that tells who holds which devices."""
        return self._sockets / "pod-resources"

    @property
    def cdi(self) -> Path:
        """CDI specs; what is /var/run/cdi elsewhere."""
        return self.root / "cdi"

    @property
    def logs(self) -> Path:
        """Containers' output: `<namespace>_<pod>_<uid>/<container>/<n>.log`."""
        return self.root / "logs"

    @property
    def containers(self) -> Path:
        """What is known of each container's process, so that it is found again."""
        return self.root / "containers"

    @property
    def groups_record(self) -> Path:
        """Says where the node's cgroups are."""
        return self.root / "cgroup"

    @property
    def registration_socket(self) -> Path:
        """Where device plugins register."""
        return self.device_plugins / "kubelet.sock"

    @property
    def pod_resources_socket(self) -> Path:
        """Where PodResources is served."""
        return self.pod_resources / "kubelet.sock"

    @property
    def checkpoint(self) -> Path:
        """The device table on disk; beside the sockets under the real kubelet's root."""
        return self.root / "device-plugins" / "kubelet_internal_checkpoint"

    def pod_logs(self, pod: Pod) -> Path:
        """A pod's folder of logs, named as the kubelet names it."""
        return self.logs / f"{pod.metadata.namespace}_{pod.metadata.name}_{pod.metadata.uid}"

    def log_file(self, pod: Pod, container: str, start: int) -> Path:
        """The output of a container's n-th start."""
        return self.pod_logs(pod) / container / f"{start}.log"

    @property
    def _sockets(self) -> Path:
        return self.runtime or self.root

    def create(self) -> None:
        """Make all folders."""
        for folder in (
            self.device_plugins,
            self.checkpoint.parent,
            self.plugins_registry,
            self.pod_resources,
            self.cdi,
            self.logs,
            self.containers,
        ):
            folder.mkdir(parents=True, exist_ok=True)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Times and limits, with the real kubelet's values."""

    # PreStartContainer is given up after so long and called again later (a constant of the kubelet).
    prestart_timeout: float = 30.0
    dial_timeout: float = 10.0
    # How long a plugin's devices still count as capacity after its stream ended.
    plugin_grace: float = 300.0
    # The default of grpc-go, which the kubelet does not raise: 199,728 ids of 8 characters.
    receive_limit: int = 4 * 1024 * 1024
    registry_poll: float = 0.1
    pod_resources_rate: float = 100.0
    pod_resources_burst: int = 10
    node_status_every: float = 10.0
    # A kubelet that starts waits so long after its sockets are there before it takes pods: the time in which plugins
    # must register again, or the pods bound here fail (839 to 941 ms measured).
    settle: float = 1.0
    # Then, how long pods there from the start wait for plugins that an earlier kubelet knew; the real one does not.
    plugin_patience: float = 0.0
    # A refused start is tried again after 0.6 s and then each 12 s or so (measured on a real kubelet).
    start_retry: tuple[float, ...] = (0.6, 12.0)
    crash_back_off: float = 10.0
    crash_back_off_max: float = 300.0
    default_grace: float = 30.0
    # So much of what a container prints is kept; so often is looked how much it is, and how much of those that run.
    log_most: int = MOST
    log_look: float = 0.5
    log_look_soon: float = 0.03


def grpc_address(socket: Path) -> str:
    """How gRPC names a unix socket; refuses a path that the system would cut off."""
    path = str(socket)
    if len(path.encode()) > LONGEST_SOCKET_PATH:
        raise SocketPathError(
            f"{len(path.encode())} bytes are too many for a unix socket (at most {LONGEST_SOCKET_PATH})",
            where=path,
            remedy="choose a root folder with a shorter path",
        )
    return f"unix:{path}"
