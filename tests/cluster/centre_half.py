"""Aliquot's centre beside the test cluster: replicas as real processes, asked by the real kube-scheduler over TLS."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import yaml

from aliquot_core.names import Names
from aliquot_scheduler.certificates.issuing import Use, issue, make_authority
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.deciding.missed import Said
from aliquot_scheduler.extender.verbs import Verb
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.component import Component, answers
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.leftovers import MARK
from cluster.harness.ports import free_port
from cluster.harness.waiting import PATIENCE_SECONDS

NAMES = Names()
COMMAND = str(Path(sys.executable).with_name("aliquot"))
PROFILE = Path(__file__).parents[2] / "daemonset" / "kube-scheduler.yaml"
PLAIN_PODS = PROFILE.with_name("plain-pods.yaml")
SPARED_SLICES = PROFILE.with_name("spared-slices.yaml")
SCHEDULER = "aliquot"
_DAY = 86_400.0


class Served(Protocol):
    """Where a replica belongs, and what it serves with."""

    cluster: ClusterHarness
    certificate: Path
    key: Path
    authority: Path


class Replica:
    """One process of the centre."""

    def __init__(self, half: Served, *, name: str, user: str, settings: Mapping[str, str]) -> None:
        self.name = name
        self.port, self.status_port = free_port(), free_port()
        environment = {
            # It runs beside the nodes: when the test run is killed, only this tells whose it was.
            MARK: str(half.cluster.folder),
            "ALIQUOT_LOG_FORMAT": "json",
            "ALIQUOT_SCHEDULER_NAME": name,
            "ALIQUOT_SCHEDULER_ADDRESS": f"https://{LOOPBACK}:{self.port}",
            "ALIQUOT_SCHEDULER_KUBECONFIG": str(half.cluster.kubeconfig(user)),
            "ALIQUOT_WEB_ADDRESS": LOOPBACK,
            "ALIQUOT_WEB_PORT": str(self.port),
            "ALIQUOT_WEB_STATUS_PORT": str(self.status_port),
            "ALIQUOT_WEB_CERTIFICATE": str(half.certificate),
            "ALIQUOT_WEB_KEY": str(half.key),
            "ALIQUOT_WEB_AUTHORITY": str(half.authority),
            **settings,
        }
        self.log = half.cluster.folder / "logs" / f"aliquot-{name}.log"
        self.process = Component(
            name=f"aliquot-{name}",
            argv=[COMMAND, "scheduler"],
            log=self.log,
            ready=partial(answers, f"http://{LOOPBACK}:{self.status_port}/readyz"),
            env=environment,
        )

    def start(self) -> None:
        """Start it, and wait until calls to it are answered."""
        self.process.start()
        self.process.wait_ready()

    def logged(self, message: str) -> list[Json]:
        """The lines it has logged with this message."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in found if line.get("message") == message]

    def gauge(self, name: str) -> float:
        """What its metrics say under a name without labels; 0 where they say nothing."""
        return sum(float(line.split()[1]) for line in self._metrics() if line.startswith(f"{name} "))

    def calls(self, verb: str) -> int:
        """How often kube-scheduler has asked it so, whatever came of it."""
        counts = [
            line for line in self._metrics() if line.startswith("aliquot_centre_extender_duration_seconds_count{")
        ]
        return sum(int(float(line.split()[1])) for line in counts if f'verb="{verb}"' in line)

    def _metrics(self) -> list[str]:
        where = f"http://{LOOPBACK}:{self.status_port}/metrics"
        with urllib.request.urlopen(where, timeout=PATIENCE_SECONDS) as answer:
            text: str = answer.read().decode()
        return text.splitlines()


class CentreHalf:
    """The centre's certificates and replicas, and a kube-scheduler that asks it."""

    def __init__(self, cluster: ClusterHarness, *, user: str = "admin", **settings: str) -> None:
        self.cluster = cluster
        folder = cluster.folder / "centre"
        folder.mkdir(exist_ok=True)
        self.certificate, self.key, self.authority = (folder / name for name in ("tls.crt", "tls.key", "ca.crt"))
        self.authority.write_bytes(b"")
        self.renew_authority()
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMES.namespace}})
        self._user, self._settings = user, settings
        self.replicas: list[Replica] = []
        self.add_replica()

    def renew_authority(self) -> None:
        """A new one signs, and the one before stays trusted, as the centre's own do it."""
        now = time.time()
        authority = make_authority(name="test", now=now, life=_DAY)
        pair = issue(
            authority, name=CENTRE, hosts=[CENTRE, LOOPBACK], uses=[Use.SERVER, Use.CLIENT], now=now, life=_DAY
        )
        self.certificate.write_bytes(pair.certificate)
        self.key.write_bytes(pair.key)
        self.authority.write_bytes(authority.certificate + self.authority.read_bytes())

    def start(self) -> None:
        """Start the first replica, and kube-scheduler anew with our profile."""
        self.replicas[0].start()
        self.point_scheduler_at(self.replicas[0])

    def stop(self) -> None:
        """Stop all replicas."""
        for replica in self.replicas:
            replica.process.stop()

    def add_replica(self) -> Replica:
        """One more replica, not started."""
        name = f"centre-{chr(ord('a') + len(self.replicas))}"
        self.replicas.append(Replica(self, name=name, user=self._user, settings=self._settings))
        return self.replicas[-1]

    def logged(self, message: str) -> list[Json]:
        """The lines with this message, whichever replica leads."""
        return [line for replica in self.replicas for line in replica.logged(message)]

    def gauge(self, name: str) -> float:
        """What the leader's metrics say: who does not lead says nothing."""
        return sum(replica.gauge(name) for replica in self.replicas)

    def turns_missed(self) -> dict[Said, float]:
        """How many turns led to nothing, by what kube-scheduler had said of the pods."""
        return {said: self.gauge(f'aliquot_centre_turns_missed_total{{said="{said}"}}') for said in Said}

    def calls(self, verb: str) -> int:
        """How often kube-scheduler has asked so, whichever replica."""
        return sum(replica.calls(verb) for replica in self.replicas)

    def point_scheduler_at(
        self, replica: Replica, *, plain_pods: bool = False, own_weights: bool = False, spared: bool = True
    ) -> None:
        """Let kube-scheduler ask this replica, as the Service would; of pods without slices too, if that is said.

        Or with its own weights, and so for coarse grades, as the profile's comment has it. With `spared` it asks before
        it evicts for pods without slices, too.
        """
        config = yaml.safe_load(PROFILE.read_text())
        if own_weights:
            del config["profiles"][0]["plugins"]["score"]
            config["extenders"][0]["prioritizeVerb"] = Verb.PRIORITIZE_COARSE.value
        # The cluster's own, which schedules everybody else too and is alone.
        config["profiles"].insert(0, {"schedulerName": "default-scheduler"})
        del config["leaderElection"]
        where = {
            "urlPrefix": f"https://{LOOPBACK}:{replica.port}/extender",
            "tlsConfig": {
                "certFile": str(self.certificate),
                "keyFile": str(self.key),
                "caFile": str(self.authority),
                "serverName": CENTRE,
            },
        }
        # Nobody waits for its grades, but a test for what comes of them.
        plain = yaml.safe_load(PLAIN_PODS.read_text()) | {"httpTimeout": "30s"}
        asks_before = yaml.safe_load(SPARED_SLICES.read_text())
        entries = [*config["extenders"], *([asks_before] if spared else []), *([plain] if plain_pods else [])]
        config["extenders"] = [entry | where for entry in entries]
        plane = self.cluster.control_plane
        plane.scheduler.stop()
        plane.configure_scheduler(config)
        plane.scheduler.start()
        plane.scheduler.wait_ready()
