"""A BMC that does not exist: Redfish over TLS, with every fault that a real one is known for.

The fixture ``fake_bmc`` gives a :class:`FakeBmc`; it needs the package ``trustme`` (``pytest-tokenwatt[testing]``).
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from pytest_tokenwatt.errors import UsageError

Document = dict[str, Any]
Certificate = Literal["valid", "expired", "other_host"]
_ROOT = "/redfish/v1"
_HOST = "127.0.0.1"
# A handler that waits (for a delay of hours, say) must not hold up the end of a test.
_LONGEST_WAIT_S = 30.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class BmcRequest:
    """One request that arrived: its path, and the user whose credentials came with it (``None``: without any)."""

    path: str
    username: str | None


@dataclass(frozen=True, slots=True)
class _Fault:
    """What happens instead of the resource: a status (with headers), other bytes, a wait before or within the body."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    delay_s: float = 0.0
    trickle_s: float = 0.0


class FakeBmc:
    """A Redfish service on a port of this machine, in threads of this process.

    It starts with one chassis ``1`` of type RackMount whose ``Power.PowerControl`` says 500 W, and asks for the
    credentials ``username`` and ``password``. Whatever is set takes effect with the next request; paths may be given
    in full or from below ``/redfish/v1``. ``url`` is its address and ``ca_file`` the CA of its certificate, which is
    in no trust store.
    """

    def __init__(self, folder: Path) -> None:
        self.username = "operator"
        self.password = "a-secret-of-the-bmc"
        self.require_credentials = True
        self.ca_file = folder / "bmc-ca.pem"
        self._contexts = _certificates(self.ca_file)
        self._certificate: Certificate = "valid"
        self._documents: dict[str, Document] = {}
        self._faults: dict[str, _Fault] = {}
        self._requests: list[BmcRequest] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(self)
        self.url = f"https://{_HOST}:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="fake-bmc", daemon=True
        )
        self.add_chassis("1")
        self.set_power_control(500.0)
        self._thread.start()

    def __repr__(self) -> str:
        return f"FakeBmc({self.url!r})"

    @property
    def requests(self) -> tuple[BmcRequest, ...]:
        """All requests so far, in order."""
        with self._lock:
            return tuple(self._requests)

    @property
    def credentials_seen(self) -> bool:
        """Whether any credentials ever arrived here."""
        return any(request.username is not None for request in self.requests)

    def set(self, path: str, document: Document) -> None:
        """Serve a document at a path."""
        full = _full(path)
        self._documents[full] = {"@odata.id": full, **document}

    def remove(self, path: str) -> None:
        """No longer serve a document: 404."""
        del self._documents[_full(path)]

    def add_chassis(self, name: str, kind: str = "RackMount", **properties: Any) -> None:
        """One more chassis, without power as yet. ``kind`` is Redfish's ``ChassisType``."""
        self.set(f"Chassis/{name}", {"Id": name, "Name": f"Chassis {name}", "ChassisType": kind, **properties})
        members = [path for path in self._documents if path.startswith(f"{_ROOT}/Chassis/") and path.count("/") == 4]
        self.set("Chassis", {"Members": [{"@odata.id": path} for path in members]})

    def set_power_control(self, *entries: object, chassis: str = "1", **power: Any) -> None:
        """``Power.PowerControl`` of a chassis: values of ``PowerConsumedWatts``, or whole entries as mappings.

        ``power`` are further properties of the resource, such as ``Oem``.
        """
        listed = [
            entry if isinstance(entry, dict) else {"MemberId": str(position), "PowerConsumedWatts": entry}
            for position, entry in enumerate(entries)
        ]
        self._hang_on(chassis, "Power", {"PowerControl": listed, **power})

    def set_environment(self, watts: object, chassis: str = "1", **metrics: Any) -> None:
        """``EnvironmentMetrics.PowerWatts.Reading`` of a chassis, and further properties of the resource."""
        self._hang_on(chassis, "EnvironmentMetrics", {"PowerWatts": {"Reading": watts}, **metrics})

    def set_supplies(self, *watts: object, states: Sequence[str] = (), chassis: str = "1") -> None:
        """A ``PowerSubsystem`` whose supplies have these ``InputPowerWatts``, and ``Status.State`` (Enabled)."""
        base = f"Chassis/{chassis}/PowerSubsystem"
        self._hang_on(chassis, "PowerSubsystem", {"PowerSupplies": {"@odata.id": _full(f"{base}/PowerSupplies")}})
        paths = [f"{base}/PowerSupplies/{position}" for position in range(len(watts))]
        self.set(f"{base}/PowerSupplies", {"Members": [{"@odata.id": _full(path)} for path in paths]})
        for position, path in enumerate(paths):
            state = states[position] if position < len(states) else "Enabled"
            self.set(path, {"Status": {"State": state}, "Metrics": {"@odata.id": _full(f"{path}/Metrics")}})
            self.set(f"{path}/Metrics", {"InputPowerWatts": {"Reading": watts[position]}})

    def set_sensors(self, chassis: str = "1", **sensors: Document) -> None:
        """A collection ``Sensors`` of a chassis, by sensor id."""
        base = f"Chassis/{chassis}/Sensors"
        self._hang_on(chassis, "Sensors", {"Members": [{"@odata.id": _full(f"{base}/{name}")} for name in sensors]})
        for name, sensor in sensors.items():
            self.set(f"{base}/{name}", {"Id": name, **sensor})

    def drop(self, resource: str, chassis: str = "1") -> None:
        """A chassis without a resource, such as ``Power``."""
        del self._documents[_full(f"Chassis/{chassis}")][resource]
        self.remove(f"Chassis/{chassis}/{resource}")

    def answer(self, path: str, status: int) -> None:
        """Answer with this status instead of the resource."""
        self._faults[_full(path)] = _Fault(status=status)

    def redirect(self, path: str, target: str) -> None:
        """Redirect (302) to another address."""
        self._faults[_full(path)] = _Fault(status=302, headers={"Location": target})

    def say(self, path: str, text: str) -> None:
        """Answer 200 with this text, which may be no JSON."""
        self._faults[_full(path)] = _Fault(body=text.encode())

    def delay(self, path: str, seconds: float) -> None:
        """Answer only after a while."""
        self._faults[_full(path)] = _Fault(delay_s=seconds)

    def trickle(self, path: str, seconds: float) -> None:
        """Start the answer at once and send one byte of it every ``seconds``."""
        self._faults[_full(path)] = _Fault(trickle_s=seconds)

    def heal(self, path: str) -> None:
        """Undo the fault of a path."""
        del self._faults[_full(path)]

    def use_certificate(self, certificate: Certificate) -> None:
        """The certificate of new connections: ``valid``, ``expired``, or that of ``other_host``."""
        self._certificate = certificate

    def close(self) -> None:
        """End all threads and free the port."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _hang_on(self, chassis: str, resource: str, document: Document) -> None:
        path = f"Chassis/{chassis}/{resource}"
        self._documents[_full(f"Chassis/{chassis}")][resource] = {"@odata.id": _full(path)}
        self.set(path, document)

    def _context(self) -> ssl.SSLContext:
        return self._contexts[self._certificate]

    def _reply(self, path: str, authorization: str | None) -> tuple[_Fault, bytes]:
        """What to do for a request, and the body that goes with it."""
        user, allowed = self._check(authorization)
        full = _full(path)
        with self._lock:
            self._requests.append(BmcRequest(full, user))
        fault = self._faults.get(full, _Fault())
        if self.require_credentials and not allowed and fault.status == 200:
            fault = _Fault(status=401)
        document = self._documents.get(full)
        if document is None and fault.status == 200 and fault.body is None:
            fault = _Fault(status=404)
        body = fault.body if fault.body is not None else json.dumps(document or {"error": {}}).encode()
        return fault, body

    def _check(self, authorization: str | None) -> tuple[str | None, bool]:
        scheme, _, encoded = (authorization or "").partition(" ")
        if scheme != "Basic":
            return None, False
        username, _, secret = base64.b64decode(encoded).decode().partition(":")
        return username, (username, secret) == (self.username, self.password)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Its threads may be waiting in a delay.
    block_on_close = False

    def __init__(self, bmc: FakeBmc) -> None:
        self.bmc = bmc
        super().__init__((_HOST, 0), _Handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # The handshake is done here, in the connection's own thread: a client that stalls in it delays no other.
        try:
            request.settimeout(_LONGEST_WAIT_S)
            secure = self.bmc._context().wrap_socket(request, server_side=True)
        except OSError:
            # A client that does not trust the certificate.
            self.shutdown_request(request)
            return
        super().process_request_thread(secure, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        bmc = self.server.bmc
        fault, body = bmc._reply(self.path, self.headers.get("Authorization"))
        if bmc._closing.wait(min(fault.delay_s, _LONGEST_WAIT_S)):
            return
        self.send_response(fault.status)
        for name, value in fault.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):
            self._send(body, fault.trickle_s)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are kept in ``FakeBmc.requests``; standard error stays empty."""

    def _send(self, body: bytes, trickle_s: float) -> None:
        if not trickle_s:
            self.wfile.write(body)
            return
        for place in range(len(body)):
            self.wfile.write(body[place : place + 1])
            if self.server.bmc._closing.wait(trickle_s):
                return


def _full(path: str) -> str:
    bare = path.rstrip("/")
    return bare if bare.startswith(_ROOT) else f"{_ROOT}/{bare.lstrip('/')}"


def _certificates(ca_file: Path) -> dict[Certificate, ssl.SSLContext]:
    """Server contexts with certificates of one CA, which is written to ``ca_file``."""
    try:
        import trustme
    except ImportError:
        what = "the fake BMC needs the package trustme for its certificates"
        raise UsageError(what, remedy="pip install 'pytest-tokenwatt[testing]'") from None
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(ca_file))
    yesterday = datetime.now(UTC) - timedelta(days=1)
    issued = {
        "valid": authority.issue_cert(_HOST),
        "expired": authority.issue_cert(_HOST, not_before=yesterday - timedelta(days=1), not_after=yesterday),
        "other_host": authority.issue_cert("bmc.example"),
    }
    contexts: dict[Any, ssl.SSLContext] = {}
    for name, certificate in issued.items():
        contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(contexts[name])
    return contexts


@pytest.fixture
def fake_bmc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeBmc]:
    """A BMC that speaks Redfish over TLS; see :class:`FakeBmc`."""
    bmc = FakeBmc(tmp_path_factory.mktemp("bmc"))
    try:
        yield bmc
    finally:
        bmc.close()
