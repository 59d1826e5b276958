"""What g++ says of a candidate, in the words and within the limits of the project's other compiler."""

import re
from pathlib import Path

from fitness.backends.host_source import CANDIDATE_NAME, ENTRIES_NAME, RUNTIME
from fitness.compile_log import readable_errors

_ERROR = re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.+)")
_CANDIDATE_LINE = re.compile(rf"\b{re.escape(CANDIDATE_NAME)}:(\d+)")
_UNDEFINED = re.compile(r"undefined reference to `([^`'\n]++)'")
_EXHAUSTED = re.compile(r"memory exhausted|out of memory|internal compiler error|Killed|CPU time limit|File size limit")


def host_errors(log: str) -> str:
    """The errors of g++'s log that may go into a prompt.

    One in a header that stands for CUDA is told at the candidate's line that uses it.
    """
    for scope in ("{anonymous}::", "evo::Call::"):  # where the runtime puts the candidate, and CUDA's functions
        log = log.replace(scope, "")
    lines, user = [], "1"  # the candidate's line that was named last, as the place that a header is used at
    for line in log.splitlines():
        error = _ERROR.match(line)
        if error is not None:
            lines.append(_restated(error, user))
        else:
            place = _CANDIDATE_LINE.search(line)
            user = place[1] if place else user
            lines.append(line)
    further = [f"{name} is declared and never defined" for name in dict.fromkeys(_UNDEFINED.findall(log))]
    if _EXHAUSTED.search(log):
        further.append("the compiler crashed, or ran out of memory, time or space")
    return readable_errors("\n".join([*lines, *(f"{CANDIDATE_NAME}(1): error: {text}" for text in further)]))


def _restated(error: re.Match[str], user: str) -> str:
    """The error as NVRTC would word its place."""
    path, text = Path(error["file"]), error["text"]
    if path.name in (CANDIDATE_NAME, "attention.cuh"):
        return f"{path.name}({error['line']}): error: {text}"
    if path.name == ENTRIES_NAME:
        return f"{CANDIDATE_NAME}(1): error: [[launch]]: {text}"
    # The lines of our own headers, which would follow, mean nothing to whoever wrote the candidate.
    shown = text if path.parent == RUNTIME else "in a header that this line uses"
    return f"{CANDIDATE_NAME}({user}): error: {shown}\n(in a header)"
