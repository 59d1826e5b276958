"""Expressions of a manifest: whole-number arithmetic over named fields, evaluated by simpleeval."""

import ast
import operator
import re
import threading
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any

from simpleeval import SimpleEval

from fitness.faults import CandidateFault, invalid

MAX_LENGTH = 200
MAX_DEPTH = 50  # simpleeval recurses, and Python's stack is shared with the caller
LIMIT = 2**63  # every result, and every result on the way to it, lies strictly between -LIMIT and LIMIT
FUNCTIONS = ("cdiv", "min", "max")

_ALLOWED = "whole numbers, names, + - * // %, comparisons, and or not, a if c else b, cdiv(a, b), min(a, b), max(a, b)"
_FOREIGN = re.compile(r"[^A-Za-z0-9_ \t\n()+\-*/%<>=!,]")
_NOT_DECIMAL = re.compile(r"(?<![A-Za-z0-9_])[0-9]+[A-Za-z_][A-Za-z0-9_]*")
_NODES = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Name, ast.Load, ast.Constant,
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub, ast.Not, ast.And, ast.Or,
    ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq,
)  # fmt: skip
# CPython 3.11 counts the depth of a tree under construction once for all threads: two that build one at the same time
# fail each other with a SystemError.
_ONE_PARSER = threading.Lock()
_HINTS: dict[type[ast.AST], str] = {
    ast.Div: "/ gives fractions; write // or cdiv(a, b)",
    ast.Pow: "** is not allowed; write a product",
}


class Expression:
    """One expression, parsed and checked once; `evaluate` works it out. `place` says where it stands, for the faults.

    Numbers are decimal; comparisons and `not` give 0 or 1; // and % round towards minus infinity; `and`, `or` and
    the conditional leave the operands that they do not need unevaluated.
    Raises CandidateFault (INVALID) for anything outside the language.
    """

    def __init__(self, text: str, *, place: str = "expression") -> None:
        self.text = " ".join(text.split()) if len(text) <= MAX_LENGTH else text
        self._place = place
        self._root = self._parse(text)
        called = {id(node.func) for node in ast.walk(self._root) if isinstance(node, ast.Call)}
        named = {node for node in ast.walk(self._root) if isinstance(node, ast.Name) and id(node) not in called}
        self.names = frozenset(node.id for node in named)
        if functions := self.names.intersection(FUNCTIONS):
            raise self._fault(f"{min(functions)} is a function; write {min(functions)}(a, b)")
        self._evaluator = SimpleEval(operators=_operators(), functions=_functions(), names={})

    @property
    def names_outside_comparisons(self) -> frozenset[str]:
        """The names whose size the value may follow: not those inside comparisons, nor of `heads // kv_heads`."""
        found: set[str] = set()
        pending: list[ast.AST] = [self._root]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Compare) or _is_group_size(node):
                continue
            if isinstance(node, ast.Name):
                found.add(node.id)
            pending.extend(ast.iter_child_nodes(node))
        return frozenset(found & self.names)

    def require_names(self, allowed: Collection[str]) -> None:
        """Raise CandidateFault (INVALID) where the expression uses a name that is not in `allowed`."""
        for name in sorted(self.names.difference(allowed)):
            near = get_close_matches(name, allowed, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise self._fault(f"{name} is not known here; {hint}allowed: {', '.join(allowed)}")

    def evaluate(self, fields: Mapping[str, int]) -> int:
        """The value with these fields. Raises CandidateFault (INVALID) for a missing field, a division by zero, or a
        result of 2^63 or more on the way.
        """
        self.require_names(fields.keys())
        self._evaluator.names = fields
        try:
            return int(self._evaluator.eval(self.text, previously_parsed=self._root))
        except ZeroDivisionError as error:
            raise self._fault(f"it divides by zero{self._given(fields)}") from error
        except OverflowError as error:
            raise self._fault(f"{error}{self._given(fields)}; expected less than 2^63") from error

    def _parse(self, text: str) -> ast.expr:
        if len(text) > MAX_LENGTH:
            raise self._fault(f"it has {len(text)} characters; at most {MAX_LENGTH} are allowed")
        if foreign := _FOREIGN.search(text):
            raise self._fault(f"{foreign[0]!r} may not stand in an expression; allowed: {_ALLOWED}")
        if number := _NOT_DECIMAL.search(text):
            raise self._fault(f"{number[0]!r} is not a whole number in decimal digits")
        try:
            with _ONE_PARSER:
                root = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            problem = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
            raise self._fault(f"{problem}; allowed: {_ALLOWED}") from error
        if _depth(root) > MAX_DEPTH:
            raise self._fault(f"it is nested too deeply; at most {MAX_DEPTH} levels are allowed")
        for node in ast.walk(root):
            self._check_node(node)
        return root

    def _check_node(self, node: ast.AST) -> None:
        if not isinstance(node, _NODES):
            raise self._fault(_HINTS.get(type(node), f"{type(node).__name__} is not allowed; allowed: {_ALLOWED}"))
        if isinstance(node, ast.Constant):
            if type(node.value) is not int:
                raise self._fault(f"{node.value!r} is not a whole number; write 1 for true and 0 for false")
            if node.value >= LIMIT:
                raise self._fault(f"the number {node.value} is not below 2^63")
        if isinstance(node, ast.Call):
            self._check_call(node)

    def _check_call(self, node: ast.Call) -> None:
        function = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if function not in FUNCTIONS:
            raise self._fault(f"{function} is not a function here; allowed: {', '.join(FUNCTIONS)}")
        count = len(node.args)
        if node.keywords or count < 2 or (function == "cdiv" and count != 2):
            expected = "exactly two" if function == "cdiv" else "two or more"
            raise self._fault(f"{function} takes {expected} arguments without names")

    def _given(self, fields: Mapping[str, int]) -> str:
        values = ", ".join(f"{name} = {fields[name]}" for name in sorted(self.names))
        return f" with {values}" if values else ""

    def _fault(self, problem: str) -> CandidateFault:
        shown = self.text if len(self.text) <= MAX_LENGTH else self.text[:40] + "…"
        return invalid(f"{self._place}: {shown!r}: {problem}")


def _depth(root: ast.AST) -> int:
    depth, level = 0, [root]
    while level:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


def _is_group_size(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and ast.unparse(node) == "heads // kv_heads"


def _bounded(function: Callable[..., int]) -> Callable[..., int]:
    def call(*arguments: int) -> int:
        result = int(function(*arguments))
        if abs(result) >= LIMIT:
            raise OverflowError(f"a result is {result}")
        return result

    return call


def _operators() -> dict[type[ast.AST], Callable[..., int]]:
    plain: dict[type[ast.AST], Callable[..., Any]] = {
        ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
        ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg, ast.Not: operator.not_,
        ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
        ast.Eq: operator.eq, ast.NotEq: operator.ne,
    }  # fmt: skip
    return {node: _bounded(function) for node, function in plain.items()}


def _functions() -> dict[str, Callable[..., int]]:
    return {"cdiv": lambda a, b: -(-a // b), "min": min, "max": max}
