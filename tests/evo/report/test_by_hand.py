"""A kernel that a person put in is on the page as what it is."""

import pytest
from pages import parsed
from small_search import SOURCE, run_part, small_config

from evo.added_kernels import AddedKernel, add_kernel
from evo.report.account import Account
from evo.report.page import report_page
from evo.report.places import places
from evo.report.reading import read_account
from fitness.manifest import with_knobs
from population.individual import individual_id
from population.records import Birth
from population.run_folder import create_run_folder

ROOT = individual_id(SOURCE)
MINE = AddedKernel(
    source=with_knobs(SOURCE, {"STAGES": 2, "WIDTH": 4, "BLOCK_M": 16}) + "// mine\n", parent_ids=(ROOT,)
)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Account:
    """A run whose champion came by hand in its first generation."""
    folder = create_run_folder(tmp_path_factory.mktemp("by-hand"), "run")
    add_kernel(folder, MINE)
    run_part(small_config(generations=2), folder)
    return read_account(folder, now=0.0)


def test_its_step_has_a_gain_and_no_question(account: Account) -> None:
    mine = account.line[0]
    assert [step.kernel for step in account.line] == [MINE.id, ROOT]
    assert (mine.operator, mine.question, mine.generation, mine.parents) == ("hand", None, 1, (ROOT,))
    assert mine.gain == pytest.approx((mine.geomean or 0.0) / (account.line[1].geomean or 1.0))
    assert account.over_seed == mine.gain


def test_the_page_says_that_it_was_put_in(account: Account) -> None:
    page = parsed(report_page(account).html)
    texts = [" ".join(each.text.split()) for each in page.all("p")]
    assert f"Put in by hand: nothing was asked · evaluation 2. Generation 1 · hand of {ROOT}" in texts
    assert "A seed: nothing was asked · evaluation 1." in texts
    assert [each.text for each in page.all("span", class_="why")] == ["put in by hand", "seed"]


def test_a_family_tree_has_it_before_its_generations_questions() -> None:
    def birth(name: str, number: int, generation: int, operator: str) -> Birth:
        return Birth(
            id=name, source_sha256="", birth=number, generation=generation, operator=operator, parent_ids=(),
            question_id=None,
        )  # fmt: skip

    born = [
        birth("seed", -1, 0, "seed"),
        birth("early", -2, 1, "hand"),
        birth("a", 0, 1, "mutate"),
        birth("b", 1, 1, "mutate"),
        birth("mid", -3, 2, "hand"),
        birth("c", 3, 2, "mutate"),
        birth("late", -4, 3, "hand"),
    ]
    assert places(born) == {"seed": -1, "early": -0.5, "a": 0, "b": 1, "mid": 2.5, "c": 3, "late": 3.5}
    assert places(born[:2]) == {"seed": -1, "early": -0.5}
