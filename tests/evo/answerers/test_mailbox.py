import pytest

from evo.answerers.answerer import AnswererError, Reply, Request, Usage
from evo.answerers.mailbox import read_reply_file, waiting_replies, write_prompt


def request(number: int, attempt: int = 0, prompt: str = "Question: why?\n") -> Request:
    return Request(number=number, attempt=attempt, prompt=prompt, layer="memory", parent_sources=("x",))


@pytest.mark.parametrize(
    ("number", "attempt", "name"), [(7, 0, "0007.md"), (7, 1, "0007-1.md"), (12345, 0, "12345.md")]
)
def test_a_prompt_is_a_file_by_its_number_and_nothing_else_is_left(tmp_path, number, attempt, name):
    outbox = tmp_path / "run" / "outbox"
    path = write_prompt(outbox, request(number, attempt, prompt="old"))
    assert write_prompt(outbox, request(number, attempt, prompt="Warum \u00fcberhaupt?\r\n")) == path
    assert [file.name for file in outbox.iterdir()] == [name]
    assert path.read_bytes() == "Warum \u00fcberhaupt?\r\n".encode()


def test_waiting_replies_are_listed_in_order_and_other_files_left_alone(tmp_path):
    replies = ("0010.md", "0007-1.md", "0007.md", "10000.md")
    for name in (*replies, "7.md", "0008.txt", "0009.md~", "notes.md", "\u0661\u0661\u0661\u0661.md"):
        (tmp_path / name).write_text("x")
    assert waiting_replies(tmp_path) == [(7, 0), (7, 1), (10, 0), (10000, 0)]
    assert waiting_replies(tmp_path / "missing") == []


def test_a_reply_holds_its_users_word_on_who_answered(tmp_path):
    (tmp_path / "0007.md").write_bytes("\ufeffClaim: done \u2026\n".encode())
    reply = read_reply_file(tmp_path, 7, model="a person", used_tools=True)
    usage = Usage(completion_tokens=6, estimated=True)
    assert reply == Reply(text="Claim: done \u2026\n", model="a person", usage=usage, used_tools=True)


def test_a_missing_reply_and_one_that_is_not_text_are_errors_that_say_so(tmp_path):
    with pytest.raises(AnswererError, match=r"0007-1\.md is not there"):
        read_reply_file(tmp_path, 7, 1, model="m", used_tools=False)
    (tmp_path / "0007.md").write_bytes("x".encode("utf-16"))
    with pytest.raises(AnswererError, match="not UTF-8"):
        read_reply_file(tmp_path, 7, model="m", used_tools=False)
