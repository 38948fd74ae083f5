"""What a pod holds by what is written on it: its grant counts if it can be read, and is its own where it is bound."""

from __future__ import annotations

from aliquot_core.claims import Claim, claims
from aliquot_core.errors import AliquotError
from aliquot_core.grant import Grant, GrantError, LaterGrantError, decode_grant
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.picture.holdings import GpuKey


class Grants:
    """Reads them."""

    def __init__(self, *, names: Names) -> None:
        self._names = names

    def held(self, pod: Pod) -> dict[GpuKey, Claim] | None:
        """What the pod holds by its grant; nothing once it has ended, and None if it was not granted anything yet."""
        if pod.ended:
            return {}
        node, text = pod.spec.node_name, self._text(pod)
        if not node or text is None:
            return None
        grant = _own_grant(pod, text)
        return None if isinstance(grant, str) else {(node, gpu): claim for gpu, claim in claims(pod, grant).items()}

    def is_of_later(self, pod: Pod) -> bool:
        """Whether its grant was written by a version of Aliquot that is later than this."""
        try:
            decode_grant(self._text(pod) or "")
        except LaterGrantError:
            return True
        except GrantError:
            return False
        return False

    def why_none(self, pod: Pod) -> str:
        """What is wrong with the grant of a bound pod, if it has one that counts for nothing."""
        text = self._text(pod)
        grant = _own_grant(pod, text) if text is not None else ""
        return grant if isinstance(grant, str) else ""

    def _text(self, pod: Pod) -> str | None:
        return pod.metadata.annotations.get(self._names.grant)


def _own_grant(pod: Pod, text: str) -> Grant | str:
    """The grant, or why it is none of this pod's where it is bound."""
    try:
        grant = decode_grant(text)
    except AliquotError as error:
        return str(error)
    if grant.node != pod.spec.node_name or grant.pod != pod.metadata.uid:
        return f"it is for pod {grant.pod} on node {grant.node}"
    return grant
