"""What can be set about the endpoint; the defaults are those of a node in production."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from aliquot_core.settings import LONGEST, FilePath, Seconds, SocketPath, UnusableValueError, of_kind


def _check_below(path: str) -> None:
    if path.startswith("/") or "\0" in path or not (parts := Path(path).parts) or ".." in parts:
        raise UnusableValueError(
            "it is no folder below the plugin folder", remedy="write a relative path, without .. in it"
        )


class EndpointSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `endpoint` of the settings."""

    # The kubelet fixes this one, whatever its --root-dir is.
    plugin_folder: FilePath = "/var/lib/kubelet/device-plugins"
    # Sockets that lie directly in the plugin folder are deleted whenever the kubelet starts; in a folder they stay.
    socket_folder: Annotated[str, of_kind(_check_below)] = "aliquot"
    # `socket`: call the kubelet's Register. `registry`: wait in plugins_registry until the kubelet calls.
    registration: Literal["socket", "registry"] = "socket"
    registry_folder: FilePath = "/var/lib/kubelet/plugins_registry"
    # Must outlast a reboot: with it the endpoint registers before the agent is up.
    state_file: FilePath = "/var/lib/aliquot/endpoint.json"
    door: SocketPath = "/run/aliquot/endpoint/door.sock"
    # The kubelet gives PreStartContainer up after 30 s; a sentence of ours says more than its "deadline exceeded".
    prestart_patience: Seconds = 28.0
    # Advice that comes late is worth less than a pod that starts; the agent may wait 0.35 s to hear of the pod.
    preference_patience: Seconds = 0.5
    # How long to wait for another endpoint on this node to leave.
    takeover_patience: Annotated[float, msgspec.Meta(ge=0, le=LONGEST)] = 10.0
    # Where the kernel can't watch a folder for us.
    poll: Seconds = 0.05

    @property
    def kubelet_socket(self) -> Path:
        """Where the kubelet takes registrations."""
        return Path(self.plugin_folder) / "kubelet.sock"

    @property
    def sockets(self) -> Path:
        """The folder of our own sockets."""
        return Path(self.plugin_folder) / self.socket_folder

    @property
    def pulse(self) -> Path:
        """What the endpoint touches while its loop turns."""
        return Path(self.door).with_name("endpoint.pulse")
