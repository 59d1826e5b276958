"""What NVRTC's log says: each kernel's resources, ptxas's advisories, and the errors in words that may be shown."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from fitness.evaluation import KernelResources
from fitness.shown_text import shown_text

CANDIDATE_FILE = "candidate.cu"
_SHOWN_FILES = frozenset({CANDIDATE_FILE, "attention.cuh"})

_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '([^']+)'")
# A number is sought from its first digit on alone: a source may have a line of nothing else, which a warning quotes.
_FRAME = re.compile(r"(?<!\d)(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"ptxas info\s*: Used (\d+) registers")
_STATIC_SHARED = re.compile(r"(?<!\d)(\d+) bytes smem")
_ADVISORY = re.compile(r"ptxas (?:info\s*: (?=\(C\d+\))|warning\s*: )(.+)")
_HARMLESS = ("(C7519)",)  # "warpgroup.arrive is injected": every kernel with wgmma has it

_MESSAGE = re.compile(r"(?:\w+: )?(?P<file>\S.*?)\((?P<line>\d+)\): (?P<text>.+)")
_ERROR = re.compile(r"(?:catastrophic |internal )?error\b", re.IGNORECASE)
_PTXAS_ERROR = re.compile(r"ptxas\b.*?(?:error|fatal)\s*: (?P<text>.+)")
_ELSEWHERE = re.compile(r"\bat line (?P<line>\d+) of \"?(?P<file>[^\s\"]+)")
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MAX_LINES = 60
_MAX_CHARACTERS = 4000
_MAX_LINE = 200
_MAX_ADVISORY = 500


def kernel_resources(log: str) -> tuple[KernelResources, ...]:
    """What `--ptxas-options=-v` reports, in the order of the log. Spills of functions it calls count for a kernel."""
    kernels: list[KernelResources] = []
    kernel, frames = "", [(0, 0, 0)]
    for line in log.splitlines():
        if entry := _ENTRY.match(line):
            kernel, frames = entry[1], []
        elif frame := _FRAME.search(line):
            frames.append((int(frame[1]), int(frame[2]), int(frame[3])))
        elif (used := _USED.match(line)) and kernel:
            shared = _STATIC_SHARED.search(line)
            kernels.append(
                KernelResources(
                    kernel=kernel,
                    registers=int(used[1]),
                    spill_store_bytes=sum(stores for _, stores, _ in frames),
                    spill_load_bytes=sum(loads for _, _, loads in frames),
                    stack_bytes=max((stack for stack, _, _ in frames), default=0),
                    shared_bytes=int(shared[1]) if shared else 0,
                )
            )
            kernel = ""
    return tuple(kernels)


def advisories(log: str) -> tuple[str, ...]:
    """ptxas's warnings and numbered remarks, each once, without those that every kernel has; at most 60 of them."""
    found = (shown_text(each[1].strip(), _MAX_ADVISORY) for each in map(_ADVISORY.match, log.splitlines()) if each)
    told = dict.fromkeys(text for text in found if not text.startswith(_HARMLESS))
    return tuple(islice(told, _MAX_LINES))


def foretells_collapse(advisory: str) -> bool:
    """Whether the build it was said of will run at 0.5 to 0.8 of the speed that it could have.

    So it is with serialised wgmma alone: of eighty builds measured on Hopper, the nine that collapsed carried that
    advisory and no other did (tests/fitness/test_hopper_kernels.py).
    """
    return "wgmma.mma_async instructions are serialized" in advisory


def readable_errors(log: str) -> str:
    """The errors of a log that may go into a prompt, at most 60 lines and 4000 characters.

    A line that names another file than the candidate or the contract's header is left out, and so are the source
    lines and carets under it: whatever a candidate manages to include, its text is not shown.
    """
    lines = [line for message in _messages(log) for line in _shown(message)]
    lines = [line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + " …" for line in lines]
    kept: list[str] = []
    for line in lines[:_MAX_LINES]:
        if sum(len(shown) + 1 for shown in kept) + len(line) > _MAX_CHARACTERS:
            break
        kept.append(line)
    if len(kept) < len(lines):
        kept.append(f"… and {len(lines) - len(kept)} more lines")
    return "\n".join(kept) or "the compiler refused the source, and its messages name no line of it"


def clashing_flag(log: str, names: Sequence[str]) -> str:
    """The first of the -D flags' names that stands in a header's line with an error, which it breaks; "" for none."""
    for head, *context in _messages(log):
        parts = _MESSAGE.match(head)
        if parts is None or not _ERROR.match(parts["text"]) or parts["file"] == CANDIDATE_FILE or not context:
            continue
        words = set(_WORD.findall(context[0]))
        if clash := next((name for name in names if name in words), ""):
            return clash
    return ""


def _messages(log: str) -> Iterator[list[str]]:
    """Each message with the lines that belong to it: source, caret, where it was instantiated."""
    message: list[str] = []
    for line in log.replace("\0", "").splitlines():
        starts = line[:1].strip() != "" or line.startswith(" ptxas")
        if starts and message:
            yield message
            message = []
        if line.strip():
            message.append(line.rstrip())
    if message:
        yield message


def _shown(message: list[str]) -> list[str]:
    head, *context = message
    if ptxas := _PTXAS_ERROR.match(head.strip()):
        return [f"ptxas: {ptxas['text'].strip()}"]
    parts = _MESSAGE.match(head)
    if parts is None or not _ERROR.match(parts["text"]):
        return []
    if parts["file"] not in _SHOWN_FILES:
        lines = [place["line"] for place in map(_ELSEWHERE.search, context) if place and place["file"] in _SHOWN_FILES]
        return [f"{CANDIDATE_FILE}({line}): error in a header that this line uses" for line in lines[:1]]
    if "source file" in parts["text"]:  # it names the file that could not be opened
        allowed = "attention.cuh, cuda_bf16.h and cuda_fp16.h"
        return [f"{parts['file']}({parts['line']}): error: this cannot be included; only {allowed} can"]
    places = [(line, _ELSEWHERE.search(line)) for line in context]
    return [head, *(line for line, place in places if place is None or place["file"] in _SHOWN_FILES)]
