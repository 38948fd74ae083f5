"""What can go wrong on a node of the small kubelet, and whose fault it is."""

from __future__ import annotations

from aliquot_core.errors import ClusterError, UserError


class KubeletError(ClusterError):
    """The node is not as it must be."""


class AdmissionError(KubeletError):
    """The pod can't be admitted, now or ever: it fails for good, with `reason` on its status."""

    def __init__(
        self, what: str, *, reason: str = "UnexpectedAdmissionError", where: str = "", remedy: str = ""
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.reason = reason


class StartError(KubeletError):
    """A container can't be started now; it waits with `reason` on its status and is tried again."""

    def __init__(self, what: str, *, reason: str, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.reason = reason


class NoCommandError(UserError):
    """The container relies on its image's command, and no image is pulled here."""

    reason = "NoCommand"


class SocketPathError(KubeletError):
    """A unix socket's path would be longer than the system takes."""


class PluginError(KubeletError):
    """A device plugin can't be reached, or answered with an error."""


class CdiError(KubeletError):
    """A CDI device that no spec names, or a spec that can't be read."""


class ProcessError(KubeletError):
    """A process can't be started or found again."""
