"""What a failed TLS handshake means, and what to do about it."""

from __future__ import annotations

import ssl

_TRUST = "name the certificate's CA in power.ca_file, or set power.verify_tls: false"
_RENEW = "renew the certificate, or set power.verify_tls: false"
_NAME = "write the name that the certificate holds in power.url, or set power.verify_tls: false"

# Numbers of OpenSSL's X509_V_ERR_…, from its x509_vfy.h.
_MEANINGS = {
    9: ("the certificate is not valid yet", "check the clocks of both machines"),
    10: ("the certificate has expired", _RENEW),
    18: ("the certificate is self-signed and not trusted", _TRUST),
    19: ("the certificate's chain ends in a self-signed one that is not trusted", _TRUST),
    20: ("the certificate is signed by a CA that is not trusted", _TRUST),
    21: ("the certificate is signed by a CA that is not trusted", _TRUST),
    23: ("the certificate was revoked", _RENEW),
    62: ("the certificate is for another host name", _NAME),
    64: ("the certificate is for another address", _NAME),
}


def tls_failure(error: Exception) -> tuple[str, str]:
    """What went wrong in the handshake and the remedy; nothing was sent to the server."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        unknown = (f"the certificate is not accepted ({cause.verify_message})", _TRUST)
        what, remedy = _MEANINGS.get(cause.verify_code, unknown)
        return f"{what}; no credentials were sent", remedy
    if isinstance(cause, ssl.SSLError) and cause.reason:
        return f"the TLS handshake failed ({cause.reason})", "check that power.url speaks https with TLS 1.2 or newer"
    return "the TLS handshake failed", "check that power.url speaks https with TLS 1.2 or newer"
