"""One question on its way to a reply, as the protocol words it: the prompt, the calls of tools, and their results."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from evo.answerers.wire import Api, Turn, encodable
from evo.tools.tool import Tool


class Exchange:
    """What has been said of one question so far; without tools the prompt alone."""

    def __init__(self, api: Api, prompt: str, tools: Sequence[Tool]) -> None:
        self._api = api
        self._prompt = encodable(prompt)
        self._tools = [_declared(api, tool) for tool in tools]
        self._said: list[Mapping[str, Any]] = [{"role": "user", "content": self._prompt}]

    @property
    def body(self) -> dict[str, Any]:
        """The part of a request's body that says all this."""
        tools = {"tools": self._tools} if self._tools else {}
        if self._api is Api.CHAT:
            return {"messages": [*self._said], **tools}
        return {"input": [*self._said] if len(self._said) > 1 else self._prompt, **tools}

    @property
    def text(self) -> str:
        """All that is sent, for an estimate of its length."""
        return json.dumps(self.body, ensure_ascii=False) if self._tools else self._prompt

    def add(self, turn: Turn, results: Sequence[str]) -> None:
        """What the server said, and the results of the calls that it wanted."""
        self._said.extend(turn.output)
        for call, result in zip(turn.calls, results, strict=True):
            if self._api is Api.CHAT:
                self._said.append({"role": "tool", "tool_call_id": call.id, "content": encodable(result)})
            else:
                self._said.append({"type": "function_call_output", "call_id": call.id, "output": encodable(result)})


def _declared(api: Api, tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function} if api is Api.CHAT else {"type": "function", **function}
