"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler, on loopback ports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.harness import binaries
from cluster.harness.api import Api
from cluster.harness.component import Component, answers
from cluster.harness.credentials import ADMIN, Credentials
from cluster.harness.leftovers import MARK
from cluster.harness.ports import free_port

LOOPBACK = "127.0.0.1"


class ControlPlane:
    """The four processes, started in two steps so that nodes can get ready while the API server does."""

    def __init__(
        self,
        *,
        folder: Path,
        credentials: Credentials,
        api_server_flags: Sequence[str] = (),
        scheduler_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.credentials = credentials
        self._env = {MARK: str(folder)}
        self._etcd_port, self.port = free_port(), free_port()
        self.server = f"https://{LOOPBACK}:{self.port}"
        self._apis: dict[str, Api] = {}
        self.api = self.api_as(ADMIN)
        self.etcd = self._make_etcd()
        self.api_server = self._make_api_server(api_server_flags)
        self.controller_manager = self._make_controller_manager()
        self.scheduler = self._make_scheduler(scheduler_config or {})
        # In the order in which they start; they stop in the opposite one.
        self.components = (self.etcd, self.api_server, self.controller_manager, self.scheduler)

    def api_as(self, user: str) -> Api:
        """Speak to the API server as a user with a fixed token, or as any other by impersonation."""
        tokens = self.credentials.tokens
        if user not in self._apis:
            self._apis[user] = Api(
                host=LOOPBACK,
                port=self.port,
                token=tokens.get(user, tokens[ADMIN]),
                certificate=self.credentials.certificate,
                impersonate="" if user in tokens else user,
            )
        return self._apis[user]

    def start(self) -> None:
        """Start etcd and the API server; `wait_ready` does the rest."""
        self.etcd.start()
        self.etcd.wait_ready()
        self.api_server.start()

    def wait_ready(self) -> None:
        """Wait for the API server, then start those that need it and wait for them."""
        self.api_server.wait_ready()
        for component in (self.controller_manager, self.scheduler):
            component.start()
        for component in (self.controller_manager, self.scheduler):
            component.wait_ready()

    def stop(self) -> None:
        """End all of it; nothing is kept, so nobody is asked politely (the API server would take a second)."""
        for api in self._apis.values():
            api.close()
        for component in reversed(self.components):
            component.kill()

    def configure_scheduler(self, config: Mapping[str, Any]) -> None:
        """Give kube-scheduler these settings (KubeSchedulerConfiguration) on top of ours; it must be (re)started."""
        settings = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(self._kubeconfig("system:kube-scheduler")),
                # Never what a measurement of it measures: by itself it binds 360 pods/s here, with two writes each.
                "qps": 5000,
                "burst": 5000,
            },
            "leaderElection": {"leaderElect": False},
            **config,
        }
        (self.folder / "scheduler.json").write_text(json.dumps(settings, indent=1))

    def _component(
        self, name: str, flags: Mapping[str, str], *, port: int, check: str, extra: Sequence[str] = ()
    ) -> Component:
        token = self.credentials.tokens[ADMIN] if name == "kube-apiserver" else ""
        scheme = "http" if name == "etcd" else "https"
        return Component(
            name=name,
            argv=[str(binaries.path_of(name)), *(f"--{flag}={value}" for flag, value in flags.items()), *extra],
            log=self.folder / "logs" / f"{name}.log",
            ready=lambda: answers(f"{scheme}://{LOOPBACK}:{port}{check}", token=token),
            env=self._env,
        )

    def _kubeconfig(self, user: str) -> Path:
        path = self.credentials.folder / f"{user.replace(':', '-')}.kubeconfig"
        return self.credentials.kubeconfig(self.server, user=user, path=path)

    def _make_etcd(self) -> Component:
        client, peer = f"http://{LOOPBACK}:{self._etcd_port}", f"http://{LOOPBACK}:{free_port()}"
        flags = {
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",  # nothing here has to survive a power cut
            "log-level": "warn",
        }
        return self._component("etcd", flags, port=self._etcd_port, check="/health")

    def _make_api_server(self, extra: Sequence[str]) -> Component:
        credentials = self.credentials
        flags = {
            "etcd-servers": f"http://{LOOPBACK}:{self._etcd_port}",
            "bind-address": LOOPBACK,
            "secure-port": str(self.port),
            "tls-cert-file": str(credentials.certificate),
            "tls-private-key-file": str(credentials.key),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(credentials.account_key),
            "service-account-signing-key-file": str(credentials.account_key),
            "token-auth-file": str(credentials.token_file),
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "service-cluster-ip-range": "10.96.0.0/16",
            "endpoint-reconciler-type": "none",  # no endpoint of ours is reachable but over loopback
            "enable-aggregator-routing": "true",  # no kube-proxy here: webhooks go to endpoints, not to ClusterIPs
            "allow-privileged": "true",
        }
        return self._component("kube-apiserver", flags, port=self.port, check="/readyz", extra=extra)

    def _make_controller_manager(self) -> Component:
        port = free_port()
        flags = {
            "kubeconfig": str(self._kubeconfig("system:kube-controller-manager")),
            "bind-address": LOOPBACK,
            "secure-port": str(port),
            "use-service-account-credentials": "true",
            "service-account-private-key-file": str(self.credentials.account_key),
            "root-ca-file": str(self.credentials.certificate),
            "leader-elect": "false",
            # One service account and one token per controller: at the default of 20/s nodes stay tainted for 4 s.
            "kube-api-qps": "500",
            "kube-api-burst": "1000",
        }
        return self._component("kube-controller-manager", flags, port=port, check="/healthz")

    def _make_scheduler(self, config: Mapping[str, Any]) -> Component:
        port = free_port()
        self.configure_scheduler(config)
        flags = {
            "config": str(self.folder / "scheduler.json"),
            "bind-address": LOOPBACK,
            "secure-port": str(port),
        }
        return self._component("kube-scheduler", flags, port=port, check="/readyz")
