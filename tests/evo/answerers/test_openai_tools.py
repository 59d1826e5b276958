"""A model that calls tools before it answers, rightly and wrongly, in both protocols."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from loopback_server import LoopbackServer, Received

from evo.answerers.answerer import AnswererError, Request, ToolCall, Usage
from evo.answerers.budget import Budget, BudgetExhausted, Price
from evo.answerers.openai import OpenAIAnswerer, OpenAISettings
from evo.answerers.wire import Api
from evo.tools.bench import Bench
from evo.tools.tool import schema
from fitness.faults import EnvironmentFault

PARENT = "/*evo\nname\n*/\n__global__ void k() {}\n"
DRAFT = json.dumps({"draft": "parent"})
Make = Callable[..., OpenAIAnswerer]


class Length:
    """A tool that counts a draft's characters, and how many calls of it run at once."""

    name = "length"
    description = "how long a draft is"
    parameters: Mapping[str, Any] = schema(unit={"type": "string", "description": "of the length"})

    def __init__(self) -> None:
        self.at_work = 0
        self.most_at_work = 0
        self.fault: EnvironmentFault | None = None

    def call(self, source: str, arguments: Mapping[str, Any]) -> str:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        threading.Event().wait(0.001)  # others get their chance to come in
        self.at_work -= 1
        if self.fault:
            raise self.fault
        return f"{len(source)} {arguments.get('unit', 'characters')}"


def request(number: int = 7, prompt: str = "Question: why?") -> Request:
    return Request(number=number, attempt=0, prompt=prompt, layer="memory", parent_sources=(PARENT, "another"))


@pytest.fixture
def length() -> Length:
    return Length()


@pytest.fixture
def make(server: LoopbackServer, length: Length) -> Iterator[Make]:
    """Makes answerers with a bench, and closes them."""
    made: list[OpenAIAnswerer] = []

    def build(*, limit: int = 3, budget: Budget | None = None, **settings: Any) -> OpenAIAnswerer:
        ticks = iter(range(1000))
        answerer = OpenAIAnswerer(
            OpenAISettings(**{"model": "m", "base_url": server.url, "api_key_env": "", **settings}),
            environment={},
            budget=budget or Budget(),
            bench=Bench([length], limit=limit, clock=lambda: float(next(ticks))),
            sleep=lambda _: None,
        )
        made.append(answerer)
        return answerer

    yield build
    for answerer in made:
        answerer.close()


def results(received: Received) -> list[str]:
    """What the tools told the model, in the last request."""
    said = received.body.get("messages") or received.body["input"]
    return [
        each.get("content", each.get("output"))
        for each in said
        if {"tool_call_id", "call_id"} & each.keys() and "arguments" not in each
    ]


def test_a_call_is_carried_out_and_its_result_goes_back(server, make):
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    server.answers(
        server.calls(("length", DRAFT), content="let me see", usage=usage), server.completion("text", usage=usage)
    )
    reply = make(price=Price(prompt_usd=1.0)).answer(request())
    assert reply.text == "text"
    assert reply.usage == Usage(prompt_tokens=200, completion_tokens=20, cost_usd=pytest.approx(0.0002))
    call = ToolCall(order=0, name="length", arguments=DRAFT, result=f"{len(PARENT)} characters", seconds=1.0)
    assert (reply.used_tools, reply.tool_calls) == (True, (call,))
    first, second = (one.body for one in server.received)
    assert first["tools"] == [
        {
            "type": "function",
            "function": {"name": "length", "description": "how long a draft is", "parameters": Length.parameters},
        }
    ]
    assert first["messages"] == [{"role": "user", "content": "Question: why?"}]
    assert "tool_choice" not in first
    assert second["tools"] == first["tools"]
    wanted = {"id": "call_0", "type": "function", "function": {"name": "length", "arguments": DRAFT}}
    assert second["messages"][1:] == [
        {"role": "assistant", "content": "let me see", "tool_calls": [wanted]},
        {"role": "tool", "tool_call_id": "call_0", "content": f"{call.result}\n\n(2 of 3 calls are left)"},
    ]


def test_a_model_need_not_call_any(server, make):
    reply = make().answer(request())
    assert (reply.text, reply.used_tools, reply.tool_calls) == ("hello", False, ())
    assert len(server.received) == 1


def test_without_a_bench_calls_are_not_carried_out(server):
    server.answers(server.calls(("length", DRAFT), content="text"))
    settings = OpenAISettings(model="m", base_url=server.url, api_key_env="")
    answerer = OpenAIAnswerer(settings, environment={}, budget=Budget())
    reply = answerer.answer(request())
    answerer.close()
    assert (reply.text, reply.finish_reason, reply.used_tools) == ("text", "tool_calls", False)
    assert "tools" not in server.received[0].body


def test_the_responses_protocol_has_its_calls_too(server, make):
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    calls = [
        {"type": "function_call", "id": f"fc_{n}", "call_id": f"c{n}", "name": "length", "arguments": arguments}
        for n, arguments in enumerate((DRAFT, '{"draft": "parent", "unit": "bytes"}'))
    ]
    answer = {"type": "message", "content": [{"type": "output_text", "text": "text"}]}
    usage = {"input_tokens": 5, "output_tokens": 2}
    server.answers(
        server.raw(body={"output": [thought, calls[0], thought, calls[1]], "usage": usage}),
        server.raw(body={"output": [answer], "usage": usage}),
    )
    reply = make(api=Api.RESPONSES, limit=2).answer(request())
    assert reply.text == "text"
    assert reply.usage == Usage(prompt_tokens=10, completion_tokens=4)
    assert [call.result for call in reply.tool_calls] == [f"{len(PARENT)} characters", f"{len(PARENT)} bytes"]
    first, second = (one.body for one in server.received)
    assert first["input"] == "Question: why?"
    assert first["tools"] == [
        {"type": "function", "name": "length", "description": "how long a draft is", "parameters": Length.parameters}
    ]
    assert second["tool_choice"] == "none"
    assert second["input"] == [
        {"role": "user", "content": "Question: why?"},
        thought,
        calls[0],
        thought,
        calls[1],
        {"type": "function_call_output", "call_id": "c0", "output": f"{len(PARENT)} characters"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": f"{len(PARENT)} bytes\n\n(no call is left: answer now, in the form asked for)",
        },
    ]


def test_a_models_thoughts_go_back_in_the_field_that_they_came_in(server, make):
    for name in ("reasoning_content", "reasoning"):
        wanted = server.calls(("length", DRAFT))
        wanted.body["choices"][0]["message"][name] = "hm \ud800"
        server.answers(wanted, server.completion("text"))
        assert make().answer(request()).text == "text"
        said = server.received[-1].body["messages"][1]
        assert {field: said[field] for field in said if "reasoning" in field} == {name: "hm ?"}


# The limit


def test_a_model_that_calls_on_and_on_is_told_to_answer(server, make):
    def script(received):
        return (
            server.completion("text") if received.body.get("tool_choice") == "none" else server.calls(("length", DRAFT))
        )

    server.script = script
    reply = make(limit=3).answer(request())
    assert (reply.text, len(reply.tool_calls)) == ("text", 3)
    assert len(server.received) == 4
    told = [result.partition("\n\n")[2] for result in results(server.received[-1])]
    assert told == [
        "(2 of 3 calls are left)",
        "(1 of 3 calls are left)",
        "(no call is left: answer now, in the form asked for)",
    ]


def test_a_model_that_calls_even_then_has_answered(server, make):
    server.answers(server.calls(("length", DRAFT)))
    reply = make(limit=2).answer(request())
    assert (reply.text, reply.finish_reason, len(reply.tool_calls)) == ("", "tool_calls", 2)
    assert len(server.received) == 3


def test_calls_in_parallel_are_made_in_order_up_to_the_limit(server, make):
    units = [("length", json.dumps({"draft": "parent", "unit": unit})) for unit in "abcd"]
    server.answers(server.calls(*units), server.completion("text"))
    reply = make(limit=3).answer(request())
    assert [(call.order, call.result[-1]) for call in reply.tool_calls] == [(0, "a"), (1, "b"), (2, "c")]
    told = results(server.received[1])
    assert len(told) == 4
    assert told[3].startswith("not run: 3 calls were allowed\n\n(no call is left")


def test_each_request_has_the_whole_limit(server, make):
    answerer = make(limit=1)
    for number in range(2):
        server.answers(server.calls(("length", DRAFT)), server.completion("text"))
        assert len(answerer.answer(request(number)).tool_calls) == 1


# Calls that make no sense


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("length", "draft: parent", "the arguments of length are not JSON"),
        ("length", "", "the arguments of length are not JSON"),
        ("length", None, "the arguments of length are not JSON"),
        ("length", "[" * 100_000, "the arguments of length are not JSON"),
        (
            "length",
            '["parent"]',
            "the arguments of length are list; expected an object of draft (string), unit (string)",
        ),
        ("length", "{}", "length: the argument draft is missing; expected draft (string), unit (string)"),
        ("length", '{"draft": null}', "length: the argument draft is missing"),
        ("length", '{"draft": 7}', "length: draft is int; expected"),
        ("length", '{"draft": "parent", "size": 1}', "length: there is no argument size; expected"),
        ("length", '{"draft": "make it faster"}', "the draft cannot be read: the reply holds neither edit blocks"),
        ("lenght", DRAFT, "there is no tool 'lenght'; expected one of length"),
        ("", DRAFT, "there is no tool ''"),
        ("rm -rf /\ud800", DRAFT, "there is no tool 'rm -rf /?'"),
    ],
)
def test_a_call_that_makes_no_sense_is_told_so_and_counts(server, make, name, arguments, told):
    server.answers(server.calls((name, arguments)), server.completion("text"))
    reply = make(limit=2).answer(request())
    assert reply.text == "text"
    [call] = reply.tool_calls
    assert call.result.startswith(told)
    assert results(server.received[1])[0].endswith("(1 of 2 calls are left)")
    echoed = server.received[1].body["messages"][1]["tool_calls"][0]["function"]
    assert isinstance(json.loads(echoed["arguments"]), dict)  # a server that reads them must not stumble
    assert echoed["name"].replace("_", "").replace("-", "").isalnum()


def test_arguments_may_come_as_an_object(server, make):
    server.answers(server.calls(("length", {"draft": "parent", "unit": None})), server.completion("text"))
    [call] = make().answer(request()).tool_calls
    assert call.result == f"{len(PARENT)} characters"


@pytest.mark.parametrize("calls", ["length", {}, [None], [{"id": 5}], [{"function": "length"}]])
def test_tool_calls_in_no_known_form(server, make, calls):
    server.answers(server.completion("text", tool_calls=calls), server.completion("text"))
    reply = make().answer(request())
    assert reply.text == "text"
    assert all(call.result.startswith("there is no tool ''") for call in reply.tool_calls)


# What a server may refuse


def test_a_server_that_knows_no_tool_choice_is_asked_without_it(server, make):
    def script(received):
        if "tool_choice" in received.body:
            return server.error(400, "Unknown parameter: 'tool_choice'.", param="tool_choice")
        return server.completion("text") if len(server.received) > 2 else server.calls(("length", DRAFT))

    server.script = script
    assert make(limit=1).answer(request()).text == "text"
    assert len(server.received) == 3


@pytest.mark.parametrize(
    "message",
    [
        "m does not support tools",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "Unsupported parameter: 'tools'",
    ],
)
def test_a_model_without_tools_is_an_error_that_says_what_to_do(server, make, message):
    server.answers(server.error(400, message))
    with pytest.raises(AnswererError, match=r"answerer\.tools=false") as caught:
        make().answer(request())
    assert not caught.value.retryable
    assert len(server.received) == 1


# What it costs


def test_a_turn_that_is_lost_costs_the_question_too(server, make):
    budget = Budget(limit_usd=100.0)
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    server.answers(
        server.calls(("length", DRAFT), usage=usage),
        server.raw(body={"choices": []}),
        server.completion("text", usage=usage),
    )
    reply = make(budget=budget, price=Price(completion_usd=1e6), max_tokens=10).answer(request())
    assert reply.usage == Usage(prompt_tokens=2, completion_tokens=4, cost_usd=14.0, estimated=True)
    assert budget.spent_usd == 14.0


def test_a_budget_that_ends_among_the_calls_says_what_was_spent(server, make):
    budget = Budget(limit_usd=12.0)
    server.answers(server.calls(("length", DRAFT), usage={"prompt_tokens": 1, "completion_tokens": 3}))
    with pytest.raises(BudgetExhausted) as caught:
        make(budget=budget, price=Price(completion_usd=1e6), max_tokens=10).answer(request())
    assert caught.value.usage == Usage(prompt_tokens=1, completion_tokens=3, cost_usd=3.0)
    assert [call.name for call in caught.value.tool_calls] == ["length"]
    assert budget.spent_usd == 3.0


def test_without_usage_the_whole_conversation_is_counted(server, make):
    server.answers(server.calls(("length", DRAFT)), server.completion("text"))
    reply = make().answer(request())
    sent = [
        json.dumps({name: one.body[name] for name in ("messages", "tools")}, ensure_ascii=False)
        for one in server.received
    ]
    assert reply.usage.estimated
    assert reply.usage.prompt_tokens == sum(-(-len(text) // 3) for text in sent)
    assert reply.usage.completion_tokens == -(-len(DRAFT) // 3) + -(-len("text") // 3)


# Threads and faults


def test_calls_of_several_threads_are_carried_out_one_at_a_time(server, make, length):
    def script(received):
        called = len(results(received))
        return server.completion("text") if called == 3 else server.calls(("length", DRAFT))

    server.script = script
    answerer = make(limit=5)
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(answerer.answer, [request(number) for number in range(6)]))
    assert [len(reply.tool_calls) for reply in replies] == [3] * 6
    assert length.most_at_work == 1


def test_a_fault_of_the_environment_is_no_result(server, make, length):
    length.fault = EnvironmentFault("the GPU fell off the bus")
    server.answers(server.calls(("length", DRAFT)))
    with pytest.raises(EnvironmentFault, match="fell off the bus"):
        make().answer(request())
    length.fault = None
    server.answers(server.calls(("length", DRAFT)), server.completion("text"))
    assert make().answer(request()).text == "text"  # the bench is free again
