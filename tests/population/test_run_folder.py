"""Making a run's folder and recognising one."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from population.archive import create_archive
from population.faults import RunFolderError
from population.run_folder import RunFolder, create_run_folder, open_run_folder


def test_the_files_of_a_run(tmp_path):
    run = RunFolder(tmp_path / "first")
    names = ("archive", "lock", "checkpoints", "kernels", "outbox", "inbox", "pending", "measured", "result", "report")
    assert {name: getattr(run, name).relative_to(tmp_path).as_posix() for name in names} == {
        "archive": "first/archive.sqlite",
        "lock": "first/archive.lock",
        "checkpoints": "first/checkpoints",
        "kernels": "first/kernels",
        "outbox": "first/outbox",
        "inbox": "first/inbox",
        "pending": "first/pending",
        "measured": "first/measured",
        "result": "first/result.json",
        "report": "first/report.html",
    }
    assert run.name == "first"


def test_a_new_run_has_its_folders(tmp_path):
    run = create_run_folder(tmp_path / "runs", "first")
    assert run == RunFolder(tmp_path / "runs" / "first")
    assert sorted(path.name for path in run.path.iterdir()) == [
        "checkpoints", "inbox", "kernels", "measured", "outbox", "pending",
    ]  # fmt: skip


def test_a_taken_name_gets_a_number(tmp_path):
    (tmp_path / "first-2").write_text("a file in the way")
    assert [create_run_folder(tmp_path, "first").name for _ in range(3)] == ["first", "first-3", "first-4"]


def test_jobs_that_start_together_get_different_folders(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: create_run_folder(tmp_path, "sweep"), range(16)))
    assert len({run.path for run in runs}) == 16


@pytest.mark.parametrize("name", ["", "  ", "a/b", "/tmp", "..", ".", ".hidden", "a\0b"])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path, name):
    with pytest.raises(RunFolderError, match="expected a folder's name"):
        create_run_folder(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunFolderError, match="no run can be made in"):
        create_run_folder(tmp_path / "runs", "first")


def test_a_name_too_long_for_the_disk_is_refused(tmp_path):
    with pytest.raises(RunFolderError, match="no run can be made"):
        create_run_folder(tmp_path, "x" * 300)


def test_a_run_is_opened(tmp_path):
    run = create_run_folder(tmp_path, "first")
    create_archive(run).close()
    assert open_run_folder(run.path) == run


def test_what_is_no_run_is_refused(tmp_path):
    (tmp_path / "archive.sqlite").mkdir()
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(RunFolderError, match="no such run"):
        open_run_folder(tmp_path / "absent")
    with pytest.raises(RunFolderError, match="this is a file; expected the folder of a run, perhaps"):
        open_run_folder(tmp_path / "result.json")
    with pytest.raises(RunFolderError, match=r"this folder is no run: it holds no archive\.sqlite"):
        open_run_folder(tmp_path)
