"""From an address to what it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .catalogue import PODS
from .failures import no_such_page, no_way_in
from .terms import Target

if TYPE_CHECKING:
    from .catalogue import Catalogue

_OF_A_NAMESPACE = frozenset({"status", "finalize"})
_WAYS_IN = frozenset({"exec", "attach", "portforward", "proxy"})


def find_target(catalogue: Catalogue, path: tuple[str, ...]) -> Target | None:
    """Give what an address is about, or nothing where it is about the server itself (discovery)."""
    group, version, rest = ("", path[1:2], path[2:]) if path[0] == "api" else (path[1:2], path[2:3], path[3:])
    if not rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_A_NAMESPACE:  # noqa: PLR2004 - namespaces/NS/...
        namespace, rest = rest[1], rest[2:]
    if (group, rest[0]) == ("", "bindings") and namespace and len(rest) == 1:
        return Target(resource=PODS, namespace=namespace, subresource="binding")
    if (group, rest[0]) == ("", "pods") and rest[2:3] and rest[2] in _WAYS_IN:
        raise no_way_in(rest[2])
    resource = catalogue.find(group="".join(group), version="".join(version), plural=rest[0])
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):  # noqa: PLR2004 - PLURAL/NAME/SUB
        raise no_such_page()
    name, subresource = (*rest[1:], "", "")[:2]
    if subresource and subresource not in resource.subresources:
        raise no_such_page()
    if resource.namespaced and name and not namespace:
        raise no_such_page()
    return Target(resource=resource, namespace=namespace, name=name, subresource=subresource)
