"""Access to the page: browsers on this machine, or anyone with the token."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from flask import Flask, Response, abort, redirect, request
from flask.typing import ResponseReturnValue

COOKIE = "quaver_token"
_LOCAL = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Return True if an address can only be reached from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def guard(server: Flask, host: str, token: str, scripts: Sequence[str]) -> None:
    """Refuse foreign hosts, foreign origins and, if there is a token, requests without it.

    Otherwise a page of another site could point its own name at this machine and read the runs.
    """

    @server.before_request
    def check() -> ResponseReturnValue | None:
        requested_host = _host(f"//{request.host}")
        if not _is_ours(requested_host, host):
            abort(403, "The page is not served under this address.")
        origin = request.headers.get("Origin")
        if origin and urlsplit(origin).netloc != request.host:
            abort(403, "Requests from another site are refused.")
        if not token:
            return None
        sent_token = request.args.get("token")
        if sent_token is not None and _same(sent_token, token) and request.method == "GET":
            answer = redirect("/")
            answer.set_cookie(COOKIE, token, httponly=True, samesite="Strict")
            return answer
        if not _same(request.cookies.get(COOKIE, ""), token):
            abort(403, "Open the address that `quaver insights` printed: it holds the token.")
        return None

    @server.after_request
    def protect(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = (
            f"default-src 'self'; script-src 'self' {' '.join(scripts)}; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'"
        )
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cache-Control"] = response.headers.get("Cache-Control") or "no-store"
        return response


def _host(netloc: str) -> str:
    try:
        return urlsplit(netloc).hostname or ""
    except ValueError:
        return ""


def _is_ours(requested_host: str, host: str) -> bool:
    """Return True if a browser asked for this machine, by a name that only this machine can have."""
    if requested_host in _LOCAL or requested_host == host:
        return True
    if is_loopback(host):
        return False
    try:
        ipaddress.ip_address(requested_host)
    except ValueError:
        return requested_host == socket.gethostname().lower()
    return True


def _same(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(), second.encode())
