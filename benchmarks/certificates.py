"""A certificate authority with one certificate each for the baseline's server and client.

P-256, the usual choice for TLS; made for one run, kept in a new directory.
"""

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_NAMES = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


def write_certificates(where: Path) -> None:
    """Write `ca`, `server` and `client`, each as `.key` and `.crt`."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    issuer = _name("benchmark authority")
    ca = _builder(issuer, issuer, ca_key)
    ca = ca.add_extension(x509.BasicConstraints(True, None), critical=True)
    ca = ca.add_extension(
        x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True
    )
    ca = ca.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False
    )
    _write(where, "ca", ca_key, ca.sign(ca_key, hashes.SHA256()))
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    for stem in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = _builder(_name(stem), issuer, key)
        leaf = leaf.add_extension(x509.SubjectAlternativeName(_NAMES), critical=False)
        leaf = leaf.add_extension(x509.BasicConstraints(False, None), critical=True)
        leaf = leaf.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        leaf = leaf.add_extension(above, critical=False)
        _write(where, stem, key, leaf.sign(ca_key, hashes.SHA256()))


def server_context(where: Path) -> ssl.SSLContext:
    """TLS 1.3; clients have to show a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(where / "server.crt", where / "server.key")
    context.load_verify_locations(where / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(where: Path) -> ssl.SSLContext:
    """TLS 1.3, with a certificate of our own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(where / "ca.crt")
    context.load_cert_chain(where / "client.crt", where / "client.key")
    return context


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + 30 * day)
    )


def _write(
    where: Path, stem: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> None:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (where / f"{stem}.key").write_bytes(private)
    (where / f"{stem}.crt").write_bytes(certificate.public_bytes(pem))
