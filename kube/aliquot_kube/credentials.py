"""Where the API server is, and how we prove who we are: the official client's configuration, kept fresh.

In-cluster tokens are read again each minute and exec plugins run again when their credential expires; that is the
official client's work. Ours is to use it from several threads, and to load everything anew when the server no longer
knows us (a token file of a kubeconfig, a client certificate, a CA that was rotated).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import urllib3
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import load_incluster_config, load_kube_config

from aliquot_kube.cutting import make_cuttable
from aliquot_kube.errors import UnconfiguredError

# Connections that are kept when idle; the threads of a transport never use more at once but for its watches.
_KEPT_CONNECTIONS = 8


def load_configuration(
    *, kubeconfig: str = "", context: str = "", environ: Mapping[str, str] = os.environ
) -> Configuration:
    """Find the API server: the kubeconfig given, else `KUBECONFIG`, else the pod we run in, else `~/.kube/config`."""
    configuration = Configuration()
    configuration.connection_pool_maxsize = _KEPT_CONNECTIONS
    # Without TCP keep-alive a peer that vanished is noticed only when a watch's time is over.
    configuration.keep_alive = True
    path = kubeconfig or environ.get("KUBECONFIG", "")
    try:
        if path or "KUBERNETES_SERVICE_HOST" not in environ:
            path = path or str(Path.home() / ".kube" / "config")
            load_kube_config(path, context or None, configuration, persist_config=False)  # type: ignore[no-untyped-call]  # theirs
        else:
            path = "service account"
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # theirs
    except Exception as error:  # whatever its YAML parser, files and plugins raise
        raise UnconfiguredError(
            str(error) or type(error).__name__, where=path, remedy="give a kubeconfig, or run in a pod"
        ) from error
    if configuration.host.startswith("https:") and not (configuration.api_key or configuration.cert_file):
        # The official client logs a failing exec plugin and goes on without it: every request would be a stranger's.
        raise UnconfiguredError(
            "no token and no client certificate", where=path, remedy="does the user's exec plugin work?"
        )
    return configuration


@dataclass(frozen=True, kw_only=True)
class Access:
    """What one request needs; `generation` counts how often all was loaded anew."""

    host: str
    headers: Mapping[str, str]
    pools: urllib3.PoolManager
    generation: int


class Credentials:
    """The configuration in use, for any thread."""

    def __init__(self, load: Callable[[], Configuration] = load_configuration) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._generation = 0
        self._configuration = load()
        self._pools = _pools(self._configuration)

    def access(self) -> Access:
        """What a request needs now; refreshes what expired, which may run an exec plugin: never on the event loop."""
        with self._lock:
            before = _identity(self._configuration)
            headers = self._authorization()
            if _identity(self._configuration) != before:
                self._renew_pools()
            return Access(
                host=self._configuration.host, headers=headers, pools=self._pools, generation=self._generation
            )

    def distrust(self, access: Access) -> None:
        """Load all anew, unless another thread did so since."""
        with self._lock:
            if access.generation == self._generation:
                self._configuration = self._load()
                self._generation += 1
                self._renew_pools()

    def close(self) -> None:
        """Close the idle connections."""
        self._pools.clear()

    def _authorization(self) -> dict[str, str]:
        try:
            value = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as error:  # whatever an exec plugin or a token file raises
            raise UnconfiguredError(str(error), where="credentials", remedy="check the token or exec plugin") from error
        # Token files may end in a newline, which no header may.
        return {"Authorization": value.strip()} if value else {}

    def _renew_pools(self) -> None:
        self._pools.clear()
        self._pools = _pools(self._configuration)


def _pools(configuration: Configuration) -> urllib3.PoolManager:
    """Let the official client read its own configuration (TLS, SNI, proxies) and take the pool that it builds.

    A small request costs 0.19 ms of CPU through it, 0.20 through a pool of our own, 0.21 to 0.24 through `ApiClient`;
    memory is 46 MiB in all three (benchmarks/kube_client.py). Their `request` on top would only rewrite content types
    and keep the socket out of reach.
    """
    return make_cuttable(RESTClientObject(configuration).pool_manager)


def _identity(configuration: Configuration) -> tuple[object, ...]:
    return (configuration.host, configuration.cert_file, configuration.key_file, configuration.ssl_ca_cert)
