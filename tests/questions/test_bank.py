from pathlib import Path

import pytest
import yaml

from questions.bank import Bank, load_bank
from questions.entry import BankError, read_entry, write_entry
from questions.question import Layer, Moment


def entry(**changes: object) -> dict[str, object]:
    whole = {
        "id": "late-buffer",
        "text": "Which buffer waits longest?",
        "layer": "memory",
        "moments": ["any", "stall"],
        "targets": ["portable", "sm_90a"],
        "hypothesis": "one buffer is late",
        "measurement": "cycles waited, by buffer",
        "imperative": "Find which buffer waits longest.",
        "information": "Some buffer waits longest.",
        "prescription": "Add a second buffer.",
    }
    return {key: value for key, value in {**whole, **changes}.items() if value is not ...}


def write(folder: Path, name: str, *entries: object) -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(list(entries)), encoding="utf-8")
    return path


def test_reads_every_field(tmp_path):
    question = load_bank([write(tmp_path, "own.yaml", entry())]).by_id("late-buffer")
    assert question.text == "Which buffer waits longest?"
    assert question.layer is Layer.MEMORY
    assert question.moments == (Moment.ANY, Moment.STALL)
    assert question.targets == ("portable", "sm_90a")
    assert question.prescription == "Add a second buffer."
    assert question.origin == "bank"


def test_a_prescription_may_be_missing_or_null():
    assert read_entry(entry(prescription=...), "here").prescription is None
    assert read_entry(entry(prescription=None), "here").prescription is None


def test_lines_are_joined():
    assert read_entry(entry(text="Which buffer\n  waits?\n"), "here").text == "Which buffer waits?"


def test_an_entry_comes_back_as_it_went():
    for question in (read_entry(entry(), "here"), read_entry(entry(prescription=..., origin="a person"), "here")):
        assert read_entry(write_entry(question), "there") == question
        assert yaml.safe_load(yaml.safe_dump(write_entry(question))) == write_entry(question)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"txet": "?"}, r"unknown key 'txet'; did you mean 'text'\?"),
        ({"prescriptions": "x"}, r"unknown key 'prescriptions'; did you mean 'prescription'\?"),
        ({7: "x"}, r"unknown key 7; expected one of id, text"),
        ({"text": ..., "layer": ...}, r"text, layer missing; expected all of id"),
        ({"text": {"gain": None}}, r"text: dict \{'gain': None\}; expected text"),
        ({"text": "  "}, r"text: str '  '; expected text"),
        ({"hypothesis": None}, r"hypothesis: NoneType None; expected text"),
        ({"prescription": 3}, r"prescription: int 3; expected text"),
        ({"id": 12}, r"id: int 12; expected lower-case words"),
        ({"id": "Late_Buffer"}, r"id: str 'Late_Buffer'; expected lower-case words"),
        ({"id": "../../etc"}, r"expected lower-case words"),
        ({"layer": "memmory"}, r"layer: str 'memmory'; did you mean 'memory'\?"),
        ({"layer": ["memory"]}, r"layer: list \['memory'\]; "),
        ({"moments": ["stal"]}, r"moments: str 'stal'; did you mean 'stall'\?"),
        ({"moments": "stall"}, r"moments: str 'stall'; expected a list of one or more of any, stall"),
        ({"moments": []}, r"moments: list \[\]; expected a list"),
        ({"moments": ["any", "any"]}, r"expected each word once"),
        ({"moments": [True]}, r"moments: bool True; expected one of any"),
        ({"targets": ["sm_90"]}, r"targets: str 'sm_90'; did you mean 'sm_90a'\?"),
        ({"text": "How far is {gian}?"}, r"text: unknown slot 'gian'; did you mean 'gain'\?"),
        ({"information": "It is {xyz}."}, r"information: unknown slot 'xyz'; expected one of worst_scenario"),
        ({"override": "yes please"}, r"override: 'yes please'; expected true or false"),
    ],
)
def test_a_wrong_entry_is_named_with_what_was_expected(tmp_path, changes, message):
    wrong = {key: value for key, value in {**entry(), **changes}.items() if value is not ...}
    path = write(tmp_path, "own.yaml", entry(id="fine"), wrong)
    with pytest.raises(BankError, match=message) as raised:
        load_bank([path])
    assert str(path) in str(raised.value)
    assert "entry 2" in str(raised.value)


@pytest.mark.parametrize("item", ["Which?", None, 3, ["x"]])
def test_an_entry_that_is_no_mapping(tmp_path, item):
    with pytest.raises(BankError, match=r"own\.yaml: entry 1: .*expected a mapping"):
        load_bank([write(tmp_path, "own.yaml", item)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "NoneType; expected a list of questions"),
        (b"id: x\ntext: y", "dict; expected a list of questions"),
        (b"- id: [", "not YAML"),
        (b"- !!python/object/apply:os.getcwd []", "not YAML"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[]", r"no questions in .*own\.yaml"),
    ],
)
def test_a_file_that_is_no_bank(tmp_path, content, message):
    path = tmp_path / "own.yaml"
    path.write_bytes(content)
    with pytest.raises(BankError, match=message) as raised:
        load_bank([path])
    assert str(path) in str(raised.value)


def test_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(BankError, match="cannot be read"):
            load_bank([path])


def test_no_file_at_all():
    with pytest.raises(BankError, match=r"no file at all; .*bank\.yaml"):
        load_bank([])


def test_an_id_twice_in_one_file(tmp_path):
    path = write(tmp_path, "own.yaml", entry(), entry(override=True))
    with pytest.raises(BankError, match=r"entry 2 \(late-buffer\): "):
        load_bank([path])
    path = write(tmp_path, "own.yaml", entry(), entry())
    with pytest.raises(BankError, match=r"entry 2 \(late-buffer\): the id stands twice"):
        load_bank([path])


def test_an_id_of_an_earlier_file_is_replaced_only_on_request(tmp_path):
    first = write(tmp_path, "first.yaml", entry(), entry(id="other"))
    with pytest.raises(BankError, match=r"second\.yaml: entry 1 \(late-buffer\): the id is taken .*override: true"):
        load_bank([first, write(tmp_path, "second.yaml", entry(text="Is it?"))])
    bank = load_bank([first, write(tmp_path, "second.yaml", entry(text="Is it?", override=True))])
    assert [(question.id, question.text) for question in bank] == [
        ("late-buffer", "Is it?"),
        ("other", "Which buffer waits longest?"),
    ]


def test_an_override_of_nothing_is_refused(tmp_path):
    with pytest.raises(BankError, match=r"no earlier file has that id"):
        load_bank([write(tmp_path, "own.yaml", entry(override=True))])


def test_a_bank_by_id_and_in_order(make_question):
    questions = (make_question("a"), make_question("b"), make_question("c"))
    bank = Bank(questions=questions)
    assert tuple(bank) == questions
    assert len(bank) == 3
    assert bank.by_id("b") is questions[1]
    with pytest.raises(KeyError, match="none with the id 'd'"):
        bank.by_id("d")


def test_a_bank_refuses_an_id_twice(make_question):
    with pytest.raises(ValueError, match="ids that stand twice: a"):
        Bank(questions=(make_question("a"), make_question("b"), make_question("a")))
