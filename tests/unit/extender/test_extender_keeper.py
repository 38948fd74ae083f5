"""Replicas that share certificates: one Secret, one winner, the same files, and an API server that trusts them."""

from __future__ import annotations

import asyncio
import base64
import stat
from email.utils import formatdate
from pathlib import Path

import msgspec
import pytest

from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError, ForbiddenError, InvalidError, ServerTroubleError, UnreachableError
from aliquot_kube.transport import Question
from aliquot_scheduler.certificates.issuing import read_facts, split
from aliquot_scheduler.certificates.keeper import (
    CLOCKS_DIFFER,
    LOOK_EVERY,
    CertificateKeeper,
    RacesLostError,
    SecretGoneError,
    WrongClockError,
)
from aliquot_scheduler.certificates.keeping import Kept, Plan, from_data
from aliquot_scheduler.web.tls import Tls, TlsFiles
from support.clocks import VirtualClock
from support.fake_api import FakeApi, Json, no_fault

PLAN = Plan(server="centre", hosts=("centre",), client="system:kube-scheduler")
SECRET = "/api/v1/namespaces/system/secrets/aliquot-tls"
GROUP = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = (f"{GROUP}/{kind}webhookconfigurations/aliquot" for kind in ("mutating", "validating"))
NOW = 1_800_000_000.0
YEAR = 365 * 86_400.0


def keeper(
    api: FakeApi, folder: Path, *, clock: VirtualClock | None = None, life: float = PLAN.life
) -> CertificateKeeper:
    """One replica's."""
    return CertificateKeeper(
        client=KubeClient(transport=api),
        clock=clock or VirtualClock(start=1_800_000_000.0),
        random=lambda: 0.5,
        namespace="system",
        secret="aliquot-tls",
        plan=msgspec.structs.replace(PLAN, life=life),
        folder=folder,
        webhooks=["aliquot"],
    )


def stored(api: FakeApi) -> Kept:
    """What the Secret holds."""
    kept = from_data(api.objects[SECRET]["data"])
    assert kept is not None
    return kept


def written(folder: Path) -> dict[str, bytes]:
    """What is in a folder."""
    return {place.name: place.read_bytes() for place in folder.iterdir()}


def configuration(**client: str) -> Json:
    """Somebody's webhook configuration, with more in it than we read."""
    entry = {"clientConfig": {"service": {"name": "s"}, **client}, "sideEffects": "None", "rules": [{"scope": "*"}]}
    return {"metadata": {"name": "aliquot"}, "webhooks": [{"name": "a", **entry}, {"name": "b", **entry}]}


async def test_the_first_replica_makes_the_secret_and_its_files(tmp_path: Path) -> None:
    """A server can be made of them; the authority's key stays in the Secret, and keys are their owner's."""
    api, folder = FakeApi(), tmp_path / "tls"
    await keeper(api, folder).ensure()
    names = {"ca.crt", "tls.crt", "tls.key", "client.crt", "client.key"}
    assert {place.name for place in folder.iterdir()} == names
    assert {stat.S_IMODE(place.stat().st_mode) for place in folder.iterdir()} == {0o600}
    assert (folder / "ca.crt").read_bytes() == stored(api).authorities
    files = TlsFiles(certificate=f"{folder}/tls.crt", key=f"{folder}/tls.key", authority=f"{folder}/ca.crt")
    assert Tls(files=files, clock=VirtualClock(), look_every=1.0).client().get_ca_certs()


async def test_the_next_replica_takes_them_over_and_writes_nothing(tmp_path: Path) -> None:
    """The same in every folder; and what is in the folder already is not written again."""
    api = FakeApi()
    await keeper(api, tmp_path / "a").ensure()
    writes = len(api.writes)
    second = keeper(api, tmp_path / "b")
    assert [await second.ensure(), await second.ensure()] == [True, False]
    assert len(api.writes) == writes
    assert written(tmp_path / "a") == written(tmp_path / "b")


@pytest.mark.parametrize("before", [None, {"metadata": {"name": "aliquot-tls"}}, {"data": {"tls.crt": "eA=="}}])
async def test_replicas_that_race_end_with_the_winner_s(tmp_path: Path, before: Json | None) -> None:
    """Where there was no Secret, an empty one from the chart, or a spoilt one."""
    api = FakeApi()
    if before is not None:
        api.put(SECRET, before)
    await asyncio.gather(*(keeper(api, tmp_path / str(number)).ensure() for number in range(5)))
    kept = stored(api)
    assert {(tmp_path / str(number) / "tls.crt").read_bytes() for number in range(5)} == {kept.server.certificate}
    assert {(tmp_path / str(number) / "ca.crt").read_bytes() for number in range(5)} == {kept.authorities}


async def test_a_write_of_unknown_outcome_is_found_by_the_next_look(tmp_path: Path) -> None:
    """What was written counts, not what was made and lost."""
    api = FakeApi()
    api.after = [UnreachableError("cut", where="api")]
    one = keeper(api, tmp_path)
    with pytest.raises(ApiError):
        await one.ensure()
    assert written(tmp_path) == {}
    kept = stored(api)
    await one.ensure()
    assert stored(api) == kept
    assert written(tmp_path)["tls.crt"] == kept.server.certificate


def may_not_create(question: Question) -> None:
    """As by the rights that the chart gives."""
    if question.method == "POST":
        raise ForbiddenError("cannot create resource secrets", where=question.path, status=403)


async def test_a_secret_that_was_deleted_is_to_be_installed_again(tmp_path: Path) -> None:
    """Not the right to create one to be given; and whoever serves goes on with what it has."""
    api, clock = FakeApi(), VirtualClock(start=1_800_000_000.0)
    api.put(SECRET, {"data": {}})
    one = keeper(api, tmp_path, clock=clock)
    await one.ensure()
    before = written(tmp_path)
    del api.objects[SECRET]
    api.before = [may_not_create] * 100
    with pytest.raises(SecretGoneError, match=r"install it again.*50-centre.yaml.*restart kube-scheduler"):
        await one.ensure()
    assert written(tmp_path) == before
    running = asyncio.create_task(one.run(changed=list))
    await clock.advance(LOOK_EVERY)
    api.put(SECRET, {"data": {}})
    await clock.advance(2 * LOOK_EVERY)
    running.cancel()
    assert written(tmp_path)["ca.crt"] == stored(api).authorities != before["ca.crt"]


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([0.0], ""),
        ([0.0, 0.7], ""),
        ([*(each / 2 for each in range(14)), 6.8], "restart kube-scheduler once until 2034-"),
        ([0.0, 9.9], "restart kube-scheduler now"),
        ([0.0, 11.0], "restart kube-scheduler now"),
    ],
    ids=["installed", "certificates", "authority", "late", "too late"],
)
async def test_who_has_to_restart_kube_scheduler_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, looks: list[float], told: str
) -> None:
    """At the last of these looks, in years: it reads ca.crt when it starts, so a new authority is nobody's to it."""
    api = FakeApi()
    for year in looks:
        caplog.clear()
        await keeper(api, tmp_path, clock=VirtualClock(start=NOW + year * YEAR)).ensure()
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(said) == bool(told)
    assert all(told in each for each in said)


async def test_one_who_always_loses_says_so(tmp_path: Path) -> None:
    """Somebody writes the Secret between each two steps."""
    api = FakeApi()
    api.put(SECRET, {"data": {}})
    api.after = [lambda _: api.put(SECRET, {"data": {}})] * 10
    with pytest.raises(RacesLostError, match="who else writes it"):
        await keeper(api, tmp_path).ensure()


# --- the API server's trust ------------------------------------------------------------------------------------------
async def test_webhooks_are_told_whom_to_trust_and_keep_the_rest(tmp_path: Path) -> None:
    """Each entry of both configurations; once."""
    api = FakeApi()
    for path in (MUTATING, VALIDATING):
        api.put(path, configuration(caBundle="old"))
    one = keeper(api, tmp_path)
    for _ in range(2):
        await one.ensure()
    bundle = base64.b64encode(stored(api).authorities).decode()
    for path in (MUTATING, VALIDATING):
        assert api.objects[path]["webhooks"] == configuration(caBundle=bundle)["webhooks"]
        assert sum(question.path == path for question in api.writes) == 1


async def test_a_configuration_that_was_installed_anew_is_told_again(tmp_path: Path) -> None:
    """Within a minute."""
    api, clock = FakeApi(), VirtualClock(start=1_800_000_000.0)
    one = keeper(api, tmp_path, clock=clock)
    await one.ensure()
    running = asyncio.create_task(one.run(changed=list))
    await clock.advance(LOOK_EVERY / 2)
    api.put(MUTATING, configuration())
    await clock.advance(LOOK_EVERY)
    assert "caBundle" in api.objects[MUTATING]["webhooks"][0]["clientConfig"]
    running.cancel()


async def test_a_configuration_that_changes_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    """Its author's change stands, and is told at the next look."""
    api = FakeApi()
    one = keeper(api, tmp_path)
    await one.ensure()
    api.put(MUTATING, configuration())
    newer = {**configuration(), "webhooks": configuration()["webhooks"][:1]}
    api.after = [no_fault, lambda _: api.put(MUTATING, newer)]
    await one.ensure()
    assert api.objects[MUTATING]["webhooks"] == newer["webhooks"]
    await one.ensure()
    assert len(api.objects[MUTATING]["webhooks"]) == 1
    assert "caBundle" in api.objects[MUTATING]["webhooks"][0]["clientConfig"]


async def test_a_webhook_that_can_t_be_told_keeps_nobody_from_serving(tmp_path: Path) -> None:
    """The extender has nothing to do with it."""
    api = FakeApi()
    api.before = [no_fault, no_fault, ForbiddenError("no", where="api", status=403)]
    api.put(VALIDATING, configuration())
    await keeper(api, tmp_path).ensure()
    assert (tmp_path / "tls.crt").exists()
    assert "caBundle" in api.objects[VALIDATING]["webhooks"][0]["clientConfig"]


# --- time ------------------------------------------------------------------------------------------------------------
async def test_certificates_are_renewed_while_it_runs_and_whoever_serves_is_told(tmp_path: Path) -> None:
    """After two thirds of their life, within a minute."""
    api, clock, told = FakeApi(), VirtualClock(start=1_800_000_000.0), list[float]()
    one = keeper(api, tmp_path, clock=clock, life=6000.0)
    await one.ensure()
    before = stored(api)
    running = asyncio.create_task(one.run(changed=lambda: told.append(clock.monotonic())))
    await clock.advance(3780.0)
    assert (stored(api), told) == (before, [])
    await clock.advance(3780.0)
    (at,) = told
    assert 3780.0 < at <= 3840.0 + LOOK_EVERY
    assert stored(api).server != before.server
    assert written(tmp_path)["tls.crt"] == stored(api).server.certificate
    running.cancel()


async def test_an_api_server_in_trouble_is_asked_less_and_less_often(tmp_path: Path) -> None:
    """What is there serves on; and it is asked again when it is well."""
    api, clock = FakeApi(), VirtualClock(start=1_800_000_000.0)
    one = keeper(api, tmp_path, clock=clock)
    await one.ensure()
    asked = len(api.asked)
    api.before = [ServerTroubleError("no", where="api", status=500) for _ in range(4)]
    running = asyncio.create_task(one.run(changed=list))
    await clock.advance(LOOK_EVERY + 1)
    first = len(api.asked) - asked
    await clock.advance(LOOK_EVERY)
    assert (first, api.before) == (2, [])
    asked = len(api.asked)
    await clock.advance(10 * LOOK_EVERY)
    # A look is a Secret and two configurations.
    assert len(api.asked) - asked == 10 * 3
    running.cancel()


def dated(api: FakeApi, when: float) -> None:
    """So late it is by the API server's clock."""
    api.headers = {"date": formatdate(when, usegmt=True)}


@pytest.mark.parametrize("off", [YEAR, 7 * YEAR, 11 * YEAR, -YEAR, -7 * YEAR, -1000.0])
async def test_who_has_a_wrong_clock_writes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, off: float
) -> None:
    """It serves with what is there, and says that it is wrong; what it would have made is not good for others."""
    api = FakeApi()
    api.put(SECRET, {"data": {}})
    dated(api, NOW)
    await keeper(api, tmp_path / "right").ensure()
    writes = len(api.writes)
    wrong = VirtualClock(start=NOW + off)
    for _ in range(20):
        # By its clock they are due, or have not begun.
        await keeper(api, tmp_path / "wrong", clock=wrong).ensure()
        await keeper(api, tmp_path / "right").ensure()
    assert len(api.writes) == writes
    assert written(tmp_path / "wrong") == written(tmp_path / "right")
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(said) == 20
    assert all("this machine's clock is" in each and "the API server's" in each for each in said)


async def test_who_starts_first_with_a_wrong_clock_makes_nothing(tmp_path: Path) -> None:
    """Nobody could use it; once the clock is right, the next look makes them."""
    api = FakeApi()
    api.put(SECRET, {"data": {}})
    dated(api, NOW)
    for off, how in ((3600, "3600 s ahead of"), (-3600, "3600 s behind"), (CLOCKS_DIFFER + 2, "ahead of")):
        with pytest.raises(WrongClockError, match=rf"clock is .*{how} the API server's.*NTP"):
            await keeper(api, tmp_path, clock=VirtualClock(start=NOW + off)).ensure()
    assert (api.writes, written(tmp_path)) == ([], {})
    await keeper(api, tmp_path, clock=VirtualClock(start=NOW + CLOCKS_DIFFER - 2)).ensure()
    facts = read_facts(stored(api).server.certificate)
    assert facts.begins <= NOW - CLOCKS_DIFFER


async def test_a_secret_that_a_wrong_clock_has_spoilt_is_mended_by_a_right_one(tmp_path: Path) -> None:
    """Some server's clock was wrong with it, or a person put it there."""
    api = FakeApi()
    api.put(SECRET, {"data": {}})
    await keeper(api, tmp_path / "a", clock=VirtualClock(start=NOW + 7 * YEAR)).ensure()
    dated(api, NOW)
    await keeper(api, tmp_path / "a").ensure()
    assert read_facts(stored(api).server.certificate).begins < NOW
    assert [read_facts(one).begins < NOW for one in split(stored(api).authorities)] == [True]


def immutable(question: Question) -> None:
    """Somebody wants the Secret to stay as it is."""
    if (question.method, question.path) == ("PATCH", SECRET):
        raise InvalidError("field is immutable", where=SECRET, status=422)


async def test_a_renewal_that_is_refused_ends_nobody_while_the_old_ones_are_good(tmp_path: Path) -> None:
    """Who starts serves with what is there, and who runs goes on; when they are over, whoever starts says why not."""
    api, clock = FakeApi(), VirtualClock(start=1_800_000_000.0)
    await keeper(api, tmp_path / "a", clock=clock, life=3000.0).ensure()
    old = stored(api).server.certificate
    await clock.advance(2500.0)
    api.before = [immutable] * 100
    await keeper(api, tmp_path / "b", clock=clock, life=3000.0).ensure()
    assert written(tmp_path / "b")["tls.crt"] == old
    await clock.advance(1000.0)
    with pytest.raises(InvalidError, match="immutable"):
        await keeper(api, tmp_path / "c", clock=clock, life=3000.0).ensure()
    running = asyncio.ensure_future(keeper(api, tmp_path / "d", clock=clock, life=3000.0).run(changed=list))
    for _ in range(5):
        await clock.advance(LOOK_EVERY)
    assert not running.done()
    api.before.clear()
    for _ in range(5):
        await clock.advance(LOOK_EVERY)
    running.cancel()
    assert written(tmp_path / "d")["tls.crt"] != old
