"""Prompts and replies as files, for any model or person to answer: outbox/0007.md goes out, inbox/0007.md comes back.

A re-ask is 0007-1. The files hold plain text and nothing else: the prompt as it stands, and the reply as it was given.
"""

import re
from pathlib import Path
from typing import Final

from evo.answerers.answerer import AnswererError, Reply, Request, Usage
from evo.prompt import estimate_tokens

_NAME: Final = re.compile(r"(\d{4,9})(?:-(\d{1,2}))?\.md", re.ASCII)


def write_prompt(outbox: Path, request: Request) -> Path:
    """The file that now holds the prompt, whole or not at all. Creates the folder."""
    outbox.mkdir(parents=True, exist_ok=True)
    path = outbox / _name(request.number, request.attempt)
    part = path.with_suffix(".part")
    part.write_bytes(request.prompt.encode("utf-8", "replace"))
    part.replace(path)
    return path


def waiting_replies(inbox: Path) -> list[tuple[int, int]]:
    """(number, attempt) of the replies that lie in the folder, in order; other files are left alone."""
    names = (_NAME.fullmatch(path.name) for path in inbox.iterdir()) if inbox.is_dir() else ()
    return sorted((int(name[1]), int(name[2] or 0)) for name in names if name)


def read_reply_file(inbox: Path, number: int, attempt: int = 0, *, model: str, used_tools: bool) -> Reply:
    """The reply in a file. `model` and `used_tools` are its user's word: who answered, and with what at hand.

    Its tokens are estimated and cost nothing. Raises AnswererError where the file is missing or is not text.
    """
    path = inbox / _name(number, attempt)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise AnswererError(
            f"{path} is not there", hint="put the reply into a file of that name", retryable=True
        ) from None
    except UnicodeDecodeError as error:
        raise AnswererError(f"{path} is not UTF-8: {error}", hint="save it as UTF-8", retryable=True) from error
    usage = Usage(completion_tokens=estimate_tokens(text), estimated=True)
    return Reply(text=text, model=model, usage=usage, used_tools=used_tools)


def _name(number: int, attempt: int) -> str:
    return f"{number:04d}-{attempt}.md" if attempt else f"{number:04d}.md"
