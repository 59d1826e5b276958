"""The bench: where a model's calls of tools are carried out, one at a time, whatever it writes."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from evo.answerers.answerer import ToolCall
from evo.tools.draft import read_draft
from evo.tools.tool import DRAFT, Tool
from evo.unreadable import UnreadableReply

_TYPES: Final[Mapping[str, type]] = {"string": str, "integer": int}


class Bench:
    """The tools, and how many calls a model may make of them each time it is asked.

    Calls may come from several threads and are carried out one after another: whatever runs beside a timing disturbs
    it.
    """

    def __init__(self, tools: Sequence[Tool], *, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._limit = limit
        self._clock = clock
        self._busy = threading.Lock()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All of them."""
        return tuple(self._tools.values())

    @property
    def limit(self) -> int:
        """The most calls on the way to one reply."""
        return self._limit

    def call(self, name: str, arguments: str, *, parent_source: str, order: int) -> ToolCall:
        """Carry out a call as a model wrote it; the result says where it makes no sense. Raises EnvironmentFault."""
        with self._busy:
            start = self._clock()
            try:
                result = self._carried_out(name, arguments, parent_source)
            except _BadCall as error:
                result = str(error)
            return ToolCall(order=order, name=name, arguments=arguments, result=result, seconds=self._clock() - start)

    def _carried_out(self, name: str, arguments: str, parent_source: str) -> str:
        tool = self._tools.get(name)
        if tool is None:
            raise _BadCall(f"there is no tool {name!r}; expected one of {', '.join(self._tools)}")
        values = _read_arguments(tool, arguments)
        try:
            source = read_draft(values.pop(DRAFT), parent_source)
        except UnreadableReply as error:
            raise _BadCall(f"the draft cannot be read: {error}") from error
        return tool.call(source, values)


class _BadCall(Exception):
    """What is wrong with a call, for the model to read."""


def _read_arguments(tool: Tool, text: str) -> dict[str, Any]:
    """The arguments, of the types that the tool asks for; JSON's null counts as not given."""
    properties = tool.parameters["properties"]
    expected = ", ".join(f"{name} ({properties[name]['type']})" for name in properties)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _BadCall(
            f"the arguments of {tool.name} are not JSON ({error}); expected an object of {expected}"
        ) from error
    if not isinstance(values, dict):
        raise _BadCall(f"the arguments of {tool.name} are {type(values).__name__}; expected an object of {expected}")
    values = {name: value for name, value in values.items() if value is not None}
    for name in tool.parameters["required"]:
        if name not in values:
            raise _BadCall(f"{tool.name}: the argument {name} is missing; expected {expected}")
    for name, value in values.items():
        if name not in properties:
            raise _BadCall(f"{tool.name}: there is no argument {name}; expected {expected}")
        if type(value) is not _TYPES[properties[name]["type"]]:
            raise _BadCall(f"{tool.name}: {name} is {type(value).__name__}; expected {expected}")
    return values
