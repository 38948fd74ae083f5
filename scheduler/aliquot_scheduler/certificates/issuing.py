"""Make an authority, and certificates that it signs.

Nothing here reads a clock; keys and serial numbers come from the system's own source of chance, as they must.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from aliquot_core.errors import ClusterError

# Clocks of other machines may be so far behind ours: two of them each so far off as `keeper` still lets one write.
SKEW = timedelta(minutes=10)
DAY = 86_400.0


class CertificateError(ClusterError):
    """Bytes that are no certificate or key."""


class Use(Enum):
    """What a certificate is good for; TLS refuses it for anything else."""

    SERVER = ExtendedKeyUsageOID.SERVER_AUTH
    CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What we look at in a certificate."""

    name: str
    hosts: frozenset[str]
    begins: float
    ends: float


def make_authority(*, name: str, now: float, life: float) -> Pair:
    """An authority that trusts itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(name=name, key=key, now=now, ends=now + life)
        .issuer_name(_named(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_signs(), critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Pair, *, name: str, hosts: Sequence[str], uses: Sequence[Use], now: float, life: float) -> Pair:
    """A certificate of this authority; it ends no later than the authority does."""
    signer, signing_key = _read(authority.certificate), _read_key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + life, signer.not_valid_after_utc.timestamp())
    builder = (
        _builder(name=name, key=key, now=now, ends=ends)
        .issuer_name(signer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use.value for use in uses]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), critical=False)
    return _pair(builder.sign(signing_key, hashes.SHA256()), key)


def read_facts(certificate: bytes) -> Facts:
    """What a certificate says; `CertificateError` if it is none."""
    read = _read(certificate)
    try:
        listed = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        listed = x509.SubjectAlternativeName([])
    hosts = [*listed.get_values_for_type(x509.DNSName), *map(str, listed.get_values_for_type(x509.IPAddress))]
    names = read.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return Facts(
        name=str(names[0].value) if names else "",
        hosts=frozenset(hosts),
        begins=read.not_valid_before_utc.timestamp(),
        ends=read.not_valid_after_utc.timestamp(),
    )


def belongs(pair: Pair, *, authority: bytes) -> bool:
    """Whether this key is the certificate's, and this authority signed it."""
    if not key_of(pair.certificate, pair.key):
        return False
    try:
        _read(pair.certificate).verify_directly_issued_by(_read(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def key_of(certificate: bytes, key: bytes) -> bool:
    """Whether this key is the certificate's."""
    return _read(certificate).public_key() == _read_key(key).public_key()


def split(bundle: bytes) -> list[bytes]:
    """The certificates of a bundle, one by one."""
    try:
        return [_pem(one) for one in x509.load_pem_x509_certificates(bundle)]
    except ValueError as error:
        raise CertificateError(f"is no bundle of certificates: {error}") from error


def _builder(*, name: str, key: ec.EllipticCurvePrivateKey, now: float, ends: float) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now, UTC) - SKEW)
        .not_valid_after(datetime.fromtimestamp(ends, UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _signs() -> x509.KeyUsage:
    return x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(one: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(one))
    except ValueError:
        return x509.DNSName(one)


def _read(certificate: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate)
    except ValueError as error:
        raise CertificateError(f"is no certificate: {error}") from error


def _read_key(key: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        read = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"is no key: {error}") from error
    if not isinstance(read, ec.EllipticCurvePrivateKey):
        raise CertificateError("is no key of an elliptic curve, as ours are")
    return read


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    plain = serialization.NoEncryption()
    return Pair(
        certificate=_pem(certificate),
        key=key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
