"""Who may see the page: browsers of this machine, or whoever has the token."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, Response, abort, redirect, request

COOKIE = "quaver_token"
_LOCAL = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def guard(server: Flask, host: str, token: str, scripts: Sequence[str]) -> None:
    """Refuse foreign hosts, foreign origins and, where there is a token, whoever does not have it.

    A page of another site could otherwise point its own name at this machine and read what is shown here.
    """

    @server.before_request
    def check() -> Any:
        named = _host(f"//{request.host}")
        if not _is_ours(named, host):
            abort(403, "This address is not one of this page.")
        origin = request.headers.get("Origin")
        if origin and urlsplit(origin).netloc != request.host:
            abort(403, "Another site may not ask this page.")
        if not token:
            return None
        given = request.args.get("token")
        if given is not None and _same(given, token) and request.method == "GET":
            answer = redirect("/")
            answer.set_cookie(COOKIE, token, httponly=True, samesite="Strict")
            return answer
        if not _same(request.cookies.get(COOKIE, ""), token):
            abort(403, "Open the page with the address that `quaver insights` printed: it holds the token.")
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


def _is_ours(named: str, host: str) -> bool:
    """Whether a browser asked for this machine, by a name that nobody else can give it."""
    if named in _LOCAL or named == host:
        return True
    if is_loopback(host):
        return False
    try:
        ipaddress.ip_address(named)
    except ValueError:
        return named == socket.gethostname().lower()
    return True


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
