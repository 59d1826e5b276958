import email.utils
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from evo.answerers.answerer import AnswererError, Reply, Request, Usage
from evo.answerers.budget import Budget, BudgetExhausted, Price
from evo.answerers.openai import OpenAIAnswerer, OpenAISettings
from evo.answerers.wire import Api

KEY = "sk-proj-0123456789"
NOW = 1_800_000_000.0
Make = Callable[..., OpenAIAnswerer]


def request(number: int = 7, prompt: str = "Question: why?") -> Request:
    return Request(number=number, attempt=0, prompt=prompt, layer="memory", parent_sources=("x",))


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def make(server, slept) -> Iterator[Make]:
    """Makes answerers that talk to the loopback server, and closes them."""
    made: list[OpenAIAnswerer] = []

    def build(*, budget: Budget | None = None, path: str = "/v1", **settings: object) -> OpenAIAnswerer:
        answerer = OpenAIAnswerer(
            OpenAISettings(**{"model": "m", "base_url": server.url + path, "api_key_env": "TEST_KEY", **settings}),
            environment={"TEST_KEY": KEY},
            budget=budget or Budget(),
            sleep=slept.append,
            clock=lambda: NOW,
        )
        made.append(answerer)
        return answerer

    yield build
    for answerer in made:
        answerer.close()


def test_a_question_goes_out_and_its_reply_comes_back(server, make):
    server.answers(server.completion("text", usage={"prompt_tokens": 100, "completion_tokens": 50}))
    reply = make(price=Price(prompt_usd=1.0, completion_usd=10.0)).answer(request())
    usage = Usage(prompt_tokens=100, completion_tokens=50, cost_usd=0.0006)
    assert reply == Reply(text="text", model="served-model", usage=usage)
    (received,) = server.received
    assert received.path == "/v1/chat/completions"
    assert received.authorization == f"Bearer {KEY}"
    assert received.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Question: why?"}],
        "max_tokens": 32768,
    }


def test_every_setting_is_sent_and_requests_differ_in_their_seed(server, make):
    answerer = make(max_tokens=9, temperature=0.5, rng_seed=2**31 - 7)
    answerer.answer(request(number=6))
    answerer.answer(request(number=7))
    bodies = [{k: v for k, v in one.body.items() if k not in ("model", "messages")} for one in server.received]
    assert bodies[0] == {"max_tokens": 9, "temperature": 0.5, "seed": 2**31 - 1}
    assert bodies[1]["seed"] == 0


def test_the_responses_protocol_is_spoken_where_asked(server, make):
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "te"}, {"type": "output_text", "text": "xt"}]},
    ]
    usage = {"input_tokens": 3, "output_tokens": 4}
    server.answers(
        server.raw(body={"model": "r", "status": "completed", "output": output, "usage": usage}),
        server.raw(
            body={"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": output}
        ),
        server.raw(body={"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]}),
        server.raw(body={"output": output[:1]}),
    )
    answerer = make(api=Api.RESPONSES, max_tokens=9, rng_seed=1)
    first, second, third, fourth = (answerer.answer(request()) for _ in range(4))
    assert first == Reply(text="text", model="r", usage=Usage(prompt_tokens=3, completion_tokens=4))
    assert (second.text, second.model, second.finish_reason) == ("text", "m", "length")
    assert (third.text, third.finish_reason) == ("no", "refusal")
    assert fourth.text == "hm"
    assert server.received[0].path == "/v1/responses"
    assert server.received[0].body == {"model": "m", "input": "Question: why?", "max_output_tokens": 9}


# S1


def test_one_reply_is_asked_for_and_the_first_is_taken(server, make):
    two = server.completion("first")
    two.body["choices"].append({"message": {"content": "second"}, "finish_reason": "length"})
    server.answers(two)
    reply = make().answer(request())
    assert (reply.text, reply.finish_reason) == ("first", "stop")
    assert "n" not in server.received[0].body


def test_no_choice_at_all_is_retried_and_then_an_error(server, make, slept):
    server.answers(server.raw(body={"choices": []}))
    with pytest.raises(AnswererError, match=r"no choices after 3 attempts") as caught:
        make(max_retries=2).answer(request())
    assert caught.value.retryable
    assert slept == [1.0, 2.0]


# S2


@pytest.mark.parametrize("named", ["param", "message"])
@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("parameter", ["seed", "temperature"])
def test_a_rejected_parameter_is_left_out_from_then_on(server, make, caplog, parameter, status, named):
    def script(received):
        if parameter not in received.body:
            return server.completion("ok")
        if named == "param":
            return server.error(status, "Unsupported value.", param=parameter)
        return server.error(status, f"Extra inputs are not permitted: {parameter}, max_tokens is fine")

    server.script = script
    answerer = make(temperature=0.5, rng_seed=1)
    assert [answerer.answer(request(number)).text for number in range(3)] == ["ok"] * 3
    assert len(server.received) == 4
    optional = {"max_tokens", "temperature", "seed"}
    assert set(server.received[-1].body) == {"model", "messages"} | optional - {parameter}
    assert caplog.text.count(f"m does not take {parameter}") == 1


def test_a_rejected_length_limit_goes_by_its_other_name(server, make):
    def script(received):
        if "max_tokens" in received.body:
            said = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
            return server.error(400, said, param="max_tokens", code="unsupported_parameter")
        return server.completion("ok")

    server.script = script
    answerer = make(max_tokens=9)
    for _ in range(2):
        assert answerer.answer(request()).text == "ok"
    limits = [{name: one.body.get(name) for name in ("max_tokens", "max_completion_tokens")} for one in server.received]
    renamed = {"max_tokens": None, "max_completion_tokens": 9}
    assert limits == [{"max_tokens": 9, "max_completion_tokens": None}, renamed, renamed]


def test_parameters_are_given_up_one_by_one_down_to_none(server, make):
    def script(received):
        named = [name for name in received.body if name not in ("model", "messages")]
        return server.error(400, f"what is {named[0]}?") if named else server.completion("ok")

    server.script = script
    assert make(temperature=0.5, rng_seed=1).answer(request()).text == "ok"
    assert len(server.received) == 5


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("This model's maximum context length is 8192 tokens; max_tokens asks for more", {}),
        ("max_tokens is too large: 32768", {"param": "max_tokens"}),
        ("see max_tokens", {"code": "context_length_exceeded"}),
        ("model is not a valid name", {"param": "model"}),
        ("something else", {}),
    ],
)
def test_another_bad_request_is_an_error_at_once(server, make, slept, message, fields):
    server.answers(server.error(400, message, **fields))
    with pytest.raises(AnswererError, match="400") as caught:
        make().answer(request())
    assert not caught.value.retryable
    assert (len(server.received), slept) == (1, [])


def test_threads_that_meet_the_same_rejection_each_get_their_reply(server, make):
    barrier = threading.Barrier(4)

    def script(received):
        if "max_tokens" not in received.body:
            return server.completion("ok")
        barrier.wait(10)
        return server.error(400, "no max_tokens", param="max_tokens")

    server.script = script
    answerer = make()
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(answerer.answer, [request(number) for number in range(4)]))
    assert [reply.text for reply in replies] == ["ok"] * 4
    assert all("max_completion_tokens" in one.body for one in server.received[4:])
    assert len(server.received) == 8


# S3


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": "3600"}, 3600.0),
        ({"Retry-After": "86400.5"}, 86400.5),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": email.utils.formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"Retry-After": email.utils.formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"retry-after-ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After": "soon"}, 1.0),
        ({"Retry-After": "-5"}, 1.0),
        ({"Retry-After": "nan"}, 1.0),
        ({"Retry-After": "1e300"}, 1.0),
        ({}, 1.0),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_the_server_says_how_long_to_wait(server, make, slept, caplog, headers, expected, status):
    server.answers(server.error(status, "slow down", headers=headers), server.completion("ok"))
    assert make().answer(request()).text == "ok"
    assert slept == [expected]
    assert f"asking again in {expected:.2f} s" in caplog.text
    assert ("as the server asks" in caplog.text) == (expected != 1.0)


@pytest.mark.parametrize(
    "canned",
    [
        {"message": "You exceeded your current quota, please check your plan and billing details."},
        {"message": "no", "code": "insufficient_quota", "headers": {"Retry-After": "1"}},
        {"message": "no", "type": "insufficient_quota"},
        {"message": "Insufficient balance"},
    ],
)
def test_an_exhausted_quota_is_not_waited_for(server, make, slept, canned):
    server.answers(server.error(429, **canned))
    with pytest.raises(AnswererError, match="quota is used up") as caught:
        make().answer(request())
    assert not caught.value.retryable
    assert (len(server.received), slept) == (1, [])


@pytest.mark.parametrize(("status", "hint"), [(401, "TEST|api_key_env"), (402, "credit"), (403, "model"), (404, "/v1")])
def test_what_will_not_pass_is_not_retried(server, make, slept, status, hint):
    server.answers(server.error(status, "no"))
    with pytest.raises(AnswererError, match=f"{status}: .*no") as caught:
        make().answer(request())
    assert not caught.value.retryable
    assert slept == []
    assert any(word in caught.value.hint for word in hint.split("|"))


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 529])
def test_what_may_pass_is_retried_with_growing_waits(server, make, slept, status):
    server.answers(server.error(status, "busy"))
    with pytest.raises(AnswererError, match="after 9 attempts") as caught:
        make(max_retries=8).answer(request())
    assert caught.value.retryable
    assert slept == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


# S4


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("", "/v1"),
        ("/", "/v1"),
        ("/v1", "/v1"),
        ("/v1/", "/v1"),
        ("/v1//", "/v1"),
        ("/api/v1", "/api/v1"),
        ("/v1beta/openai/", "/v1beta/openai"),
        ("/v1/chat/completions", "/v1"),
        (" ", "/v1"),
    ],
)
def test_base_urls_are_taken_as_people_write_them(server, make, path, asked):
    assert make(path=path).answer(request()).text == "hello"
    assert server.received[0].path == f"{asked}/chat/completions"


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "h:8000/v1?key=secret",
        "ftp://u:secret@h/v1",
        "http://",
        "http://h:port/v1",
        "http://[::1/v1",
        "http://u:secret@h/v1",
        "http://h/v1?key=secret",
    ],
)
def test_a_base_url_that_is_none_is_an_error_that_keeps_its_secrets(make, url):
    with pytest.raises(AnswererError, match="expected http://HOST") as caught:
        make(base_url=url)
    assert "secret" not in str(caught.value)


# S5


def test_a_connection_dropped_in_mid_body_is_retried(server, make, slept):
    whole = server.completion("ok")
    server.answers(server.raw(body=whole.body, announced=100_000), whole)
    assert make().answer(request()).text == "ok"
    assert slept == [1.0]


def test_a_server_that_never_answers_is_given_up(server, make, slept):
    server.answers(server.raw(silent=True))
    with pytest.raises(AnswererError, match="did not answer in time after 2 attempts") as caught:
        make(timeout_s=0.05, max_retries=1).answer(request())
    assert caught.value.retryable
    assert "answerer.timeout_s" in caught.value.hint
    assert slept == [1.0]


def test_a_server_that_is_not_there_costs_nothing(make, server):
    server.close()
    budget = Budget(limit_usd=1.0)
    with pytest.raises(AnswererError, match="connection failed"):
        make(budget=budget, price=Price(prompt_usd=1.0), max_retries=0).answer(request())
    assert budget.spent_usd == 0.0


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ("<html>welcome</html>", {"Content-Type": "text/html"}),
        ('{"choices": [', {}),
        ("", {}),
        ("[" * 100_000, {}),
        ("null", {}),
        ("[]", {}),
        ('{"choices": null}', {}),
        ('{"choices": [null]}', {}),
        ('{"choices": [{"message": "hi"}]}', {}),
        ('{"error": {"message": "overloaded", "code": 502}}', {}),
        ('{"error": "overloaded"}', {}),
    ],
)
def test_a_response_that_is_no_completion_is_retried(server, make, slept, body, headers):
    server.answers(server.raw(body=body, headers=headers), server.completion("ok"))
    assert make().answer(request()).text == "ok"
    assert slept == [1.0]


def test_an_error_for_good_in_place_of_a_completion_is_not_retried(server, make, slept):
    server.answers(server.raw(body={"error": {"message": "no such model", "code": 404}}))
    with pytest.raises(AnswererError, match="no such model") as caught:
        make().answer(request())
    assert (caught.value.retryable, slept) == (False, [])


# S6


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        "none",
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": -5, "completion_tokens": "9"},
        {"prompt_tokens": 10**30, "completion_tokens": None},
        {"prompt_tokens": True, "completion_tokens": 1.5},
    ],
)
def test_without_usage_bytes_over_three_stand_in(server, make, usage):
    server.answers(server.completion("\u00e9" * 5, usage=usage))
    reply = make(price=Price(prompt_usd=3e6, completion_usd=1e6)).answer(request(prompt="abcd"))
    assert reply.usage == Usage(prompt_tokens=2, completion_tokens=4, cost_usd=10.0, estimated=True)


def test_without_usage_the_budget_still_ends_the_run(server, make):
    budget = Budget(limit_usd=10.0)
    answerer = make(budget=budget, price=Price(completion_usd=1e6), max_tokens=4)
    server.answers(server.completion("x" * 9))
    replies = [answerer.answer(request()) for _ in range(3)]
    with pytest.raises(BudgetExhausted):
        answerer.answer(request())
    assert all(reply.usage.estimated for reply in replies)
    assert len(server.received) == 3
    assert budget.spent_usd == 9.0


def test_a_budget_without_a_price_is_an_error(make):
    with pytest.raises(AnswererError, match="no price to count it by"):
        make(budget=Budget(limit_usd=5.0))


def test_a_lost_reply_is_charged_in_full_and_a_refused_call_not_at_all(server, make):
    budget = Budget(limit_usd=100.0)
    answerer = make(budget=budget, price=Price(completion_usd=1e6), max_tokens=10, max_retries=0)
    for canned, spent in (
        (server.error(500, "broken"), 0.0),
        (server.raw(body={"choices": []}), 10.0),
        (server.raw(body="{}", announced=99), 20.0),
    ):
        server.answers(canned)
        with pytest.raises(AnswererError):
            answerer.answer(request())
        assert budget.spent_usd == spent
    server.answers(server.completion("xxx", usage={"prompt_tokens": 1, "completion_tokens": 7}))
    answerer.answer(request())
    assert budget.spent_usd == 27.0


# R8


@pytest.mark.parametrize(
    ("message", "text", "finish_reason"),
    [
        ({"text": None, "reasoning_content": "here"}, "here", "stop"),
        ({"text": "", "reasoning": "here"}, "here", "stop"),
        ({"text": "answer", "reasoning_content": "thoughts"}, "answer", "stop"),
        ({"text": None}, "", "stop"),
        ({"text": None, "refusal": "I can't."}, "I can't.", "refusal"),
        ({"text": "cut", "finish_reason": "length"}, "cut", "length"),
        ({"text": "cut", "finish_reason": "MAX_TOKENS"}, "cut", "length"),
        ({"text": "x", "finish_reason": None}, "x", "stop"),
        ({"text": "x", "finish_reason": "content_filter"}, "x", "content_filter"),
        ({"text": [{"thinking": "hm"}, {"type": "text", "text": "a"}, {"text": "b"}, 3]}, "ab", "stop"),
        ({"text": "lone \ud800"}, "lone ?", "stop"),
        ({"text": 5}, "", "stop"),
    ],
)
def test_the_text_is_found_where_servers_put_it(server, make, message, text, finish_reason):
    server.answers(server.completion(**message))
    reply = make().answer(request())
    assert (reply.text, reply.finish_reason) == (text, finish_reason)


def test_reasoning_counts_towards_an_estimated_usage(server, make):
    server.answers(server.completion("abc", reasoning_content="abcabc"))
    assert make().answer(request()).usage.completion_tokens == 3


def test_a_lone_surrogate_in_a_prompt_is_sent_as_a_question_mark(server, make):
    make().answer(request(prompt="a\ud800b"))
    assert server.received[0].body["messages"][0]["content"] == "a?b"


# C6


def test_the_key_is_in_no_error_no_log_and_no_description(server, make, caplog):
    caplog.set_level(logging.DEBUG)
    server.answers(
        server.error(500, f"busy, dear {KEY}"), server.error(401, "x" * 480 + f" Incorrect API key provided: {KEY}")
    )
    answerer = make()
    with pytest.raises(AnswererError) as caught:
        answerer.answer(request())
    assert "dear [key]" in caplog.text
    for text in (caplog.text, str(caught.value), repr(caught.value), answerer.description, repr(answerer)):
        assert KEY not in text
        assert KEY[:8] not in text
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("key", [None, "", " \n", "sk two", "sk-\u00e9", "sk\nb"])
def test_a_key_that_is_none_is_an_error_without_it(key):
    environment = {} if key is None else {"K": key}
    with pytest.raises(AnswererError, match=r"K holds no key|key in K") as caught:
        OpenAIAnswerer(OpenAISettings(model="m", api_key_env="K"), environment=environment, budget=Budget())
    assert "sk" not in str(caught.value)


def test_a_server_may_need_no_key_and_blanks_around_one_do_not_matter(server):
    for environment, name, sent in (({}, "", "Bearer none"), ({"K": f" {KEY}\n"}, "K", f"Bearer {KEY}")):
        settings = OpenAISettings(model="m", base_url=server.url, api_key_env=name)
        answerer = OpenAIAnswerer(settings, environment=environment, budget=Budget())
        assert answerer.answer(request()).text == "hello"
        assert server.received[-1].authorization == sent
        answerer.close()


def test_the_description_names_model_server_and_protocol(server, make):
    assert make().description == f"openai: m at {server.url}/v1 (chat)"
