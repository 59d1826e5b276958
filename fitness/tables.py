"""TOML tables whose every key is checked as it is read."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from fitness.expressions import LIMIT, Expression
from fitness.faults import CandidateFault, invalid


class Table:
    """A table of a manifest. `place` names it in faults; `keys` are those that it may have.

    Every method reads one key, and raises CandidateFault (INVALID) where it is missing without a default, has another
    type, or holds an expression with a name that is not in `names`.
    """

    def __init__(self, content: object, *, place: str, keys: Collection[str]) -> None:
        self.place = place
        self._entries = as_mapping(content, place)
        for key in self._entries:
            if key not in keys:
                raise invalid(f"{place}: unknown key {_shown(key)}; {_suggestion(key, keys)}")

    def text(self, key: str) -> str:
        """A string."""
        value = self._required(key)
        if not isinstance(value, str):
            raise self._mistyped(key, value, "a string")
        return value

    def integer(self, key: str) -> int:
        """A whole number, which a boolean is not."""
        return self._as_integer(key, self._required(key))

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        return tuple(self._as_integer(f"{key}[{i}]", value) for i, value in enumerate(self._list(key)))

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        values = self._list(key)
        strings = tuple(value for value in values if isinstance(value, str))
        if len(strings) != len(values):
            raise self._mistyped(key, values, "a list of strings")
        return strings

    def flag(self, key: str, *, default: bool) -> bool:
        """A boolean."""
        value = self._entries.get(key, default)
        if not isinstance(value, bool):
            raise self._mistyped(key, value, "true or false")
        return value

    def expression(self, key: str, names: Collection[str], *, default: str | None = None) -> str:
        """The text of an expression, which may stand there as a plain whole number."""
        value = self._required(key) if default is None else self._entries.get(key, default)
        return self._as_expression(key, value, names).text

    def expressions(self, key: str, names: Collection[str], *, at_least: int, at_most: int) -> tuple[str, ...]:
        """The texts of a list of expressions, filled up with "1" to `at_most`."""
        values = self._list(key)
        if not at_least <= len(values) <= at_most:
            expected = f"{at_most}" if at_least == at_most else f"{at_least} to {at_most}"
            raise invalid(f"{self.place}: {key} has {len(values)} entries; expected {expected}")
        texts = [self._as_expression(f"{key}[{i}]", value, names).text for i, value in enumerate(values)]
        return (*texts, *["1"] * (at_most - len(texts)))

    def tables(self, key: str, keys: Collection[str]) -> tuple["Table", ...]:
        """The tables of a `[[key]]` list; empty where there is none."""
        value = self._entries.get(key, [])
        if not isinstance(value, list):
            raise self._mistyped(key, value, f"one or more [[{key}]]")
        return tuple(Table(item, place=f"[[{key}]] {i}", keys=keys) for i, item in enumerate(value, start=1))

    def mapping(self, key: str) -> Mapping[str, object]:
        """A `[key]` table whose keys are free; empty where there is none."""
        return as_mapping(self._entries.get(key, {}), f"[{key}]")

    def _required(self, key: str) -> object:
        if key not in self._entries:
            raise invalid(f"{self.place}: {key} is missing")
        return self._entries[key]

    def _list(self, key: str) -> list[object]:
        value = self._required(key)
        if not isinstance(value, list):
            raise self._mistyped(key, value, "a list")
        return value

    def _as_integer(self, key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= LIMIT:
            raise self._mistyped(key, value, "a whole number below 2^63")
        return value

    def _as_expression(self, key: str, value: object, names: Collection[str]) -> Expression:
        return as_expression(value, f"{self.place}: {key}", names)

    def _mistyped(self, key: str, value: object, expected: str) -> CandidateFault:
        return invalid(f"{self.place}: {key} is {_shown(value)}; expected {expected}")


def as_mapping(content: object, place: str) -> Mapping[str, object]:
    """The content, once it is known to be a table. Raises CandidateFault (INVALID)."""
    if not isinstance(content, dict):
        raise invalid(f"{place} is {_shown(content)}; expected a table")
    return content


def as_expression(value: object, place: str, names: Collection[str]) -> Expression:
    """The expression that a TOML string or whole number holds. Raises CandidateFault (INVALID)."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise invalid(f"{place} is {_shown(value)}; expected an expression or a whole number")
    expression = Expression(_decimal(value) if isinstance(value, int) else value, place=place)
    expression.require_names(names)
    return expression


def _decimal(value: int) -> str:
    # Python refuses to print thousands of digits; twenty nines are refused as too large just as well.
    return str(value) if abs(value) < 2**64 else "9" * 20


def _suggestion(key: str, keys: Collection[str]) -> str:
    near = get_close_matches(key, keys, n=1)
    return f"did you mean {near[0]}?" if near else f"expected {', '.join(keys)}"


def _shown(value: object) -> str:
    try:
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
    except ValueError:  # Python prints no number of thousands of digits, which TOML can hold in hexadecimal
        shown = "a number of thousands of digits"
    return shown if len(shown) <= 60 else shown[:60] + "…"
