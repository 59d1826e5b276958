"""Prompts and replies as files, for any model or person to answer: outbox/0007.md goes out, inbox/0007.md comes back.

A re-ask is 0007-1. The files hold plain text and nothing else: the prompt as it stands, and the reply as it was given.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from evo.answerers.answerer import AnswererError, Reply, Request, Usage
from evo.prompt import estimate_tokens
from population.atomic_file import write_atomically
from population.faults import RunFolderError
from population.run_folder import writing

_NAME: Final = re.compile(r"(\d{4,9})(?:-(\d{1,2}))?\.md", re.ASCII)
_UNFINISHED: Final = (".tmp", ".part", ".swp", "~")  # of a copy or an editor that is still at it

Key = tuple[int, int]  # number and attempt


class ReplyAwaited(AnswererError):
    """Nobody has answered yet: the prompt lies in the outbox, at `path`."""

    def __init__(self, request: Request, path: Path) -> None:
        super().__init__(f"{path} waits", hint="put the reply into the inbox under the same name", retryable=True)
        self.request = request
        self.path = path


class MailboxAnswerer:
    """Answers with the replies that are in; writes every other prompt to the outbox, to be answered later.

    `given_up` are those that nobody will answer any more, each with why the file that came was no reply, or with "".
    Neither they nor those answered stay in the outbox.
    """

    def __init__(
        self, *, outbox: Path, replies: Mapping[Key, Reply], given_up: Mapping[Key, str] = MappingProxyType({})
    ) -> None:
        self._outbox = outbox
        self._replies = replies
        self._given_up = dict(given_up)

    @property
    def description(self) -> str:
        """Where the prompts lie."""
        return f"mailbox: prompts in {self._outbox}, for any model or person to answer"

    def answer(self, request: Request) -> Reply:
        """The reply that is in. Raises ReplyAwaited where it will come later, AnswererError where it never will."""
        key = (request.number, request.attempt)
        if key not in self._replies and key not in self._given_up:
            raise ReplyAwaited(request, write_prompt(self._outbox, request))
        _remove(self._outbox / mail_name(*key))
        if key in self._given_up:
            why = self._given_up[key]
            came = f"a reply came that could not be read: {why}" if why else "no reply came"
            raise AnswererError(came, hint="the generation was finished without it", retryable=True)
        return self._replies[key]


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """What lies in an inbox: replies, why a file in a reply's place cannot be read, a sentence for any other file."""

    replies: Mapping[Key, Reply]
    unreadable: Mapping[Key, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def mail_name(number: int, attempt: int) -> str:
    """The name of a prompt's file and of its reply's."""
    return f"{number:04d}-{attempt}.md" if attempt else f"{number:04d}.md"


def write_prompt(outbox: Path, request: Request) -> Path:
    """The file that now holds the prompt, whole or not at all. Creates the folder. Raises RunFolderError."""
    path = outbox / mail_name(request.number, request.attempt)
    text = request.prompt.encode("utf-8", "replace")
    with writing(path):
        outbox.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != text:
            write_atomically(path, text.decode("utf-8"))
    return path


def waiting_replies(inbox: Path) -> list[Key]:
    """(number, attempt) of the replies that lie in the folder, in order; other files are left alone."""
    keys = (_key(path) for path in inbox.iterdir()) if inbox.is_dir() else ()
    return sorted(key for key in keys if key is not None)


def read_inbox(inbox: Path, *, model: str, used_tools: bool) -> Inbox:
    """The replies that are in, with their user's word on who answered and with what at hand.

    A file that holds nothing yet counts as not there: a shell makes it before the program that answers has begun.
    """
    replies, unreadable = {}, {}
    notes = [f"{path} is left alone: no prompt has that name; expected one like 0007.md" for path in _strangers(inbox)]
    for number, attempt in waiting_replies(inbox):
        try:
            reply = read_reply_file(inbox, number, attempt, model=model, used_tools=used_tools)
        except AnswererError as error:
            unreadable[number, attempt] = str(error)
            continue
        if reply.text.strip():
            replies[number, attempt] = reply
        else:
            notes.append(f"{inbox / mail_name(number, attempt)} is empty, and counts as not there yet")
    return Inbox(replies=replies, unreadable=unreadable, notes=tuple(notes))


def read_reply_file(inbox: Path, number: int, attempt: int = 0, *, model: str, used_tools: bool) -> Reply:
    """The reply in a file. `model` and `used_tools` are its user's word: who answered, and with what at hand.

    Its tokens are estimated and cost nothing. Raises AnswererError where the file is missing or is not text.
    """
    path = inbox / mail_name(number, attempt)
    if not path.is_file():
        wrong = "is no file" if path.exists() else "is not there"
        raise AnswererError(f"{path} {wrong}", hint="put the reply into a file of that name", retryable=True)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise AnswererError(f"{path} cannot be read: {error}", hint="make it readable", retryable=True) from error
    except UnicodeDecodeError as error:
        raise AnswererError(f"{path} is not UTF-8: {error}", hint="save it as UTF-8", retryable=True) from error
    return reply_of(text, model=model, used_tools=used_tools)


def reply_of(text: str, *, model: str, used_tools: bool) -> Reply:
    """A reply that was brought by hand: its tokens are estimated, and cost nothing."""
    usage = Usage(completion_tokens=estimate_tokens(text), estimated=True)
    return Reply(text=text, model=model, usage=usage, used_tools=used_tools)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RunFolderError(f"{path}: {error}; the folder must be writable") from error


def _strangers(inbox: Path) -> list[Path]:
    """What no prompt could have asked for, but for hidden files and unfinished ones."""
    paths = sorted(inbox.iterdir()) if inbox.is_dir() else []
    return [
        path
        for path in paths
        if _key(path) is None and not path.name.startswith(".") and not path.name.endswith(_UNFINISHED)
    ]


def _key(path: Path) -> Key | None:
    match = _NAME.fullmatch(path.name)
    key = (int(match[1]), int(match[2] or 0)) if match else None
    return key if key is not None and mail_name(*key) == path.name else None  # 00007.md and 0007-0.md name nothing
