"""What can go wrong between a grant and its spec file, and whose fault it is."""

from __future__ import annotations

from aliquot_core.errors import ClusterError, DefectError


class DriverFilesError(ClusterError):
    """The node lacks what a container needs of the driver, or describes it wrongly."""


class SpecError(ClusterError):
    """A CDI spec that can't be used."""


class SpecFolderError(ClusterError):
    """The folder that the runtime reads CDI specs from can't be read or written."""


class SliceSpecError(DefectError):
    """Parts that do not make a spec: whoever called did not check the grant against the node."""
