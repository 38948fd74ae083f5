"""Followers pass calls on to the leader: once, as they came, in time, and never in a circle."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.certificates.issuing import Use
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.extender import forwarding
from aliquot_scheduler.extender.decisions import Filtered
from aliquot_scheduler.extender.forwarding import AGAIN_AFTER
from aliquot_scheduler.extender.verbs import Verb
from aliquot_scheduler.web.heads import HOP
from aliquot_scheduler.web.tls import Tls, TlsFiles
from aliquot_standalone.ports import any_port
from support.centre_http import BINDING, SCHEDULER, Authority, Caller, Replica, args, caller, replica, write_pair
from support.clocks import LeapingClock

# Nothing listens there.
NOWHERE = "https://127.0.0.1:9"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom everybody trusts."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def rest() -> LeapingClock:
    """How the follower waits between two tries."""
    return LeapingClock()


@pytest.fixture
async def leader(authority: Authority) -> AsyncIterator[Replica]:
    """A replica that leads."""
    async with replica(authority.server_files(folder="leader"), identity="leader") as one:
        yield one


@pytest.fixture
async def follower(authority: Authority, leader: Replica, rest: LeapingClock) -> AsyncIterator[Replica]:
    """A replica that follows it."""
    async with replica(authority.server_files(folder="follower"), identity="follower", resting=rest) as one:
        one.rule.follow(leader)
        yield one


@pytest.fixture
async def scheduler(authority: Authority) -> AsyncIterator[Caller]:
    """kube-scheduler."""
    async with caller(authority.caller(authority.signs(SCHEDULER))) as one:
        yield one


async def test_a_follower_passes_calls_on_and_answers_back(
    leader: Replica, follower: Replica, scheduler: Caller
) -> None:
    """The leader decides, the follower decides nothing."""
    leader.desk.filtered = Filtered(nodes=["n1"], failed={"n2": "full"})
    _, answer = await scheduler.post(follower.url("/extender/filter"), args("n1", "n2"))
    assert (answer["NodeNames"], answer["FailedNodes"]) == (["n1"], {"n2": "full"})
    leader.desk.bound = "taken"
    assert await scheduler.post(follower.url("/extender/bind"), BINDING) == (200, {"Error": "taken"})
    assert [verb for verb, _ in leader.desk.asked] == ["filter", "bind"]
    assert follower.desk.asked == []
    assert follower.calls("filter", "forwarded") == 1
    assert leader.calls("filter", "decided") == 1


SLICE = [{"name": "main", "resources": {"limits": {"aliquot.dev/compute": "10"}}}]
# Who would evict, and whether it may without a leader to ask.
EVICT = {
    "what runs the cluster": ("kube-system", 0, [], True),
    "what runs Aliquot": ("aliquot-system", 0, [], True),
    "whoever has a class of the system": ("team", 2_000_001_000, [], False),
    "the critical that has a slice": ("kube-system", 2_000_001_000, SLICE, False),
    "the highest that a user's class may be": ("team", 1_000_000_000, [], False),
}


@pytest.mark.parametrize("row", EVICT)
async def test_who_runs_the_cluster_evicts_whom_it_finds_whoever_leads(
    follower: Replica, scheduler: Caller, row: str
) -> None:
    """It may be what brings the leader back; for all others nobody goes without its word."""
    namespace, priority, containers, may = EVICT[row]
    follower.rule.address = NOWHERE
    metadata = {"name": "p", "namespace": namespace, "uid": "u-1"}
    found = {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}}
    pod = {"metadata": metadata, "spec": {"priority": priority, "containers": containers}}
    asked = {"Pod": pod, "NodeNameToMetaVictims": found}
    status, answer = await scheduler.post(follower.url("/extender/preempt"), asked)
    assert (status, answer["NodeNameToMetaVictims"]) == (200, found if may else {})
    assert follower.calls("preempt", "decided") == may


async def test_what_the_leader_can_t_read_comes_back_as_it_says(
    leader: Replica, follower: Replica, scheduler: Caller
) -> None:
    """Status and sentence; a body of any size is passed on."""
    for body in (b"{", b"[" * (2 * 1024 * 1024)):
        passed = await scheduler.post(follower.url("/extender/filter"), body)
        assert passed == await scheduler.post(leader.url("/extender/filter"), body)
        assert passed[0] == 400


@pytest.mark.parametrize("listens", ["::1", "[::1]", "*"])
async def test_a_leader_on_ipv6_is_reached(
    authority: Authority, follower: Replica, scheduler: Caller, listens: str
) -> None:
    """By the address that the Deployment gives it, without brackets; who listens everywhere does in both families."""
    files = authority.server_files(folder="leader")
    with ExitStack() as kept:
        # Both families are to have the same port.
        port = any_port(keep=kept.enter_context)
        async with replica(files, identity="leader", listens=listens, port=port) as leader:
            follower.rule.address = CentreSettings(address=f"https://::1:{port}").url
            assert await scheduler.post(follower.url("/extender/bind"), BINDING) == (200, {"Error": ""})
            assert [verb for verb, _ in leader.desk.asked] == ["bind"]
            if listens == "*":
                follower.rule.follow(leader)
                assert await scheduler.post(follower.url("/extender/bind"), BINDING) == (200, {"Error": ""})


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("https://fd00:10:244::5:10943", "https://[fd00:10:244::5]:10943"),
        ("https://2001:db8:1:2:3:4:5:6:10943", "https://[2001:db8:1:2:3:4:5:6]:10943"),
        ("https://[::1]:10943", "https://[::1]:10943"),
        ("https://10.0.0.5:10943", "https://10.0.0.5:10943"),
        ("https://centre-0.example:10943", "https://centre-0.example:10943"),
        ("", ""),
    ],
)
def test_an_ipv6_address_gets_its_brackets(address: str, url: str) -> None:
    """The port is what follows the last colon, as in what the Deployment puts together."""
    assert CentreSettings(address=address).url == url


@pytest.mark.parametrize("verb", list(Verb))
async def test_without_a_leader_nothing_is_decided(
    follower: Replica, scheduler: Caller, rest: LeapingClock, verb: Verb
) -> None:
    """It says so, after it has waited once for a new one."""
    follower.rule.address = None
    body = BINDING if verb is Verb.BIND else {**args("n1"), "NodeNameToMetaVictims": {"n1": None}}
    status, answer = await scheduler.post(follower.url(f"/extender/{verb}"), body)
    assert status == 200
    if verb in {Verb.FILTER, Verb.BIND}:
        assert "no replica of the centre leads just now" in answer["Error"]
    else:
        assert answer in ([], {"NodeNameToMetaVictims": {}})
    assert (rest.slept, follower.calls(verb, "leaderless"), follower.desk.asked) == ([AGAIN_AFTER], 1, [])


async def test_a_dead_leader_s_successor_is_asked(
    leader: Replica, follower: Replica, scheduler: Caller, rest: LeapingClock
) -> None:
    """The dead one can't have heard of it."""
    follower.rule.address = NOWHERE
    rest.slept = Noticing(lambda: follower.rule.follow(leader))
    assert await scheduler.post(follower.url("/extender/bind"), BINDING) == (200, {"Error": ""})
    assert len(leader.desk.asked) == 1


async def test_a_follower_that_becomes_leader_meanwhile_answers_itself(
    follower: Replica, scheduler: Caller, rest: LeapingClock
) -> None:
    """It asks nobody else, least of all itself."""
    follower.rule.address = NOWHERE

    def win() -> None:
        follower.rule.mine = True

    rest.slept = Noticing(win)
    assert await scheduler.post(follower.url("/extender/bind"), BINDING) == (200, {"Error": ""})
    assert len(follower.desk.asked) == 1
    assert follower.calls("bind", "decided") == 1


class Noticing(list[float]):
    """What a clock slept; something happens while it sleeps."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens = happens

    def append(self, seconds: float) -> None:
        """Note it, and let it happen."""
        super().append(seconds)
        self._happens()


async def test_two_that_take_each_other_for_the_leader_don_t_play_ball(
    leader: Replica, follower: Replica, scheduler: Caller
) -> None:
    """A call is passed on once."""
    leader.rule.follow(follower)
    _, answer = await scheduler.post(follower.url("/extender/filter"), args("n1"))
    assert "follower asked this replica, which does not lead" in answer["Error"]
    assert (follower.calls("filter", "forwarded"), leader.calls("filter", "leaderless")) == (1, 1)
    assert leader.calls("filter", "forwarded") == follower.calls("filter", "leaderless") == 0


async def test_one_that_takes_itself_for_another_leader_asks_once(follower: Replica, scheduler: Caller) -> None:
    """Its own address as the leader's is no circle either."""
    follower.rule.follow(follower)
    _, answer = await scheduler.post(follower.url("/extender/filter"), args("n1"))
    assert "which does not lead" in answer["Error"]
    assert follower.calls("filter", "forwarded") + follower.calls("filter", "leaderless") == 2


async def test_a_call_that_says_it_was_passed_on_is_still_decided_by_the_leader(
    leader: Replica, scheduler: Caller
) -> None:
    """The mark is for followers only."""
    status, answer = await scheduler.post(leader.url("/extender/bind"), BINDING, **{HOP: "x"})
    assert (status, answer, len(leader.desk.asked)) == (200, {"Error": ""}, 1)


# --- leaders that are none, or not well ------------------------------------------------------------------------------
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve, *, files: TlsFiles | None) -> AsyncIterator[str]:
    """A server of another kind; its address."""
    tls = Tls(files=files, clock=LeapingClock(), look_every=1.0).listening if files else None
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_a_call_whose_answer_is_lost_is_not_sent_again(
    authority: Authority, follower: Replica, scheduler: Caller, rest: LeapingClock
) -> None:
    """A bind may have happened."""
    heard: list[bytes] = []

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(len(json.dumps(BINDING))))
        writer.transport.abort()

    async with serving(die, files=authority.server_files(folder="dying")) as follower.rule.address:
        _, answer = await scheduler.post(follower.url("/extender/bind"), BINDING)
    assert "did not answer" in answer["Error"]
    assert (len(heard), rest.slept) == (1, [])
    assert f"{HOP}: follower\r\n".encode() in heard[0]
    assert json.loads(heard[0].partition(b"\r\n\r\n")[2]) == BINDING


async def test_a_silent_leader_costs_less_than_kube_scheduler_s_patience(
    leader: Replica, follower: Replica, scheduler: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer says so, and the call is not sent again."""
    monkeypatch.setattr(forwarding, "PATIENCE", 1.0)
    leader.desk.hold = asyncio.Event()
    _, answer = await scheduler.post(follower.url("/extender/bind"), BINDING)
    assert "the leader did not answer within 1 s" in answer["Error"]
    leader.desk.hold.set()
    assert len(leader.desk.asked) == 1
    assert forwarding.PATIENCE < 5


async def test_a_leader_that_does_not_even_shake_hands_was_sent_nothing(
    leader: Replica, follower: Replica, scheduler: Caller, rest: LeapingClock
) -> None:
    """So the one who follows it is asked."""
    left = asyncio.Event()

    async def stare(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await left.wait()
        writer.transport.abort()

    async with serving(stare, files=None) as follower.rule.address:
        rest.slept = Noticing(lambda: follower.rule.follow(leader))
        assert await scheduler.post(follower.url("/extender/bind"), BINDING) == (200, {"Error": ""})
        left.set()
    assert len(leader.desk.asked) == 1


@pytest.mark.parametrize("scheme", ["http://", ""])
async def test_nothing_is_passed_on_in_plain(
    leader: Replica, follower: Replica, scheduler: Caller, scheme: str
) -> None:
    """Whatever a replica wrote of itself into the Lease."""
    follower.rule.address = leader.address.replace("https://", scheme)
    _, answer = await scheduler.post(follower.url("/extender/filter"), args("n1"))
    assert "correct its setting scheduler.address" in answer["Error"]
    assert leader.desk.asked == []


@pytest.mark.parametrize("kind", ["of another authority", "of another name", "a client's"])
async def test_who_can_t_prove_to_be_a_replica_hears_nothing(
    authority: Authority, follower: Replica, scheduler: Caller, tmp_path: Path, kind: str
) -> None:
    """Whatever the Lease says of its address."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.close()

    signer = Authority(tmp_path / "other") if kind == "of another authority" else authority
    files = signer.server_files(folder="impostor")
    if kind == "of another name":
        write_pair(files, authority.signs("x", hosts=["127.0.0.1"], uses=[Use.SERVER]))
    if kind == "a client's":
        write_pair(files, authority.signs("x", hosts=[CENTRE], uses=[Use.CLIENT]))
    async with serving(listen, files=files) as follower.rule.address:
        _, answer = await scheduler.post(follower.url("/extender/filter"), args("n1"))
    assert "can't be reached" in answer["Error"]
    assert [text for text in heard if text] == []


async def test_every_call_is_answered_while_the_leadership_wanders(
    authority: Authority, scheduler: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one leader at most; a call that found none says so."""
    # A hundred handshakes at once take both replicas and the caller, all on this loop, seconds where it is shared.
    monkeypatch.setattr(forwarding, "CONNECT", 50.0)
    monkeypatch.setattr(forwarding, "PATIENCE", 50.0)
    async with (
        replica(authority.server_files(folder="one"), identity="one", resting=LeapingClock()) as one,
        replica(authority.server_files(folder="two"), identity="two", resting=LeapingClock()) as two,
    ):
        pair = (one, two)
        two.rule.follow(one)
        count = 0

        def change() -> None:
            nonlocal count
            count += 1
            if count % 40 == 0:
                new, old = (one, two) if two.rule.mine else (two, one)
                old.rule.follow(new)
                new.rule.mine = True

        for each in pair:
            each.desk.during = change
            each.desk.filtered = Filtered(nodes=["n1"])

        async def call(number: int) -> str:
            body = args("n1", pod={"metadata": {"name": "p", "namespace": "team", "uid": f"u-{number}"}})
            _, answer = await scheduler.post(pair[number % 2].url("/extender/filter"), body)
            return "decided" if answer["NodeNames"] == ["n1"] else str(answer["Error"])

        answers = await asyncio.gather(*(call(number) for number in range(200)))
        decided = [pod.metadata.uid for each in pair for _, (pod, _) in each.desk.asked]
    assert len(decided) == len(set(decided)) == answers.count("decided")
    assert len(decided) > 60
    assert all(answer == "decided" or "does not lead" in answer for answer in answers)
