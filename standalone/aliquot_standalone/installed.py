"""What an installation on a cluster brings along, for the embedded API server: our two kinds, and who is asked.

Kept as JSON beside this module, since the manifests are no part of the wheel; a test compares the two.
"""

from __future__ import annotations

import base64
from importlib.resources import files
from typing import Any

import msgspec

_FILE = "installed.json"
_HOOKS = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})
Json = dict[str, Any]


def as_installed() -> list[Json]:
    """Give the objects as the manifests have them."""
    return msgspec.json.decode(files(__package__).joinpath(_FILE).read_bytes(), type=list[Json])


def without_webhooks() -> list[Json]:
    """Give what can be created before the centre serves."""
    return [one for one in as_installed() if one["kind"] not in _HOOKS]


def webhooks_at(url: str, *, authority: bytes) -> list[Json]:
    """Give the configurations that have a centre at this address asked, whose certificate this authority has signed."""
    found = [one for one in as_installed() if one["kind"] in _HOOKS]
    for configuration in found:
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": url + path, "caBundle": base64.b64encode(authority).decode()}
    return found
