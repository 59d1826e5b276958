"""`evo tell`: take in replies and measured candidates, and go on with a run as far as they go."""

from collections.abc import Mapping, Sequence

from rich.console import Console

from evo import mailbox_run
from evo.answerers.mailbox import Inbox, read_inbox
from evo.commands.next_step import show_waiting
from evo.mailbox_search import MailboxSearch
from evo.settings import ConfigError

_USAGE = "evo tell RUN [partial=true] [model=NAME] [used_tools=true]"
_KEYS = ("partial", "model", "used_tools")


def tell(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0. Raises ConfigError for a bad command line."""
    if not arguments or "=" in arguments[0] or arguments[0].startswith("-"):
        raise ConfigError(f"tell: no run named; expected {_USAGE}")
    options = _options(arguments[1:])
    partial, used_tools = _flag(options, "partial"), _flag(options, "used_tools")

    def read(search: MailboxSearch) -> Inbox:
        model = options.get("model") or search.config.answerer.model
        inbox = read_inbox(search.folder.inbox, model=model or "", used_tools=used_tools)
        if not model and any(map(search.is_new, inbox.replies)):
            raise ConfigError("tell: who answered? say so by model=NAME here, or by answerer.model=NAME at evo ask")
        return inbox

    show_waiting(mailbox_run.tell(arguments[0], read, partial=partial, console=console), console)
    return 0


def _options(words: Sequence[str]) -> dict[str, str]:
    options = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in _KEYS or not equals:
            raise ConfigError(f"tell: {word!r} is no option; expected {_USAGE}")
        options[key] = value
    return options


def _flag(options: Mapping[str, str], key: str) -> bool:
    value = options.get(key, "false")
    if value not in ("true", "false"):
        raise ConfigError(f"tell: {key}={value}: expected true or false")
    return value == "true"
