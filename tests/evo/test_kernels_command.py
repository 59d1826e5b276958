"""`evo kernels`: a person's kernel to a run, and two of its kernels joined."""

from dataclasses import replace
from pathlib import Path

import pytest
from by_files import OPTIONS, Said, by_files, evo, names
from small_search import SOURCE, run_part, small_config, small_settled
from small_shots import shot, shot_config
from small_steady import steady

from evo.added_kernels import AddedKernel, add_kernel, kernels_taken_in, read_kernel
from evo.config import BackendKind
from evo.dropped_files import dropped_files
from evo.kernel_checks import MOST_BYTES
from evo.merging import merge_texts, with_joined_knobs
from evo.result import build_result, write_result
from evo.run_settings import fixed_settings, require_same_settings
from evo.seeds import read_seed
from evo.settings import ConfigError
from fitness.manifest import read_manifest, with_knobs
from population.archive import create_archive, open_archive
from population.archive_reader import read_archive
from population.individual import Individual, individual_id, normalise
from population.run_folder import RunFolder, create_run_folder

ROOT = individual_id(SOURCE)
STORE = "    params.o[threadIdx.x] = to_element(0.0f);\n"


def variant(head: str = "", tail: str = "", **knobs: int) -> str:
    """The seed with a line before its include, another after its store, and other knobs."""
    return with_knobs(SOURCE.replace("#include", f"{head}#include").replace(STORE, f"{STORE}{tail}"), knobs)


ONE = variant(head="// one\n", BLOCK_M=64)
OTHER = variant(tail="    // other\n", WIDTH=2)
THIRD = variant(tail="    // third\n")
NEW = variant(head="// new\n", UNROLL=4)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of one generation, with three kernels by hand in it."""
    folder = create_run_folder(tmp_path_factory.mktemp("kernels"), "run")
    for source in (ONE, OTHER, THIRD):
        add_kernel(folder, AddedKernel(source=source, parent_ids=(ROOT,)))
    run_part(small_config(generations=1), folder)
    for path in dropped_files(folder.added):
        path.unlink()  # they are taken in
    return folder


@pytest.fixture
def run(begun: RunFolder) -> RunFolder:
    for path in begun.added.iterdir():
        path.unlink()
    return begun


def file_of(folder: Path, text: str | bytes) -> str:
    path = folder / "mine.cu"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return str(path)


def put(run: RunFolder) -> list[AddedKernel]:
    return [read_kernel(path) for path in dropped_files(run.added)]


def refused(said: Said) -> str:
    assert (said.code, said.out, said.errors.count("\n")) == (2, "", 1)
    return said.errors


def test_one_is_put_to_a_run_while_another_process_writes(run: RunFolder, tmp_path: Path) -> None:
    with open_archive(run):
        said = evo("kernels", "add", str(run.path), file_of(tmp_path, NEW), f"parents={individual_id(ONE)},{ROOT}")
    assert (said.code, said.errors) == (0, "")
    assert put(run) == [AddedKernel(source=NEW, parent_ids=(individual_id(ONE), ROOT))]
    [path] = dropped_files(run.added)
    name = individual_id(NEW)
    assert said.out == f"{name} is judged beside the children of the run's next generation; it waits as {path}\n"
    again = evo("kernels", "add", str(run.path), file_of(tmp_path, NEW))
    parents = f"parents={individual_id(ONE)},{ROOT}"
    assert (again.code, again.out) == (0, f"{name} waits already, with {parents}, as {path}\n")
    of_it = tmp_path / "of-it.cu"
    of_it.write_text(variant(head="// newer\n"), encoding="utf-8")
    assert evo("kernels", "add", str(run.path), str(of_it), f"parents={name}").code == 0
    assert put(run)[1].parent_ids == (name,)


def test_several_at_once_and_a_shipped_one_by_its_name(run: RunFolder, tmp_path: Path) -> None:
    said = evo("kernels", "add", str(run.path), file_of(tmp_path, NEW), "naive")
    assert (said.code, said.out.count("it waits as")) == (0, 2)
    assert [kernel.parent_ids for kernel in put(run)] == [(), ()]
    assert put(run)[1].source == normalise(read_seed("naive"))


def test_one_that_waits_keeps_its_parents_and_says_which(run: RunFolder, tmp_path: Path) -> None:
    add = ("kernels", "add", str(run.path), file_of(tmp_path, NEW))
    assert evo(*add).code == 0
    [path] = dropped_files(run.added)
    assert evo(*add, f"parents={ROOT}").out == f"{individual_id(NEW)} waits already, without parents, as {path}\n"
    assert put(run) == [AddedKernel(source=NEW)]


def host_run(root: Path, *words: str) -> RunFolder:
    """A run by files that has not begun to measure."""
    run = by_files(root, "host").folder
    options = ("seeds=[tiled]", "suite=smoke", "backend=host", "answerer.model=me")
    assert evo("ask", str(run.path), *options, *words).code == 0
    return run


def test_on_the_host_a_warning_says_what_lets_a_models_code_run(tmp_path: Path) -> None:
    run, tiled = host_run(tmp_path), normalise(read_seed("tiled"))
    mine = file_of(tmp_path, f"{tiled}// mine\n")
    said = evo("kernels", "add", str(run.path), mine)
    assert (said.code, len(put(run))) == (0, 1)
    [_, warning] = said.out.splitlines()
    assert warning.startswith(f"{put(run)[0].id} changes more than knob values of a shipped seed: on the host backend")
    assert "backend.run_model_code=true" in warning
    assert evo("kernels", "add", str(run.path), mine).out.splitlines()[1:] == [warning]


def test_on_the_host_knobs_alone_and_what_is_allowed_need_no_warning(tmp_path: Path) -> None:
    run, tiled = host_run(tmp_path), normalise(read_seed("tiled"))
    knob = next(each for each in read_manifest(tiled).knobs if len(each.choices) > 1)
    other = next(value for value in knob.choices if value != knob.value)
    turned = file_of(tmp_path, with_knobs(tiled, {knob.name: other}))
    assert evo("kernels", "add", str(run.path), turned, "naive").out.count("\n") == 2
    (tmp_path / "allowed").mkdir()
    allowed = host_run(tmp_path / "allowed", "backend.run_model_code=true")
    said = evo("kernels", "add", str(allowed.path), file_of(tmp_path, f"{tiled}// mine\n"))
    assert (said.code, said.out.count("\n")) == (0, 1)


def test_what_a_run_began_on_counts(tmp_path: Path) -> None:
    """One that left its backend to us has settled it since."""
    run = create_run_folder(tmp_path, "settled")
    with create_archive(run) as archive:
        settled = replace(small_settled(small_config()), backend=BackendKind.host)
        require_same_settings(archive, fixed_settings(small_config(), settled))
        for source in (SOURCE, ONE, OTHER):
            birth = -1 - [SOURCE, ONE, OTHER].index(source)
            parents = () if source == SOURCE else (ROOT,)
            archive.record_individual(
                Individual.from_source(
                    source, birth=birth, generation=0, operator="hand" if parents else "seed", parent_ids=parents
                )
            )
    said = evo("kernels", "merge", str(run.path), individual_id(ONE), individual_id(OTHER))
    assert (said.code, said.out.count("backend.run_model_code=true")) == (0, 1)


def test_one_that_was_judged_is_nothing_new(run: RunFolder, tmp_path: Path) -> None:
    said = evo("kernels", "add", str(run.path), file_of(tmp_path, ONE.replace("\n", " \r\n")))
    assert (said.code, said.out) == (0, f"{individual_id(ONE)} was judged before: nothing new\n")
    assert put(run) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\xff\xfe", "cannot be read ('utf-8' codec can't decode"),
        (b"a" * (MOST_BYTES + 1), "more than 1000000 bytes; expected one kernel's text"),
        ("int main() {}\n", "is no kernel that can be judged: "),
        ("", "is no kernel that can be judged: "),
        (SOURCE.replace('kernel = "attention_forward"', 'kernel = "other"'), "is no kernel that can be judged: "),
        (SOURCE.replace("contract = 1", "contract = 99"), "is no kernel that can be judged: "),
        (f"{SOURCE}<<<<<<< k1\n=======\n>>>>>>> k2\n", "line 22: two texts meet there, and nobody has joined them"),
    ],
)
def test_what_is_no_kernel_is_told_of_at_once(run: RunFolder, tmp_path: Path, text: str | bytes, said: str) -> None:
    told = refused(evo("kernels", "add", str(run.path), file_of(tmp_path, text)))
    assert "mine.cu" in told
    assert said in told
    assert put(run) == []


def test_of_several_none_is_put_where_one_is_no_kernel(run: RunFolder, tmp_path: Path) -> None:
    refused(evo("kernels", "add", str(run.path), "naive", file_of(tmp_path, "nothing")))
    assert put(run) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "kernels: no action named; expected evo kernels add RUN KERNEL.cu… [parents=ID,ID] | evo kernels merge"),
        (["put"], "kernels: 'put' is no action; expected"),
        (["add"], "kernels add: expected a run and one kernel or more"),
        (["add", "RUN"], "kernels add: expected a run and one kernel or more"),
        (["add", "RUN", "naive", "parents=k1", "parents=k2"], "kernels add: expected a run and one kernel or more"),
        (["add", "RUN", "nowhere.cu"], "nowhere.cu: no such file; expected a kernel's .cu file"),
        (["add", "RUN", "/"], "/: no such file"),
        (["add", "RUN", "naive", "parents=k000000000000"], "'k000000000000' is no kernel of "),
        (["add", "RUN", "naive", "parents="], "'' is no kernel of "),
        (["add", "nowhere", "naive"], "nowhere: no such run"),
        (["merge", "RUN", "k1"], "kernels merge: expected a run and the ids of two different kernels"),
        (["merge", "RUN", "k1", "ROOT"], "kernels merge: 'k1' is no kernel of "),
        (["merge", "RUN", "ROOT", "ONE"], "whose text it has changed already; expected two of different lines"),
        (["merge", "RUN", "ONE", "ONE"], "kernels merge: expected a run and the ids of two different kernels of it"),
    ],
)
def test_a_bad_command_line_gets_one_line(run: RunFolder, words: list[str], said: str) -> None:
    named = {"RUN": str(run.path), "ROOT": ROOT, "ONE": individual_id(ONE)}
    assert said in refused(evo("kernels", *[named.get(word, word) for word in words]))
    assert put(run) == []


def test_a_run_that_is_over_says_so_and_keeps_it_for_a_later_part(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "over")
    stop = run_part(small_config(generations=1), folder)
    with read_archive(folder) as archive:
        settings = {"answerer": "offline"}
        write_result(folder, build_result(archive, settings=settings, generations=1, stop_reason=stop.reason))
    said = evo("kernels", "add", str(folder.path), file_of(tmp_path, NEW))
    assert said.code == 1
    assert "the search is over: generation budget reached: 1 of 1. Nothing is lost: it takes in what waits" in said.out
    run_part(small_config(generations=2), folder)
    with read_archive(folder) as archive:
        assert [(taken.kernel.source, taken.generation) for taken in kernels_taken_in(archive)] == [(NEW, 2)]


def test_a_run_without_generations_takes_none(tmp_path: Path) -> None:
    once = shot(tmp_path, "once", shot_config())
    assert "a single shot has no generations to take a kernel in" in refused(
        evo("kernels", "add", str(once.path), file_of(tmp_path, NEW))
    )
    flowing = create_run_folder(tmp_path, "flowing")
    with create_archive(flowing) as archive:
        require_same_settings(archive, fixed_settings(steady(), small_settled(steady())))
    assert "a steady search has no generations" in refused(
        evo("kernels", "add", str(flowing.path), file_of(tmp_path, NEW))
    )
    assert not flowing.added.exists()


def test_a_single_shot_by_files_takes_none_before_it_measures(tmp_path: Path) -> None:
    shots = by_files(tmp_path)
    words = ("experiment=single_shot", "single_shot.questions=2", *OPTIONS[:2], "answerer.model=me")
    assert shots.command("ask", *words).code == 0
    told = refused(evo("kernels", "add", str(shots.folder.path), file_of(tmp_path, NEW)))
    assert "a single shot has no generations" in told


def test_siblings_are_joined_over_their_parent(run: RunFolder) -> None:
    pair = individual_id(ONE), individual_id(OTHER)
    said = evo("kernels", "merge", str(run.path), *pair)
    both = variant(head="// one\n", tail="    // other\n", BLOCK_M=64, WIDTH=2)
    assert put(run) == [AddedKernel(source=both, parent_ids=pair)]
    assert (said.code, said.errors) == (0, "")
    assert said.out.startswith(f"{pair[0]} and {pair[1]}, joined over {ROOT}: {individual_id(both)} is judged beside")


def test_where_siblings_meet_a_person_finishes_it(run: RunFolder) -> None:
    pair = individual_id(OTHER), individual_id(THIRD)
    said = evo("kernels", "merge", str(run.path), *pair)
    path = run.added / f"{pair[0]}-{pair[1]}.cu"
    lines = path.read_text(encoding="utf-8").splitlines()
    assert said.code == 1
    assert said.out.splitlines() == [
        f"{pair[0]} and {pair[1]} have both changed the same of {ROOT}: see lines 21 to 25",
        f"finish {path}, then: evo kernels add {run.path} {path} parents={pair[0]},{pair[1]}",
    ]
    assert lines[20:25] == [f"<<<<<<< {pair[0]}", "    // other", "=======", "    // third", f">>>>>>> {pair[1]}"]
    assert lines[9] == 'WIDTH = { value = 2, choices = [1, 2, 4], layer = "memory" }'
    add = ("kernels", "add", str(run.path), str(path), f"parents={pair[0]},{pair[1]}")
    assert "line 21: two texts meet there" in refused(evo(*add))
    assert "is there already, from an earlier merge" in refused(evo("kernels", "merge", str(run.path), *pair))
    path.write_text("\n".join([*lines[:20], lines[21], lines[23], *lines[25:], ""]), encoding="utf-8")
    assert evo(*add).code == 0
    assert put(run) == [AddedKernel(source=variant(tail="    // other\n    // third\n", WIDTH=2), parent_ids=pair)]
    assert names(run.added) == sorted([path.name, dropped_files(run.added)[0].name])


def test_a_join_that_is_no_kernel_is_left_to_a_person_too(tmp_path: Path) -> None:
    """Both have a knob of one name, at different places."""
    knob, folder = 'FEW = { value = 1, choices = [1, 2], layer = "memory" }\n', create_run_folder(tmp_path, "run")
    sources = [SOURCE.replace(place, knob + place) for place in ("BLOCK_M = {", "\n[[launch]]")]
    for source in sources:
        add_kernel(folder, AddedKernel(source=source, parent_ids=(ROOT,)))
    run_part(small_config(generations=1), folder)
    pair = individual_id(sources[0]), individual_id(sources[1])
    said = evo("kernels", "merge", str(folder.path), *pair)
    path = folder.added / f"{pair[0]}-{pair[1]}.cu"
    assert said.code == 1
    assert said.out.startswith(f"{pair[0]} joined with {pair[1]} is no kernel that can be judged: ")
    assert f"finish {path}, then: evo kernels add " in said.out
    assert path.read_text(encoding="utf-8").count("FEW = ") == 2


def test_kernels_of_two_families_have_nothing_to_be_joined_over(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "run")
    add_kernel(folder, AddedKernel(source=ONE))
    run_part(small_config(generations=1), folder)
    said = refused(evo("kernels", "merge", str(folder.path), ROOT, individual_id(ONE)))
    assert f"{ROOT} and {individual_id(ONE)} have no common ancestor in this run" in said


def test_without_git_nothing_is_joined() -> None:
    with pytest.raises(ConfigError, match="git is not found, and joins the texts; install it, or join them by hand"):
        merge_texts(("a\n", "b\n", "c\n"), ("one", "base", "other"), git=None)


def test_knobs_are_joined_one_by_one_and_left_where_both_changed_one() -> None:
    one, other = with_knobs(SOURCE, {"BLOCK_M": 64, "STAGES": 2}), with_knobs(SOURCE, {"BLOCK_M": 128, "UNROLL": 4})
    joined = with_joined_knobs((one, SOURCE, other))
    assert joined == [with_knobs(SOURCE, {"BLOCK_M": rows, "STAGES": 2, "UNROLL": 4}) for rows in (64, 32, 128)]
    assert with_joined_knobs(("no kernel", SOURCE, other)) == ["no kernel", SOURCE, other]
