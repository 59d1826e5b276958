"""An address as it may be told to others: without who logs in there."""

import re

_USERINFO = re.compile(r"^([^/?#]*//)[^/?#]*@")


def without_userinfo(address: str) -> str:
    """The address less `user:secret@` before its host; anything else, paths too, stays as it is."""
    return _USERINFO.sub(r"\1", address)
