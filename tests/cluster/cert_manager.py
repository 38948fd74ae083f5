"""What cert-manager does, as far as the chart asks it: definitions of its shape, and whoever acts on them when told to.

The definitions are ours, and as strict as its own: a field or a use of keys that it does not know is refused. What is
played is issuing (its controller) and the API server's trust (its cainjector); when it renews is the test's to say.
"""

from __future__ import annotations

import base64
import time
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from aliquot_scheduler.certificates.issuing import DAY, Pair, Use, issue, make_authority
from cluster.harness.api import Api, Json
from cluster.harness.errors import ApiError

GROUP = "cert-manager.io"
INJECT = f"{GROUP}/inject-ca-from"
_WHOSE = f"{GROUP}/certificate-name"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
_USES = {"server auth": Use.SERVER, "client auth": Use.CLIENT}
_OTHER_USES = ["signing", "digital signature", "key encipherment", "key agreement", "cert sign", "crl sign"]
_TEXT, _TEXTS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}


def _of(required: list[str], **fields: Json) -> Json:
    return {"type": "object", "required": required, "properties": fields}


_KEY = _of(
    [],
    algorithm={"type": "string", "enum": ["RSA", "ECDSA", "Ed25519"]},
    encoding={"type": "string", "enum": ["PKCS1", "PKCS8"]},
    rotationPolicy={"type": "string", "enum": ["Never", "Always"]},
    size={"type": "integer"},
)
_SPECS = {
    "Certificate": _of(
        ["issuerRef", "secretName"],
        commonName=_TEXT,
        dnsNames=_TEXTS,
        duration=_TEXT,
        ipAddresses=_TEXTS,
        isCA={"type": "boolean"},
        issuerRef=_of(["name"], name=_TEXT, kind=_TEXT, group=_TEXT),
        privateKey=_KEY,
        renewBefore=_TEXT,
        secretName=_TEXT,
        usages={"type": "array", "items": {"type": "string", "enum": [*_USES, *_OTHER_USES]}},
    ),
    "Issuer": _of([], selfSigned=_of([]), ca=_of(["secretName"], secretName=_TEXT)),
}


def definitions() -> list[Json]:
    """Of both kinds that the chart makes objects of."""
    return [_definition(kind, spec) for kind, spec in _SPECS.items()]


def _definition(kind: str, spec: Json) -> Json:
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower(), "listKind": f"{kind}List"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _of([], spec=spec)}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _signed_by(key: bytes, *, like: bytes) -> bytes:
    """An authority that says the same of itself, by another key."""
    own, model = serialization.load_pem_private_key(key, password=None), x509.load_pem_x509_certificate(like)
    assert isinstance(own, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(model.issuer, model.subject, own.public_key(), model.serial_number)
    builder = builder.not_valid_before(model.not_valid_before_utc).not_valid_after(model.not_valid_after_utc)
    for each in model.extensions:
        value = each.value
        if isinstance(value, x509.SubjectKeyIdentifier):
            value = x509.SubjectKeyIdentifier.from_public_key(own.public_key())
        builder = builder.add_extension(value, critical=each.critical)
    return builder.sign(own, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class CertManager:
    """Acts for one namespace."""

    def __init__(self, api: Api, *, namespace: str) -> None:
        self._api = api
        self._ours = f"/apis/{GROUP}/v1/namespaces/{namespace}"
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"

    def act(self) -> None:
        """Issue what is wanted and not there, authorities first; then tell the API server whom to trust."""
        wanted = self._api.items(f"{self._ours}/certificates")
        for each in sorted(wanted, key=lambda one: not one["spec"].get("isCA", False)):
            if self._api.find(f"{self._secrets}/{each['spec']['secretName']}") is None:
                self.renew(each["metadata"]["name"])
        self.inject()

    def renew(self, name: str) -> None:
        """Issue it anew, whatever is there, with a key of its own."""
        spec = self._api.get(f"{self._ours}/certificates/{name}")["spec"]
        issuer = self._api.get(f"{self._ours}/issuers/{spec['issuerRef']['name']}")["spec"]
        trusted, pair = self._issued(spec, issuer)
        data = {"ca.crt": trusted, "tls.crt": pair.certificate, "tls.key": pair.key}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": spec["secretName"], "annotations": {_WHOSE: name}},
            "data": {file: base64.b64encode(text).decode() for file, text in data.items()},
        }
        try:
            self._api.post(self._secrets, secret)
        except ApiError:
            self._api.put(f"{self._secrets}/{spec['secretName']}", secret)

    def inject(self) -> None:
        """What a configuration names by its annotation, and no other certificate's, is its webhooks' trust."""
        for kind in ("mutating", "validating"):
            for found in self._api.items(_WEBHOOKS.format(kind)):
                namespace, _, name = found["metadata"].get("annotations", {}).get(INJECT, "").partition("/")
                if not self._ours.endswith(f"/{namespace}"):
                    continue
                certificate = self._api.get(f"{self._ours}/certificates/{name}")
                trusted = self._api.get(f"{self._secrets}/{certificate['spec']['secretName']}")["data"]["ca.crt"]
                for each in found["webhooks"]:
                    each["clientConfig"]["caBundle"] = trusted
                path = f"{_WEBHOOKS.format(kind)}/{found['metadata']['name']}"
                self._api.patch(path, {"webhooks": found["webhooks"]})

    def files(self, secret: str) -> dict[str, bytes]:
        """What a Secret holds, as a volume shows it."""
        data: dict[str, str] = self._api.get(f"{self._secrets}/{secret}")["data"]
        return {name: base64.b64decode(text) for name, text in data.items()}

    def _authority(self, spec: Json, *, now: float) -> Pair:
        """With the key that there is, where the spec keeps it."""
        made = make_authority(name=spec["commonName"], now=now, life=100 * DAY)
        there = self._api.find(f"{self._secrets}/{spec['secretName']}")
        if there is None or spec.get("privateKey", {}).get("rotationPolicy", "Always") == "Always":
            return made
        key = self.files(spec["secretName"])["tls.key"]
        return Pair(certificate=_signed_by(key, like=made.certificate), key=key)

    def _issued(self, spec: Json, issuer: Json) -> tuple[bytes, Pair]:
        now, name = time.time(), spec["commonName"]
        if spec.get("isCA"):
            assert "selfSigned" in issuer, issuer
            made = self._authority(spec, now=now)
            return made.certificate, made
        files = self.files(issuer["ca"]["secretName"])
        authority = Pair(certificate=files["tls.crt"], key=files["tls.key"])
        uses: list[Any] = [_USES[use] for use in spec["usages"] if use in _USES]
        return authority.certificate, issue(
            authority, name=name, hosts=spec.get("dnsNames", []), uses=uses, now=now, life=90 * DAY
        )
