"""Files become pipelines, and what is wrong in them a sentence with its line. No Spark, no Java."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from strandline import pipeline
from strandline.pipelines.language.loading import modules_of

SHOP = """
from strandline import pipeline

pipeline.source("orders", schema="id STRING, amount DOUBLE")


@pipeline.stream
def large(orders):
    return orders.where("amount > 100")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.py"


def refusal(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(pipeline.PipelineRefused) as refused:
        pipeline.load(file)
    assert "\n" not in str(refused.value)
    assert "Traceback" not in str(refused.value)
    return str(refused.value)


def test_a_file_is_a_pipeline_with_its_name(file: Path) -> None:
    file.write_text(SHOP)
    loaded = pipeline.load(file)
    assert (loaded.name, loaded.file) == ("shop", str(file))
    assert list(loaded.sources) == ["orders"]
    assert list(loaded.datasets) == ["large"]
    assert str(loaded.datasets["large"].at) == f"{file}:7"
    assert str(loaded.sources["orders"].at) == f"{file}:4"


def test_it_can_have_another_name(file: Path) -> None:
    file.write_text(SHOP + "\npipeline.name('market')\n")
    assert pipeline.load(str(file)).name == "market"


def test_it_may_be_loaded_again(file: Path) -> None:
    file.write_text(SHOP)
    pipeline.load(file)
    file.write_text(SHOP.replace("large", "small"))
    assert list(pipeline.load(file).datasets) == ["small"]


def test_what_lies_beside_it_can_be_imported_and_goes_with_it(file: Path) -> None:
    (file.parent / "shop_prices.py").write_text("LEAST = 100\n")
    file.write_text("import shop_prices\nfrom dataclasses import dataclass\n" + SHOP)
    try:
        loaded = pipeline.load(file)
        again = pipeline.load(file)
        (file.parent / "shop_prices.py").write_text("LEAST = 'two hundred'\n")
        assert pipeline.load(file).datasets["large"].function.__globals__["shop_prices"].LEAST == "two hundred"
    finally:
        sys.modules.pop("shop_prices", None)
    assert [each.__name__ for each in modules_of(loaded)] == ["strandline_pipeline_shop", "shop_prices"]
    assert [each.__name__ for each in modules_of(again)] == ["strandline_pipeline_shop", "shop_prices"]
    assert str(file.parent) not in sys.path


def test_a_syntax_error_is_told_with_its_line(file: Path) -> None:
    words = refusal(file, "from strandline import pipeline\n\ndef large(orders:\n    return orders\n")
    assert words.startswith(f"{file}:3: ")
    assert "correct the syntax" in words


def test_an_exception_is_told_with_the_line_of_the_file_that_led_to_it(file: Path) -> None:
    words = refusal(file, "import json\n\n\ndef read():\n    return json.loads('{')\n\n\nread()\n")
    assert words.startswith(f"{file}:5: JSONDecodeError: ")


def test_a_module_that_is_missing_is_named(file: Path) -> None:
    assert "No module named 'no_such_module'" in refusal(file, "import no_such_module\n")


def test_a_declaration_that_is_refused_is_told_with_its_line(file: Path) -> None:
    words = refusal(file, SHOP + "\n@pipeline.table\ndef totals(orders): ...\n")
    assert words.startswith(f"{file}:11: the table totals has no key")


def test_a_call_to_exit_does_not_end_us(file: Path) -> None:
    assert refusal(file, "import sys\nsys.exit(3)\n").startswith(f"{file}:2: it calls exit()")


def test_a_relative_path_stands_in_messages_as_it_was_given(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(SHOP.replace("(orders)", "(odrers)"))
    monkeypatch.chdir(file.parent)
    with pytest.raises(pipeline.PipelineRefused, match=r"^shop.py:7: large reads odrers"):
        pipeline.load("shop.py")
    assert pipeline.load("shop.py", known=None).datasets["large"].inputs == ("odrers",)
    assert pipeline.load("shop.py", known={"odrers"}).datasets["large"].inputs == ("odrers",)


def test_files_that_are_none(tmp_path: Path) -> None:
    binary, accents, zeros = tmp_path / "a.py", tmp_path / "größe.py", tmp_path / "zeros.py"
    prose = tmp_path / "notes.txt"
    prose.write_text("Orders go in, sales come out.")
    binary.write_bytes(b"\xff\xfe")
    zeros.write_bytes(b"x = 1\0")
    accents.write_text(SHOP)
    for path, sentence in (
        (tmp_path / "none.py", "there is no file"),
        (tmp_path, "is a directory"),
        (binary, "is not text in UTF-8"),
        (zeros, "null bytes"),
        (prose, r"notes.txt is neither Python nor SQL by its name: name the pipeline's .py or .sql file"),
        (accents, "the pipeline is named 'größe'"),
    ):
        with pytest.raises(pipeline.PipelineRefused, match=sentence):
            pipeline.load(path)
