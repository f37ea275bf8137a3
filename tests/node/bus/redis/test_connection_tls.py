"""`rediss://` checks the host name with the system's certificate authorities."""

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusUnavailableError
from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.bus.redis.store import RedisStore
from tests.node.bus.redis.streams import S, event
from tests.node.bus.stores import opened
from tests.node.network import task_scope
from tests.redis_server import HOST, RedisServer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a key and a self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "redis")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture(scope="module")
def tls_url(redis_server: RedisServer, certificate: Path) -> Iterator[str]:
    """Yield the URL of a separate redis-server that uses TLS."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    options = ("--tls-port", str(port), "--tls-auth-clients", "no")
    files = ("--tls-cert-file", str(certificate), "--tls-key-file", str(certificate))
    with RedisServer(*options, *files, "--tls-ca-cert-file", str(certificate)):
        yield f"rediss://{HOST}:{port}"


async def test_with_a_certificate_that_is_known(
    tls_url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with opened(RedisStore(tls_url, BusConfig(timeout=5))) as store:
        await store.publish([event(1)], durable=True)
        assert len(await store.history(S, BEFORE_ALL, None, 1, 0)) >= 1
    async with task_scope() as backend:
        with pytest.raises(BusUnavailableError):
            await RedisStore(tls_url.replace(HOST, "localhost"), BusConfig()).open(backend)


async def test_server_that_disconnects_during_the_handshake(anyio_backend: str) -> None:
    async def go(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()

    async with (
        await anyio.create_tcp_listener(local_host=HOST) as listener,
        task_scope() as backend,
    ):
        port = listener.extra_attributes[SocketAttribute.local_port]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, go)
            with pytest.raises(BusUnavailableError):
                await RedisStore(f"rediss://{HOST}:{port}", BusConfig(timeout=5)).open(backend)
            tasks.cancel_scope.cancel()


async def test_with_an_unknown_certificate(tls_url: str, anyio_backend: str) -> None:
    async with task_scope() as backend:
        with pytest.raises(BusUnavailableError):
            await RedisStore(tls_url, BusConfig(timeout=5)).open(backend)
