"""`evo watch`: the report of runs that may be going on, live, for a browser on this machine."""

import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from evo.commands.errors import complain
from evo.compare.runs import find_runs
from evo.console import open_console, say
from evo.report.pictures import require_pictures
from evo.report.server import LOOPBACK, PageServer
from evo.report.watching import Watch
from evo.run_options import locate_run
from evo.settings import ConfigError
from questions.entry import nearest

PORT = 8765
_USAGE = f"expected evo watch RUN [RUN…] [port={PORT}] [host={LOOPBACK}]"
_KEYS = ("port", "host")
_HOST_WANTED = "expected a name or an address of this machine"
_HIGHEST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    names: tuple[str, ...]
    host: str = LOOPBACK
    port: int = PORT


def watch(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0 once Ctrl-C ends it. Raises ConfigError for a bad command line and an address that cannot be had."""
    wanted = _read(arguments)
    require_pictures()
    runs = find_runs(wanted.names)
    with _open(wanted, Watch(runs)) as server:
        say(console, f"{', '.join(runs)}: {server.url} (Ctrl-C ends the watching; the search goes on)")
        if not _is_loopback(server):
            say(console, "caution: whoever reaches this address can read these runs; nothing asks for a password")
        console.file.flush()  # whoever waits for the address in a pipe
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def _read(arguments: Sequence[str]) -> _Wanted:
    options: dict[str, str] = {}
    names: list[str] = []
    for word in arguments:
        key, equals, value = word.partition("=")
        if word.startswith("-") or (equals and key not in _KEYS and not locate_run(word).path.exists()):
            raise ConfigError(f"watch: {word!r} is no option{nearest(key, _KEYS)}; {_USAGE}")
        if equals and key in _KEYS:
            options[key] = value
        else:
            names.append(word)
    if not names:
        raise ConfigError(f"watch: no run named; {_USAGE}")
    port = options.get("port", str(PORT))
    if not (port.isascii() and port.isdecimal() and int(port) <= _HIGHEST_PORT):
        raise ConfigError(f"watch: port={port}: expected a number from 0 (any that is free) to {_HIGHEST_PORT}")
    host = options.get("host", LOOPBACK)
    if not host:
        raise ConfigError(f"watch: host= needs a name or an address; {_USAGE}")
    return _Wanted(names=tuple(names), host=host, port=int(port))


def _open(wanted: _Wanted, pages: Watch) -> PageServer:
    try:
        errors = open_console(stderr=True)
        return PageServer(pages, partial(complain, errors), host=wanted.host, port=wanted.port)
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(f"watch: host={wanted.host}: {error}; {_HOST_WANTED}") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            trouble = "is taken, perhaps by another evo watch; name another, or port=0 for any that is free"
            raise ConfigError(f"watch: port={wanted.port} {trouble}") from error
        expected = f"; {_HOST_WANTED}" if error.errno == errno.EADDRNOTAVAIL else ""
        raise ConfigError(
            f"watch: host={wanted.host} port={wanted.port}: {error.strerror or error}{expected}"
        ) from error


def _is_loopback(server: PageServer) -> bool:
    address = str(server.server_address[0])
    return address.startswith("127.") or address == "::1"
