"""What the server answers, and whom it refuses."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pages import inline_hash
from small_runs import write_run

from evo.report.server import PageServer, host_names, is_ours
from evo.report.watching import Served, Watch
from population.archive import open_archive
from population.records import SpendRecord
from population.run_folder import RunFolder


@contextmanager
def serving(
    runs: dict[str, RunFolder], watch: Watch | None = None, complain: Callable[[str], None] = pytest.fail
) -> Iterator[PageServer]:
    with PageServer(watch or Watch(runs, clock=lambda: 0.0), complain) as server:  # so no page rests
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return write_run(tmp_path_factory.mktemp("runs"), "one", [0.5, 0.75])


@pytest.fixture(scope="module")
def server(run: RunFolder) -> Iterator[PageServer]:
    with serving({"one": run}) as server:
        yield server


def ask(
    server: PageServer, path: str = "/", method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def raw(server: PageServer, request: bytes) -> bytes:
    with socket.create_connection(server.server_address[:2], timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_page_with_headers_that_shut_everything_else_out(server: PageServer) -> None:
    response, body = ask(server)
    html = body.decode()
    assert (response.status, response.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert response.headers["Content-Length"] == str(len(body))
    assert response.headers["Content-Security-Policy"] == (
        f"default-src 'none'; style-src {inline_hash(html, 'style')}; script-src {inline_hash(html, 'script')}; "
        "img-src data:; base-uri 'none'; form-action 'none'; connect-src 'self'; frame-ancestors 'none'"
    )
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["Server"].strip() == "evo"
    assert "0.7500 ×" in html


def test_many_browsers_may_ask_at_once(server: PageServer) -> None:
    assert server.request_queue_size == 128


def test_what_the_browser_has_is_not_sent_again(server: PageServer) -> None:
    tag = ask(server)[0].headers["ETag"]
    response, body = ask(server, If_None_Match=tag)
    assert (response.status, body) == (304, b"")
    assert ask(server, If_None_Match='"other"')[0].status == 200


def test_head_is_get_without_the_body(server: PageServer) -> None:
    whole, _ = ask(server)
    response, body = ask(server, method="HEAD")
    assert (response.status, body) == (200, b"")
    assert response.headers["Content-Length"] == whole.headers["Content-Length"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "get", "BREW"])
def test_only_get_and_head_are_allowed(server: PageServer, method: str) -> None:
    response, body = ask(server, method=method)
    assert (response.status, response.headers["Allow"], body) == (405, "GET, HEAD", b"405 Method Not Allowed\n")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8765", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.2", "0.0.0.0",
     "localhost:8765@evil.example", "localhost, evil.example", "[::1].evil", "localhost:80:80", "", " ", "[::2]"],
)  # fmt: skip
def test_another_hosts_name_is_refused(server: PageServer, host: str) -> None:
    response, body = ask(server, Host=host)
    assert (response.status, body) == (421, b"421 Misdirected Request\n")
    assert response.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8765", "[::1]", "[::1]:8765"])
def test_this_machines_names_are_taken(server: PageServer, host: str) -> None:
    assert ask(server, Host=host)[0].status == 200


@pytest.mark.parametrize(
    "request_",
    [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"GET /\r\n\r\n"],
)
def test_none_or_two_host_headers_are_refused(server: PageServer, request_: bytes) -> None:
    answer = raw(server, request_)
    assert b"421 Misdirected Request" in answer
    assert b"0.7500" not in answer


def test_a_request_that_is_none_gets_a_line(server: PageServer) -> None:
    assert raw(server, b"\x16\x03\x01 hello there you\r\n\r\n").endswith(b"400 Bad Request\n")
    assert b"414 " in raw(server, b"GET /" + b"a" * 70_000)


@pytest.mark.parametrize(
    "path",
    ["/../../../../etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd", "/result.json", "/archive.sqlite",
     "/favicon.ico", "/%00", "/run/1", "http://localhost/"],
)  # fmt: skip
def test_no_address_becomes_a_path(server: PageServer, path: str) -> None:
    response, body = ask(server, path)
    assert (response.status, body) == (404, b"404 Not Found\n")


def test_a_query_is_passed_over(server: PageServer) -> None:
    assert ask(server, "/?again=1")[0].status == 200


def test_a_told_host_adds_its_name_and_nothing_else() -> None:
    names = host_names("evo.lab")
    assert [is_ours(host, names) for host in ("evo.lab", "EVO.lab:80", "localhost", "lab", "evil.example")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert is_ours("[fe80::1]:80", host_names("fe80::1"))
    assert not is_ours("fe80::1", host_names("fe80::1"))


def test_a_server_on_all_addresses_takes_addresses_and_its_own_name() -> None:
    for everywhere in ("0.0.0.0", "::"):
        names = host_names(everywhere)
        assert is_ours("192.0.2.7:8765", names)
        assert is_ours("[2001:db8::1]", names)
        assert is_ours(socket.gethostname(), names)
        assert not is_ours("evil.example", names)
        assert not is_ours("1.2.3.4.evil.example", names)


def test_serving_writes_nothing_and_locks_nobody_out(tmp_path: Path) -> None:
    run = write_run(tmp_path, "one", [0.5])
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with serving({"one": run}) as server:
        assert ask(server)[0].status == 200
        assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
        with open_archive(run) as archive:  # as a search that goes on
            archive.record_spend(SpendRecord(key="test", kind="cost_usd", amount=4.25))
            assert "4.2500" in ask(server)[1].decode()


def test_several_runs_side_by_side(tmp_path: Path) -> None:
    runs = {name: write_run(tmp_path, name, [0.5, best]) for name, best in (("a", 0.6), ("b", 0.7))}
    with serving(runs) as server:
        overview = ask(server)[1].decode()
        assert [best in overview for best in ("0.6000", "0.7000")] == [True, True]
        assert "0.7000 ×" in ask(server, "/run/2")[1].decode()
        assert ask(server, "/run/3")[0].status == 404


class Broken(Watch):
    """Fails as a fault of ours would."""

    def page(self, address: str) -> Served | None:
        raise ZeroDivisionError(f"{address}\nand more")


def test_a_page_that_cannot_be_made_is_said_there_and_on_the_terminal(run: RunFolder) -> None:
    said: list[str] = []
    with serving({}, Broken({"one": run}), said.append) as server:
        response, body = ask(server)
        assert (response.status, response.headers["Content-Type"]) == (500, "text/plain; charset=utf-8")
        assert body == b"500 Internal Server Error: the page cannot be made: ZeroDivisionError: / and more\n"
        assert ask(server, method="HEAD")[1] == b""
    assert said == ["the page cannot be made: ZeroDivisionError: / and more"] * 2
