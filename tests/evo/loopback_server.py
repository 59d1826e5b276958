"""A server on 127.0.0.1 that speaks OpenAI's protocols, right and wrong, as each test scripts it."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Canned:
    """One response. `announced` bytes are promised where the body is to break off; `silent` never answers."""

    body: Any = None  # text as it stands, anything else as JSON
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    announced: int | None = None
    silent: bool = False


@dataclass(frozen=True, kw_only=True)
class Received:
    path: str
    body: dict[str, Any]
    authorization: str


class LoopbackServer:
    """Serves `script`, which makes a response of each request. Tests reach the words for a script through it."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.script: Callable[[Received], Canned] = lambda _: self.completion("hello")
        self.over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                received = Received(
                    path=self.path,
                    body=json.loads(self.rfile.read(length)),
                    authorization=self.headers.get("Authorization", ""),
                )
                server.received.append(received)
                canned = server.script(received)
                if canned.silent:
                    server.over.wait(30)
                    return
                body = canned.body if isinstance(canned.body, str) else json.dumps(canned.body)
                self.send_response(canned.status)
                for name, value in ({"Content-Type": "application/json"} | canned.headers).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(canned.announced or len(body.encode())))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body.encode())
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    raw = staticmethod(Canned)

    @staticmethod
    def completion(
        text: object, *, usage: object = None, finish_reason: str | None = "stop", **message: object
    ) -> Canned:
        """A chat completion with one choice."""
        said = {"role": "assistant", "content": text, **message}
        choice = {"index": 0, "finish_reason": finish_reason, "message": said}
        body = {"id": "1", "object": "chat.completion", "model": "served-model", "choices": [choice]}
        return Canned(body=body if usage is None else body | {"usage": usage})

    @staticmethod
    def calls(*calls: tuple[str, object], content: str | None = None, usage: object = None) -> Canned:
        """A chat completion that wants tools called, each by name and arguments."""
        wanted = [
            {"id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for place, (name, arguments) in enumerate(calls)
        ]
        return LoopbackServer.completion(content, usage=usage, finish_reason="tool_calls", tool_calls=wanted)

    @staticmethod
    def error(status: int, message: str, *, headers: dict[str, str] | None = None, **fields: object) -> Canned:
        """An error as OpenAI words it."""
        return Canned(status=status, headers=headers or {}, body={"error": {"message": message, **fields}})

    def answers(self, *canned: Canned) -> None:
        """The responses in order; the last one goes on."""
        left = list(canned)
        self.script = lambda _: left.pop(0) if len(left) > 1 else left[0]

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
