"""The names that a manifest may give to knobs, defines and kernels."""

import keyword
import re

from fitness.expressions import FUNCTIONS
from fitness.faults import invalid

SCENARIO_FIELDS = ("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "head_dim", "causal", "bf16")
DEVICE_FIELD = "sm_count"

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CPP_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t
    class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue
    decltype default defined delete do double dynamic_cast else enum explicit export extern false float for
    friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast requires return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
    using virtual void volatile wchar_t while xor xor_eq
"""


def check_identifier(name: str, place: str) -> None:
    """Raise CandidateFault (INVALID) unless `name` can name something in C++."""
    if not _IDENTIFIER.fullmatch(name):
        raise invalid(f"{place}: {name!r} is not a C++ identifier (ASCII letters, digits, _)")
    if name in _CPP_KEYWORDS.split() or name == "main":
        raise invalid(f"{place}: {name} has a meaning of its own in C++; choose another name")


def check_flag(name: str, place: str) -> None:
    """Raise CandidateFault (INVALID) unless `name` can be a -D flag that expressions may use as well."""
    check_identifier(name, place)
    if name in (*SCENARIO_FIELDS, DEVICE_FIELD, *FUNCTIONS):
        raise invalid(f"{place}: {name} has a meaning of its own in expressions")
    if name.startswith(("EVO_", "__")) or re.match("_[A-Z]", name) or keyword.iskeyword(name):
        raise invalid(f"{place}: {name} is reserved; choose another name")
