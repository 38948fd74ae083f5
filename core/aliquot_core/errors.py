"""Every error says what is wrong, where, and what to do; its class says whose fault it is.

The class matters to whoever reads a log at night: a `UserError` goes back to the pod's author, a `ClusterError` to
whoever runs the cluster or the node, a `DefectError` to us. Each package derives its own root from one of these.
"""

from __future__ import annotations


class AliquotError(Exception):
    """The root of all errors that Aliquot raises on purpose."""

    fault = "unknown"

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(what, where, remedy)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f"; {self.remedy}" if self.remedy else ""
        return f"{place}{self.what}{advice}"


class UserError(AliquotError):
    """What the author of a pod wrote can't be done; only they can mend it."""

    fault = "user"


class ClusterError(AliquotError):
    """The cluster or the node is not as it must be; whoever runs it can mend it."""

    fault = "cluster"


class NotAdmittedError(ClusterError):
    """This process has no place on the node: another one does its work, or the two do not understand each other."""


class DefectError(AliquotError):
    """Aliquot broke a rule of its own: a bug report."""

    fault = "aliquot"
