"""How the API server learns to trust the centre's webhook: `caBundle` in the configurations that call it."""

from __future__ import annotations

import base64
from typing import Any

from aliquot_core.objects import WebhookConfiguration
from aliquot_kube.patches import Patch, merge_patch

_CLIENT, _BUNDLE = "clientConfig", "caBundle"


def trusting(found: WebhookConfiguration, authorities: bytes) -> Patch | None:
    """The write over what was read, and only over that; None where all is as it should be.

    A list is replaced whole, so the entries go back as they came, with what else is in them.
    """
    bundle = base64.b64encode(authorities).decode()
    wanted = [_with_bundle(webhook, bundle) for webhook in found.webhooks]
    if wanted == found.webhooks:
        return None
    return merge_patch({"metadata": {"resourceVersion": found.metadata.resource_version}, "webhooks": wanted})


def _with_bundle(webhook: dict[str, Any], bundle: str) -> dict[str, Any]:
    return {**webhook, _CLIENT: {**webhook.get(_CLIENT, {}), _BUNDLE: bundle}}
