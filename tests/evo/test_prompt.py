from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.prompt import (
    AttemptPart,
    BuildFigure,
    ParentPart,
    PromptError,
    PromptParts,
    PromptTemplate,
    ScenarioFigure,
    ToolsPart,
    build_prompt,
    estimate_tokens,
    load_template,
)
from evo.reply import read_reply
from questions.question import Style

SOURCE = (Path(__file__).parent / "data" / "parent.cu").read_text()
SHIPPED = load_template()
FRAME = "$contract|$answer_format|\n\n$parents\n\n$attempts\n\n$compiler_message\n\n$reply_error\n\n$hint\n"
SHORT = PromptTemplate(frame=FRAME, contract="C", answer_format="F")
LAST_LINE = "Answer from this text alone: open no file, run nothing.\n"
FIGURES = tuple(
    ScenarioFigure(name=f"s{number}", candidate_ms=2.0, baseline_ms=2.0 * speedup, speedup=speedup)
    for number, speedup in enumerate((1.25, 0.875, 1.5, 1.0))
)
BUILD = BuildFigure(
    build="HEAD_DIM=64", kernel="f", registers=168, spill_bytes=24, shared_bytes=512, advisories=("wgmma serialised\n",)
)
PARENT = ParentPart(source=SOURCE, geomean=1.132, scenarios=FIGURES, builds=(BUILD,))
PARTS = PromptParts(
    style=Style.QUESTION,
    question="Do you win in kernel cycles?",
    parents=(PARENT,),
    device="NVIDIA H200",
    baseline="FlashAttention-3 3.0.0",
    attempts=(
        AttemptPart(change="oldest", status="PASSED", gain=0.97),
        AttemptPart(change="middle", status="COMPILE_ERROR", reason="line 3:\nexpected ;"),
        AttemptPart(change="", status="INCORRECT", reason="o is zero"),
    ),
    compiler_message="\n".join(f"error {number}" for number in range(8)),
)


def tokens_of(parts: PromptParts) -> int:
    return estimate_tokens(build_prompt(parts, SHORT, 10**9))


def test_a_prompt_holds_every_part_and_ends_as_it_must():
    prompt = build_prompt(PARTS, SHIPPED, 60000)
    assert f"```cuda\n{SOURCE}```" in prompt
    assert "Measured on NVIDIA H200 beside FlashAttention-3 3.0.0. Geometric mean of the speedups: 1.1320." in prompt
    assert "| s0 | 2.0000 | 2.5000 | 1.250 |" in prompt
    assert "| s1 | 2.0000 | 1.7500 | 0.875 (worst) | - |" in prompt
    assert "- f, HEAD_DIM=64: 168 registers, 24 bytes spilled, 512 bytes of static shared memory; wgmma" in prompt
    assert "- PASSED, 0.970 times its parent's score: oldest\n" in prompt
    assert "- COMPILE_ERROR (line 3: expected ;): middle\n" in prompt
    assert "- INCORRECT (o is zero): change not described\n" in prompt
    assert "```text\nerror 0\nerror 1\n" in prompt
    assert prompt.endswith(f"\n\nQuestion: Do you win in kernel cycles?\n\n{LAST_LINE}")


def test_the_room_below_the_roof_is_told_where_it_was_measured():
    first, *others = PARTS.parents[0].scenarios
    scenarios = (replace(first, roof_share=0.684), *others)
    prompt = build_prompt(replace(PARTS, parents=(replace(PARTS.parents[0], scenarios=scenarios),)), SHORT, 100_000)
    row = next(line for line in prompt.splitlines() if line.startswith(f"| {first.name} |"))
    assert row.endswith("| 68 % |")
    assert prompt.count("(worst)") == 1
    assert "\n\n\n" not in prompt.replace(SOURCE, "")


def test_with_tools_it_says_which_there_are_and_never_that_there_are_none():
    tools = ToolsPart(tools=(("measure", "times {a draft}"), ("occupancy", "counts $blocks")), calls=5)
    prompt = build_prompt(replace(PARTS, tools=tools), SHIPPED, 60000)
    assert LAST_LINE not in prompt
    assert "you may call these tools on drafts, 5 calls in all" in prompt
    assert prompt.endswith("\n\n- measure: times {a draft}\n- occupancy: counts $blocks\n")
    assert prompt.partition("Before you answer")[0] == build_prompt(PARTS, SHIPPED, 60000).removesuffix(LAST_LINE)


def test_the_tools_are_part_of_the_budget_and_are_never_cut():
    tools = ToolsPart(tools=(("measure", "x" * 3000),), calls=5)
    with_tools = replace(PARTS, tools=tools)
    assert tokens_of(with_tools) > tokens_of(PARTS) + 1000
    shortened = build_prompt(with_tools, SHORT, tokens_of(with_tools) - 1)
    assert "x" * 3000 in shortened
    assert "0.970 times" not in shortened


def test_the_shipped_rules_name_what_a_model_must_know():
    for word in ("attention.cuh", "AttentionParams", "TensorMap", "lse", "bottom-right", "[[launch]]", "[knobs]"):
        assert word in SHIPPED.contract
    for word in ("Hypothesis:", "Change:", "Expect:", "Claim:", "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"):
        assert word in SHIPPED.answer_format
    assert estimate_tokens(SHIPPED.frame + SHIPPED.contract + SHIPPED.answer_format) < 3000


@pytest.mark.parametrize(
    ("style", "hint"),
    [
        (Style.QUESTION, "Question: X"),
        (Style.IMPERATIVE, "Instruction: X"),
        (Style.INFORMATION, "Information: X"),
        (Style.PRESCRIPTION, "Change to make: X"),
        (Style.OPEN, "X"),
    ],
)
def test_styles_differ_in_the_hint_alone(style, hint):
    prompt = build_prompt(replace(PARTS, style=style, question=" X\n"), SHIPPED, 60000)
    bare = build_prompt(replace(PARTS, style=Style.BARE, question=""), SHIPPED, 60000)
    assert prompt == bare.removesuffix(LAST_LINE) + f"{hint}\n\n{LAST_LINE}"


@pytest.mark.parametrize("style", [Style.QUESTION, Style.IMPERATIVE, Style.INFORMATION, Style.PRESCRIPTION])
def test_a_style_without_its_text_is_an_error(style):
    with pytest.raises(PromptError, match=f"style {style}"):
        build_prompt(replace(PARTS, style=style, question=" "), SHIPPED, 60000)


def test_braces_and_dollars_come_through_verbatim():
    odd = "$question ${hint} $$ {threadIdx.x} {} {0} %s \\1 $parents\n"
    parts = replace(
        PARTS, question=odd, parents=(replace(PARENT, source=odd),), compiler_message=odd, reply_error=odd.strip()
    )
    prompt = build_prompt(parts, SHIPPED, 60000)
    assert prompt.count(odd.strip()) == 4
    assert f"```cuda\n{odd}```" in prompt


@pytest.mark.parametrize(("inside", "fence"), [("```\nx\n```", "````"), ("a ````` b", "``````"), ("`", "```")])
def test_a_fence_is_longer_than_any_inside_it(inside, fence):
    prompt = build_prompt(replace(PARTS, parents=(replace(PARENT, source=inside),)), SHORT, 60000)
    assert f"\n{fence}cuda\n{inside}\n{fence}\n" in prompt


def test_a_crossover_shows_both_parents_and_their_figures():
    second = ParentPart(source="// second\n", geomean=0.9, scenarios=FIGURES[:1])
    prompt = build_prompt(replace(PARTS, parents=(PARENT, second)), SHORT, 60000)
    assert prompt.index(SOURCE) < prompt.index("# A second kernel") < prompt.index("```cuda\n// second\n```")
    assert "speedups: 0.9000" in prompt


def test_a_parent_without_measurements_says_so():
    parts = replace(PARTS, parents=(ParentPart(source=SOURCE, status="STOPPED_EARLY"),))
    assert "It has no measurements: STOPPED_EARLY." in build_prompt(parts, SHORT, 60000)


def test_a_reask_quotes_why_the_last_reply_could_not_be_read():
    prompt = build_prompt(replace(PARTS, reply_error="edit 2: nowhere"), SHORT, 60000)
    assert "# The last reply could not be read; this is why\n\n```text\nedit 2: nowhere\n```" in prompt


def test_parts_without_text_leave_no_heading():
    prompt = build_prompt(replace(PARTS, attempts=(), compiler_message=""), SHIPPED, 60000)
    assert "Earlier attempts" not in prompt
    assert "What the compiler said" not in prompt
    assert "\n\n\n" not in prompt.replace(SOURCE, "")


@pytest.mark.parametrize("count", [0, 3])
def test_a_prompt_has_one_parent_or_two(count):
    with pytest.raises(ValueError, match=f"not {count}"):
        replace(PARTS, parents=(PARENT,) * count)


def test_tokens_are_bytes_over_three_rounded_up():
    assert [estimate_tokens(text) for text in ("", "a", "abc", "abcd", "\u00e9\u00e9")] == [0, 1, 1, 2, 2]


def test_older_attempts_go_first():
    prompt = build_prompt(PARTS, SHORT, tokens_of(PARTS) - 1)
    assert "oldest" not in prompt.partition("(Left out for length: 1 older.)")[2]
    assert "middle" in prompt
    assert "error 7" in prompt


def test_then_the_compilers_message_from_its_end():
    shorter = replace(PARTS, attempts=PARTS.attempts[2:], attempts_left_out=2)
    prompt = build_prompt(PARTS, SHORT, tokens_of(shorter) - 1)
    assert "error 0" in prompt
    assert "error 7" not in prompt
    assert "| s0 |" in prompt


def test_then_the_scenarios_between_the_worst_and_the_best():
    shorter = replace(PARTS, attempts=PARTS.attempts[2:], attempts_left_out=2, compiler_message="")
    prompt = build_prompt(PARTS, SHORT, tokens_of(shorter) - 1)
    rows = "| s1 | 2.0000 | 1.7500 | 0.875 (worst) | - |\n| s2 | 2.0000 | 3.0000 | 1.500 | - |\n"
    assert f"{rows}\n(Left out for length: 2 scenarios between these two.)" in prompt
    assert "| s0 |" not in prompt
    assert "168 registers" in prompt


def test_then_the_compilers_figures_then_the_newest_attempt():
    cut = replace(PARENT, scenarios=(FIGURES[1], FIGURES[2]), left_out=2)
    shorter = replace(PARTS, parents=(cut,), attempts=PARTS.attempts[2:], attempts_left_out=2, compiler_message="")
    prompt = build_prompt(PARTS, SHORT, tokens_of(shorter) - 1)
    assert "168 registers" not in prompt
    assert "o is zero" in prompt
    last = replace(shorter, parents=(replace(cut, builds=()),))
    assert "o is zero" not in build_prompt(PARTS, SHORT, tokens_of(last) - 1)


def test_the_source_and_the_question_are_never_cut():
    least = replace(
        PARTS,
        parents=(replace(PARENT, scenarios=(FIGURES[1], FIGURES[2]), left_out=2, builds=()),),
        attempts=(), attempts_left_out=3, compiler_message="",
    )  # fmt: skip
    prompt = build_prompt(PARTS, SHORT, tokens_of(least))
    assert SOURCE in prompt
    assert "Question: Do you win" in prompt
    with pytest.raises(PromptError, match=f"take {tokens_of(least)} tokens, the budget is {tokens_of(least) - 1}"):
        build_prompt(PARTS, SHORT, tokens_of(least) - 1)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ("$contract $answer_format $parents", r"lacks \$hint"),
        ("$contract $parents $hint", r"lacks \$answer_format"),
        (FRAME + "$kernel", r"names \$kernel"),
        (FRAME + "costs 5 $", "neither begins a name nor is doubled"),
    ],
)
def test_a_template_that_lacks_a_part_or_names_another_is_an_error(frame, said):
    with pytest.raises(PromptError, match=said):
        PromptTemplate(frame=frame, contract="", answer_format="")


def test_a_users_template_may_name_the_bare_question_and_double_a_dollar(tmp_path):
    path = tmp_path / "mine.md"
    path.write_text("$contract $answer_format ${parents}\nIt costs 5 $$.\n<$question>\n")
    prompt = build_prompt(PARTS, load_template(path), 60000)
    assert prompt.endswith(f"It costs 5 $.\n<Do you win in kernel cycles?>\n\n{LAST_LINE}")


def test_the_examples_of_the_answer_format_read_as_an_answer():
    example = SHIPPED.answer_format
    block = example[example.index("<<<<<<<") : example.index(">>>>>>> REPLACE") + len(">>>>>>> REPLACE")]
    reply = block.replace("whole lines of the kernel, copied exactly", "    return sum;").replace(
        "the lines that take their place; none at all to delete", "    return 2.0f * sum;"
    )
    assert read_reply(reply, SOURCE, "stop").source == SOURCE.replace("return sum;", "return 2.0f * sum;")


@settings(deadline=None)
@given(st.text(), st.text(), st.text(), st.integers(min_value=0, max_value=2000))
def test_no_text_breaks_a_prompt_or_its_budget(source: str, message: str, reason: str, budget: int):
    parts = replace(
        PARTS,
        parents=(replace(PARENT, source=source),),
        compiler_message=message,
        attempts=(AttemptPart(change=reason, status="INVALID", reason=reason),),
    )
    try:
        prompt = build_prompt(parts, SHORT, budget)
    except PromptError:
        return
    assert estimate_tokens(prompt) <= budget
    assert source in prompt
    assert prompt.endswith(f"Question: Do you win in kernel cycles?\n\n{LAST_LINE}")
