"""What admission judges: who wants to do what to which object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from .managers import Manager
from .terms import Target

if TYPE_CHECKING:
    from .catalogue import Resource

Operation = Literal["CREATE", "UPDATE", "DELETE"]
Json = dict[str, Any]

_ACCOUNT, _NODE = "system:serviceaccount:", "system:node:"


class Caller(msgspec.Struct, kw_only=True):
    """Who asks, and what is to be told them beside the answer."""

    user: str
    manager: Manager = Manager(name="unknown", named=False)
    warnings: list[str] = []

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that a cluster would give this user, by the name."""
        if self.user.startswith(_ACCOUNT):
            namespace = self.user.removeprefix(_ACCOUNT).partition(":")[0]
            return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        if self.user.startswith(_NODE):
            return ("system:nodes", "system:authenticated")
        return ("system:masters", "system:authenticated") if self.user == "system:admin" else ("system:authenticated",)


class Act(msgspec.Struct, kw_only=True):
    """One write on its way through admission."""

    operation: Operation
    target: Target
    # None where it is deleted.
    obj: Json | None
    # None where it is created.
    old: Json | None
    # None for what the server does by itself, of which webhooks are not asked.
    caller: Caller | None
    dry_run: bool = False

    @property
    def resource(self) -> Resource:
        """The kind it is about."""
        return self.target.resource

    @property
    def name(self) -> str:
        """The object's name, as far as it is known."""
        return self.target.name or str((self.obj or {}).get("metadata", {}).get("name", ""))

    @property
    def fresh(self) -> Json:
        """The object as it would be stored; of what is deleted there is none."""
        if self.obj is None:
            return {}
        return self.obj

    def with_kind(self, obj: Json | None) -> Json | None:
        """Give an object as clients see it."""
        if obj is None:
            return None
        return {"kind": self.resource.kind, "apiVersion": self.resource.api_version, **obj}
