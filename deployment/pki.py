"""Certificates and node keys. What exists is never overwritten: a second call only adds what is missing."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deployment.layout import Layout
from deployment.names import certificate_name

DEFAULT_NAMES = ("superlink", "localhost", "127.0.0.1")
_CA_DAYS, _SERVER_DAYS = 3650, 825


def initialise(layout: Layout, *, nodes: int, names: Sequence[str] = ()) -> list[Path]:
    """Make certificates, `nodes` node keys and the executor's secret; returns the files that were made.

    Args:
        names: DNS names and addresses of the SuperLink beside `DEFAULT_NAMES`; they go into its certificate.

    Raises:
        ValueError: one of `names` is none, an existing certificate lacks one, or half of a pair is missing.
    """
    wanted = tuple(dict.fromkeys((*DEFAULT_NAMES, *map(certificate_name, names))))
    made: list[Path] = []
    layout.keys.mkdir(parents=True, exist_ok=True)
    layout.ca.parent.mkdir(parents=True, exist_ok=True)
    if not layout.ca.exists():
        _make_authority(layout)
        made += [layout.ca_key, layout.ca]
    if _pair_is_missing(layout.server_key, layout.server_certificate):
        _make_server(layout, wanted)
        made += [layout.server_key, layout.server_certificate]
    else:
        _check_names(layout.server_certificate, wanted)
    for node in range(nodes):
        private, public = layout.node_key(node), layout.node_key(node).with_suffix(".pub")
        if not public.exists():  # a private half that is gone is with its holder, where it belongs
            if private.exists():
                raise ValueError(f"{public} must be there with {private.name}. Restore it, or remove {private}.")
            _make_node_key(private, public)
            made += [private, public]
    if not layout.secret.exists():
        _write(layout.secret, secrets.token_hex(32).encode(), 0o600)
        made.append(layout.secret)
    return made


def certificate_names(path: Path) -> tuple[str, ...]:
    """DNS names and addresses that a certificate is for."""
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return tuple(str(entry.value) for entry in extension)


def _pair_is_missing(private: Path, public: Path) -> bool:
    if private.exists() != public.exists():
        there, gone = (private, public) if private.exists() else (public, private)
        raise ValueError(f"{gone} must be there with {there.name}. Restore it, or remove {there} to make both anew.")
    return not private.exists()


def _check_names(path: Path, wanted: Sequence[str]) -> None:
    missing = set(wanted) - set(certificate_names(path))
    if missing:
        raise ValueError(
            f"{path} must be for {', '.join(wanted)}; it lacks {', '.join(sorted(missing))}. Remove it and its key to make a "
            "new one from the same authority: clients keep trusting it."
        )


def _make_authority(layout: Layout) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "papfl deployment authority")])
    builder = (
        _builder(name, name, key.public_key(), _CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    _write(layout.ca_key, _private_pem(key), 0o600)
    _write(layout.ca, builder.sign(key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM), 0o644)


def _make_server(layout: Layout, names: Sequence[str]) -> None:
    if not layout.ca_key.exists():
        raise ValueError(
            f"{layout.ca_key} must be there to sign the server's certificate. Received none (kept offline?)."
        )
    authority = x509.load_pem_x509_certificate(layout.ca.read_bytes())
    authority_key = serialization.load_pem_private_key(layout.ca_key.read_bytes(), None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "papfl superlink")])
    builder = (
        _builder(subject, authority.subject, key.public_key(), _SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    _write(layout.server_key, _private_pem(key), 0o600)
    signed = builder.sign(authority_key, hashes.SHA384())
    _write(layout.server_certificate, signed.public_bytes(serialization.Encoding.PEM), 0o644)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks of other machines
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _make_node_key(private: Path, public: Path) -> None:
    """ECDSA on P-384 in OpenSSH's format, as `ssh-keygen -t ecdsa -b 384` makes them."""
    key = ec.generate_private_key(ec.SECP384R1())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    _write(private, key.private_bytes(*form), 0o600)
    text = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(public, text + f" {private.name}\n".encode(), 0o644)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """Never over an existing file, never readable by others in between."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
