"""A model that turns one knob of the kernel in its prompt by an edit block."""

from loopback_server import Canned, LoopbackServer, Received

from fitness.manifest import read_manifest, with_knobs

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}


def prompt_of(received: Received) -> str:
    """The text that the model was asked with."""
    text: str = received.body["messages"][0]["content"]
    return text


def parent_in(prompt: str) -> str:
    """The kernel that a prompt asks about."""
    return prompt.partition("# The kernel\n\n```cuda\n")[2].partition("```")[0]


def turned(source: str, step: int) -> str:
    """The kernel with one of its knobs at its next value."""
    knobs = read_manifest(source).knobs
    knob = knobs[step % len(knobs)]
    return with_knobs(source, {knob.name: knob.choices[(knob.choices.index(knob.value) + 1) % len(knob.choices)]})


def edit(before: str, after: str) -> str:
    """An edit block for the one line in which two kernels differ."""
    [(old, new)] = [pair for pair in zip(before.split("\n"), after.split("\n"), strict=True) if pair[0] != pair[1]]
    return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


def answer(received: Received, step: int) -> Canned:
    """A good reply: the `step`-th knob turned."""
    parent = parent_in(prompt_of(received))
    return LoopbackServer.completion(f"Change: a knob\n\n{edit(parent, turned(parent, step))}", usage=USAGE)
