"""The shell round `keeping`: the Secret that replicas share, the folder that one serves from, the API server's trust.

What must always hold: the Secret is written only over the very version that was judged, so of two replicas that renew
at once one wins, and the other takes over what the winner made; nothing is served that is not in the Secret; and nobody
writes whose clock and the API server's differ by minutes, for what he made would not have begun, or be renewed at once,
by everybody else's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from aliquot_core.backoff import Backoff, Random
from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_core.instants import second_time
from aliquot_core.objects import ObjectMeta, Secret
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError, ConflictError, ForbiddenError, InvalidError, NotFoundError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from aliquot_scheduler.certificates.issuing import SKEW
from aliquot_scheduler.certificates.keeping import (
    Kept,
    Need,
    Plan,
    files,
    from_data,
    needed,
    renewed,
    signs_next,
    still_good,
    to_data,
)
from aliquot_scheduler.certificates.trust import trusting

log = logging.getLogger(__name__)

# A configuration that was installed anew lacks our authority, and refuses pods until it has it again.
LOOK_EVERY = 60.0
# A race that is lost is another replica's success; so many in a row are none.
_TRIES = 4
_BACKOFF = Backoff(first=1.0, longest=LOOK_EVERY)
_OWNER_ONLY = 0o600
# Seconds; half of what certificates begin before they are made.
CLOCKS_DIFFER = SKEW.total_seconds() / 2


class RacesLostError(ClusterError):
    """Others write the Secret all the time."""


class SecretGoneError(ClusterError):
    """The Secret was deleted, and the centre is not let make another."""


class WrongClockError(ClusterError):
    """This machine's clock and the API server's tell different times."""


class CertificateKeeper:
    """Keeps one replica's certificates; `ensure` before serving, then `run`."""

    def __init__(
        self,
        *,
        client: KubeClient,
        clock: Clock,
        random: Random,
        namespace: str,
        secret: str,
        plan: Plan,
        folder: Path,
        webhooks: Sequence[str],
    ) -> None:
        """`webhooks` are the names of configurations that call us."""
        self._client = client
        self._clock = clock
        self._random = random
        self._where = ObjectMeta(namespace=namespace, name=secret)
        self._plan = plan
        self._folder = folder
        self._webhooks = webhooks

    async def ensure(self) -> bool:
        """Have certificates that are good now, in the Secret, in the folder and with the API server.

        True if files were written.
        """
        kept = await self._settled()
        # The API server trusts a new authority before anybody shows what it signed.
        await self._tell_api_server(kept.authorities)
        if changed := _write(self._folder, kept):
            log.info("certificates were written", extra={"folder": str(self._folder)})
        return changed

    async def run(self, *, changed: Callable[[], object]) -> None:
        """Look again and again, until cancelled; whoever serves is told when files have changed."""
        failures = 0
        while True:
            wait = _BACKOFF.delay(failures=failures, random=self._random) if failures else LOOK_EVERY
            await self._clock.sleep(wait)
            try:
                if await self.ensure():
                    changed()
            except (ApiError, ClusterError, OSError) as error:
                failures += 1
                log.warning("certificates could not be looked after: %s", error, extra={"failures": failures})
            else:
                failures = 0

    async def _settled(self) -> Kept:
        for _ in range(_TRIES):
            secret, server_time = await self._read()
            before = from_data(secret.data) if secret else None
            kept, needs = self._mended(before)
            if kept == before:
                return kept
            if (wrong := self._wrong_clock(server_time)) is not None:
                # Whether what is there is good, who has a right clock knows.
                if before is None:
                    raise wrong
                log.warning("certificates seem due and are left alone: %s", wrong, extra={"needs": needs})
                return before
            try:
                await self._store(kept, over=secret)
            except (ConflictError, NotFoundError):
                continue
            except (ForbiddenError, InvalidError) as error:
                if secret is None:
                    raise self._gone() from error
                # A Secret that somebody has made immutable, say: a renewal has a third of a life to be let through.
                if before is None or not still_good(before, plan=self._plan, now=self._clock.wall()):
                    raise
                log.warning("certificates are due and can't be renewed: %s", error, extra={"needs": needs})
                return before
            log.info("certificates were made", extra={"needs": needs, "secret": self._where.name})
            if before is not None and needs != [Need.CERTIFICATES]:
                self._tell_of_authority(kept, needs)
            return kept
        raise RacesLostError(
            f"lost {_TRIES} races in a row", where=f"secret {self._where.name}", remedy="who else writes it?"
        )

    def _tell_of_authority(self, kept: Kept, needs: list[Need]) -> None:
        until = signs_next(kept, now=self._clock.wall())
        when = f"once until {second_time(until)}" if needs == [Need.AUTHORITY] else "now"
        log.warning("a new authority signs: restart kube-scheduler %s, which reads ca.crt only at its start", when)

    def _mended(self, kept: Kept | None) -> tuple[Kept, list[Need]]:
        needs: list[Need] = []
        now = self._clock.wall()
        while kept is None or (need := needed(kept, plan=self._plan, now=now)) is not Need.NOTHING:
            needs.append(Need.ALL if kept is None else need)
            kept = renewed(kept, needs[-1], plan=self._plan, now=now)
        return kept, needs

    async def _read(self) -> tuple[Secret | None, float | None]:
        """With the time by the API server's clock, if that is known."""
        try:
            return await self._client.get_dated(SECRETS, name=self._where.name, namespace=self._where.namespace)
        except NotFoundError:
            return None, None

    def _gone(self) -> SecretGoneError:
        """Not the right to create one: who has that can have a token made for any account of the namespace."""
        return SecretGoneError(
            "it is not there, and the centre only fills one that is installed empty",
            where=f"secret {self._where.namespace}/{self._where.name}",
            remedy="install it again, by helm upgrade or by kubectl apply -f daemonset/manifests/50-centre.yaml (give "
            "nobody the right to create Secrets); then restart kube-scheduler, for the authority will be a new one",
        )

    def _wrong_clock(self, server_time: float | None) -> WrongClockError | None:
        if server_time is None or abs(ahead := self._clock.wall() - server_time) <= CLOCKS_DIFFER:
            return None
        return WrongClockError(
            f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the API server's",
            where=f"secret {self._where.name}",
            remedy="set the one that is wrong: see whether NTP runs on this replica's node and on the control plane's",
        )

    async def _store(self, kept: Kept, *, over: Secret | None) -> None:
        if over is None:
            await self._client.create(SECRETS, Secret(metadata=self._where, data=to_data(kept)))
            return
        change = {"metadata": {"resourceVersion": over.metadata.resource_version}, "data": to_data(kept)}
        await self._client.patch(
            SECRETS, name=self._where.name, namespace=self._where.namespace, patch=merge_patch(change)
        )

    async def _tell_api_server(self, authorities: bytes) -> None:
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            for name in self._webhooks:
                about = {"kind": resource.kind, "configuration": name}
                try:
                    found = await self._client.get(resource, name=name)
                    if (patch := trusting(found, authorities)) is not None:
                        await self._client.patch(resource, name=name, patch=patch)
                        log.info("the API server was told whom to trust", extra=about)
                except (NotFoundError, ConflictError) as error:
                    # Not installed (yet), or written by somebody this instant: the next look finds it.
                    log.debug("a webhook was not told whom to trust: %s", error, extra=about)
                except ApiError as error:
                    log.warning("a webhook was not told whom to trust: %s", error, extra=about)


def _write(folder: Path, kept: Kept) -> bool:
    """Put all but the authority's key there; whether anything changed.

    Whoever reads in between finds a pair that is none, and keeps what they have (`web/tls.py`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    changed = False
    for name, content in files(msgspec.structs.replace(kept, authority_key=b"")).items():
        place = folder / name
        if not content or (place.exists() and place.read_bytes() == content):
            continue
        fresh = folder / f".{name}"
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=_OWNER_ONLY)
        fresh.write_bytes(content)
        fresh.replace(place)
        changed = True
    return changed
