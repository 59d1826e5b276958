"""A small HTTP server that shows pages to this machine's browser, and to nobody whom a foreign page sends here.

It answers GET and HEAD for the addresses of its pages and nothing else; no address becomes a path. A page of another
site can make a browser ask a server on this machine under that site's name (DNS rebinding), so the Host header must
be one of ours.
"""

import ipaddress
import logging
import re
import socket
import socketserver
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from evo.report.watching import Served, Watch

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_OWN_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]\s]+)(?::\d{1,5})?", re.ASCII | re.IGNORECASE)
_PATIENCE_S = 30.0  # for a browser that connects and says nothing
_FIXED_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_NOTHING = "default-src 'none'"


class PageServer(socketserver.ThreadingTCPServer):
    """Serves the pages of a watch, and tells `complain` in a line of one that cannot be made.

    Raises OSError where the address cannot be had.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # a browser with many pages open asks for all of them at once

    def __init__(
        self, watch: Watch, complain: Callable[[str], object], *, host: str = LOOPBACK, port: int = 0
    ) -> None:
        host = host.strip("[]")  # as an IPv6 address stands in a URL
        self.address_family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self.watch = watch
        self.complain = complain
        self.names = host_names(host)
        super().__init__((str(address[0]), port), _Handler)
        self._host = f"[{host}]" if ":" in host else host

    @property
    def url(self) -> str:
        """Where a browser finds the pages."""
        return f"http://{self._host}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002  # socketserver's
        """A browser that went away is no news, and an error of ours belongs into the log."""
        logger.warning("a request from %s failed", client_address, exc_info=True)


def host_names(host: str) -> frozenset[str]:
    """What a Host header may name; "" among them stands for every IP address, where the server listens on all of them.

    Rebinding needs a name that its owner can turn elsewhere; an address is none.
    """
    bare = host.lower()
    if bare in ("0.0.0.0", "::"):  # noqa: S104  # compared, not bound
        return _OWN_NAMES | {"", socket.gethostname().lower()}
    return _OWN_NAMES | {f"[{bare}]" if ":" in bare else bare}


def is_ours(header: str | None, names: frozenset[str]) -> bool:
    """Whether a request with this Host header was meant for a server of these names."""
    found = _HOST.fullmatch(header or "")
    if found is None:
        return False
    name = found["name"].lower()
    return name in names or ("" in names and _is_address(name.strip("[]")))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version = "evo"
    sys_version = ""
    timeout = _PATIENCE_S

    def parse_request(self) -> bool:
        """Whether the request may be answered; the refusal is sent where it may not."""
        if not super().parse_request():
            return False
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not is_ours(hosts[0], self.server.names):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return False
        if self.command not in ("GET", "HEAD"):
            self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)
            return False
        return True

    def do_GET(self) -> None:  # http.server's name
        """The page, or 304 where the browser has it."""
        try:
            page = self.server.watch.page(self.path.partition("?")[0])
        except Exception as error:  # noqa: BLE001  # a fault of ours; the other pages are still good
            self._refuse_with(error)
            return
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        elif self.headers.get("If-None-Match") == page.tag:
            self._send(HTTPStatus.NOT_MODIFIED, None, page)
        else:
            self._send(HTTPStatus.OK, "text/html", page)

    do_HEAD = do_GET  # noqa: N815  # http.server's name

    def _refuse_with(self, error: Exception) -> None:
        said = " ".join(f"the page cannot be made: {type(error).__name__}: {error}".split())
        logger.error("%s", said, exc_info=error)
        self.server.complain(said)
        self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, said)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """One line of text; http.server's own messages repeat what was asked for, and are left out."""
        told = f": {message}" if message and code == HTTPStatus.INTERNAL_SERVER_ERROR else ""
        text = f"{code} {HTTPStatus(code).phrase}{told}\n".encode("utf-8", "replace")
        self.close_connection = True
        self._send(HTTPStatus(code), "text/plain", Served(body=text, policy=_NOTHING, tag=""))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
        """Into the log, not onto the terminal."""
        logger.debug(format, *args)

    def _send(self, status: HTTPStatus, kind: str | None, page: Served) -> None:
        self.send_response(status)
        for name, value in _FIXED_HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", f"{page.policy}; frame-ancestors 'none'")
        if page.tag:
            self.send_header("ETag", page.tag)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if kind is not None:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if kind is not None and self.command != "HEAD":
            self.wfile.write(page.body)
