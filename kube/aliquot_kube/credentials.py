"""Where the API server is, and how we prove who we are: the official client's configuration, kept fresh.

In-cluster tokens are read again each minute and exec plugins run again when their credential expires; that is the
official client's work. Ours is to use it from several threads, and to load everything anew when the server no longer
knows us (a token file of a kubeconfig, a client certificate, a CA that was rotated).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import urllib3
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import load_incluster_config, load_kube_config
from kubernetes.config.kube_config import KubeConfigMerger

from aliquot_kube.cutting import make_cuttable
from aliquot_kube.errors import UnconfiguredError

# Connections that are kept when idle: as many as the centre's 32 threads and its watches use at once. One that is
# thrown away costs a TLS handshake for the next request of a burst.
_KEPT_CONNECTIONS = 40
_GIVE = "name a kubeconfig (--kubeconfig, KUBECONFIG), or run in a pod with a service account"


class FileConfiguration(Configuration):
    """A configuration that also knows as whom a kubeconfig says to act.

    The official client passes over `as`, and would act as the user beneath, who may do more.
    """

    acting_as: tuple[tuple[str, str], ...] = ()


def load_configuration(
    *, kubeconfig: str = "", context: str = "", environ: Mapping[str, str] = os.environ
) -> Configuration:
    """Find the API server: the kubeconfig given, else `KUBECONFIG`, else the service account of the pod we run in.

    `context` is the one of the kubeconfig to take, else the one that is current there.
    Never `~/.kube/config`: a process started by mistake on a person's machine would act there as that person.
    """
    configuration = FileConfiguration()
    configuration.connection_pool_maxsize = _KEPT_CONNECTIONS
    # Without TCP keep-alive a peer that vanished is noticed only when a watch's time is over.
    configuration.keep_alive = True
    where = path = kubeconfig or environ.get("KUBECONFIG", "")
    if path:
        _load_file(path, context=context, into=configuration)
    elif "KUBERNETES_SERVICE_HOST" in environ:
        where = "service account"
        _load_account(where, into=configuration)
    else:
        raise UnconfiguredError("no kubeconfig is given, and this is no pod", where="API server", remedy=_GIVE)
    if configuration.host.startswith("https:") and not (configuration.api_key or configuration.cert_file):
        # The official client logs a failing exec plugin and goes on without it: every request would be a stranger's.
        raise UnconfiguredError(
            "no token and no client certificate", where=where, remedy="does the user's exec plugin work?"
        )
    return configuration


def _load_file(path: str, *, context: str, into: FileConfiguration) -> None:
    try:
        _look_for(path)
        _look_for_context(context, path=path)
        load_kube_config(path, context or None, into, persist_config=False)  # type: ignore[no-untyped-call]  # theirs
        into.acting_as = _acting_as(path, context=context)
    except UnconfiguredError:
        raise
    except OSError as error:
        raise UnconfiguredError(f"can't be read: {error.strerror}", where=path, remedy=_GIVE) from error
    except (TypeError, AttributeError, KeyError) as error:  # their loader takes for granted what kubeconfigs have
        raise UnconfiguredError("is not a kubeconfig", where=path, remedy=_GIVE) from error
    except Exception as error:  # whatever its YAML parser and plugins raise
        words = " ".join(str(error).split())
        raise UnconfiguredError(f"is not a kubeconfig that can be used: {words}", where=path, remedy=_GIVE) from error


def namespace_of(path: str, *, context: str = "") -> str:
    """The namespace that a kubeconfig means where none is said; empty if it says none, or can't be read."""
    try:
        config = KubeConfigMerger(path).config  # type: ignore[no-untyped-call]  # theirs
        found = config["contexts"].get_with_name(context or config["current-context"])["context"]
        return str(found.value.get("namespace") or "")
    except Exception:  # noqa: BLE001 - whoever asks with it next is told what is wrong with it
        return ""


def _acting_as(path: str, *, context: str) -> tuple[tuple[str, str], ...]:
    """The headers by which the user of a kubeconfig acts as somebody else; none where it does not."""
    config = KubeConfigMerger(path).config  # type: ignore[no-untyped-call]  # theirs
    chosen = config["contexts"].get_with_name(context or config["current-context"])["context"]
    user = config["users"].get_with_name(chosen["user"])["user"].value
    extra = (user.get("as-user-extra") or {}).items()
    headers = [("Impersonate-User", user.get("as")), ("Impersonate-Uid", user.get("as-uid"))]
    headers += [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
    headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for key, values in extra for value in values]
    return tuple((name, value) for name, value in headers if value)


def _look_for(path: str) -> None:
    """As for kubectl, several files may be named, and some of them may be missing."""
    if not any(Path(one).expanduser().exists() for one in path.split(os.pathsep)):
        raise FileNotFoundError(errno.ENOENT, "there is no such file")


def _look_for_context(context: str, *, path: str) -> None:
    """What was meant can't be guessed; what there is can be told, which the official client does not."""
    if not context:
        return
    config = KubeConfigMerger(path).config  # type: ignore[no-untyped-call]  # theirs
    known = [str(one["name"]) for one in config["contexts"].value]
    if context not in known:
        told = f"there are {', '.join(known)}" if known else "there is none at all"
        raise UnconfiguredError(f"it has no context {context}", where=path, remedy=told)


def _load_account(where: str, *, into: Configuration) -> None:
    try:
        load_incluster_config(into)  # type: ignore[no-untyped-call]  # theirs
    except Exception as error:  # theirs, or of the mounted files
        raise UnconfiguredError(
            str(error), where=where, remedy="mount its token (automountServiceAccountToken), or give a kubeconfig"
        ) from error


@dataclass(frozen=True, kw_only=True)
class Access:
    """What one request needs; `generation` counts how often all was loaded anew."""

    host: str
    # A name may come more than once.
    headers: Sequence[tuple[str, str]]
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
            headers = [*self._authorization(), *getattr(self._configuration, "acting_as", ())]
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

    def _authorization(self) -> list[tuple[str, str]]:
        try:
            value = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as error:  # whatever an exec plugin or a token file raises
            raise UnconfiguredError(str(error), where="credentials", remedy="check the token or exec plugin") from error
        # Token files may end in a newline, which no header may.
        return [("Authorization", value.strip())] if value else []

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
