"""References in docstrings and documents lead somewhere: specifications, paths, names of this project."""

from __future__ import annotations

import pytest

from tests.docs.references import (
    ROOT,
    Index,
    broken_spec_references,
    build_index,
    docstrings,
    documents,
    heading_slugs,
    missing_paths,
    product_files,
    stale_names,
)


@pytest.fixture(scope="module")
def index() -> Index:
    return build_index()


def test_every_reference_to_a_specification_names_a_file_and_a_heading() -> None:
    paths = [path for _, path in product_files()] + documents()
    assert [(p.name, reference) for p in paths for reference in broken_spec_references(p.read_text("utf-8"))] == []


def test_every_path_of_the_project_in_backticks_exists() -> None:
    texts = [(path, text) for _, path in product_files() for _, text in docstrings(path)]
    texts += [(path, path.read_text("utf-8")) for path in documents()]
    assert [f"{path.relative_to(ROOT)}: {name}" for path, text in texts for name in missing_paths(text)] == []


def test_every_dotted_name_of_a_docstring_exists(index: Index) -> None:
    assert [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for module, path in product_files()
        for line, text in docstrings(path)
        for name in stale_names(text, module, index)
    ] == []


def test_every_dotted_name_of_a_document_exists(index: Index) -> None:
    assert [
        f"{path.relative_to(ROOT)}: {name}"
        for path in documents()
        for name in stale_names(path.read_text("utf-8"), "", index)
    ] == []


def test_a_wrong_reference_to_a_specification_is_found() -> None:
    text = "See docs/spec/tarantool.md#blocks, docs/spec/tarantool.md#no-such-part and `docs/spec/nothing.md`."
    assert broken_spec_references(text) == ["docs/spec/tarantool.md#no-such-part", "docs/spec/nothing.md"]


def test_a_wrong_name_is_found(index: Index) -> None:
    text = "`binlogtool.findings.Finding`, `binlogtool.findings.Nothing`, `Finding.facts`, `Finding.gone`, `os.gone`"
    assert stale_names(text, "", index) == ["binlogtool.findings.Nothing", "Finding.gone"]


def test_a_name_is_looked_up_from_its_own_package(index: Index) -> None:
    assert stale_names("`findings.Severity` and `findings.Nothing`", "binlogtool.api", index) == ["findings.Nothing"]


def test_a_wrong_path_is_found() -> None:
    assert missing_paths("`docs/glossary.md`, `docs/nothing.md`, `formats/NAME/schema.py`") == ["docs/nothing.md"]


def test_headings_in_code_blocks_are_no_anchors() -> None:
    assert heading_slugs("# A title, with `code`\n```\n# no heading\n```\n## binlog.meta\n") == {
        "a-title-with-code", "binlogmeta",
    }  # fmt: skip
