"""Scripts and styles: read once, served under an address that changes with their content, and kept by browsers."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import msgspec

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# By name, as addresses have them. The charts are uPlot's (MIT), unchanged; its licence lies beside them.
_NAMES = ("icon.svg", "page.css", "page.js", "theme.js", "history.js", "uplot/uPlot.esm.js", "uplot/uPlot.min.css")


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One of them."""

    body: bytes
    content_type: str


class Static:
    """All of them."""

    def __init__(self) -> None:
        folder = files(__package__).joinpath("static")
        self._files = {
            name: File(body=folder.joinpath(name).read_bytes(), content_type=_TYPES[name[name.rindex(".") :]])
            for name in _NAMES
        }
        digest = hashlib.sha256()
        for name in _NAMES:
            digest.update(self._files[name].body)
        self.version = digest.hexdigest()[:12]

    def file(self, version: str, name: str) -> File | None:
        """The file, if it is of this version."""
        return self._files.get(name) if version == self.version else None
