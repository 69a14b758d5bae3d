"""Text reports: aligned, with thousands separators, and accounts that add up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from binlogtool.cli.explain_and_help import render_explanation, render_explanation_list
from binlogtool.findings import make_finding
from binlogtool.report import format_numbers_and_names
from binlogtool.report.verify_and_plan_text import render_plan_text, render_verify_text, shorten_member_path
from binlogtool.verification.verify_report import PathFailure, Report, SetReport
from tests.report.values import MISMATCH, TORN, account, file_report, plan, report


def test_a_report_looks_like_this() -> None:
    assert list(render_verify_text(report(), exit_code=1)) == [
        "0001.xlog   ok        64.0 MiB   181,204 records   seq 1..181,204   XLOG 0.13",
        "0002.xlog   DAMAGED   12.4 MiB    35,116 records   seq 181,205..216,377   XLOG 0.13",
        "  error    0x00a1f3c0  checksum-mismatch    record 30,990  the bytes are not those that were written"
        "  stored 5b1c22e0  computed 91d0447f",
        "  note     0x00c66d12  torn-tail            the last record is incomplete: 311 bytes",
        "/data/binlog  (set of 2 files)",
        "  error    -           missing-member       0001.xlog is not there",
        "bytes: header 16 · records 80,149,858 · torn 311 · damaged 1,904 · total 80,152,089 (100 %)",
        "next: binlogtool hexdump-annotate --at 0xa1f3c0 /data/binlog/0002.xlog",
        "exit 1",
    ]


def test_an_account_that_does_not_add_up_is_not_called_complete() -> None:
    broken = Report((file_report(bytes=account(record=13_000_000)),), ())
    assert "(99.6686 % accounted for)" in list(render_verify_text(broken))[1]


@pytest.mark.parametrize("depth", ["frame", "checksum"])
def test_a_report_says_that_payloads_were_not_read(depth: str) -> None:
    shallow = Report((file_report(details={"depth": depth}),), ())
    assert list(render_verify_text(shallow))[-1] == f"not checked: payloads and how the files fit (--depth {depth})"
    assert not any(
        "not checked" in line for line in render_verify_text(Report((file_report(details={"depth": "set"}),), ()))
    )


def test_members_of_a_set_are_named_from_its_directory() -> None:
    one = (SetReport("/d", "tarantool", ()),)
    assert [shorten_member_path(p, one) for p in ("/d/a", "/d/sub/a", "/e/a", "/d")] == ["a", "sub/a", "/e/a", "/d"]


def test_members_of_several_sets_have_their_whole_paths() -> None:
    several = (SetReport("/d", "tarantool", ()), SetReport("/e", "tarantool", ()))
    assert [shorten_member_path(p, several) for p in ("/d/a", "/e/a")] == ["/d/a", "/e/a"]


def test_a_torn_tail_leads_to_the_plan() -> None:
    torn = Report((file_report("a b.xlog", TORN),), ())
    assert list(render_verify_text(torn))[-1] == "next: binlogtool truncate-to-durable 'a b.xlog'"


def test_a_clean_file_needs_no_next_step() -> None:
    assert not [line for line in render_verify_text(Report((file_report(),), ())) if line.startswith(("next", "exit"))]


def test_many_findings_of_a_kind_are_counted() -> None:
    many = [make_finding("checksum-mismatch", i, 1, "m") for i in range(50)]
    shown = list(render_verify_text(Report((file_report("a", *many),), ())))
    assert len([line for line in shown if line.endswith("checksum-mismatch    m")]) == 20
    assert any("30 more findings checksum-mismatch" in line for line in shown)


def test_unknown_record_counts_are_left_out() -> None:
    first = next(render_verify_text(Report((file_report("a", records=None, first_seq=None),), ())))
    assert "record" not in first


def test_facts_that_the_message_says_are_not_repeated() -> None:
    said = make_finding(
        "damaged-range", 0, 5, "5 skipped; next at 0x00000040", next_provable=64, skipped=5, cause="lost block"
    )
    assert format_numbers_and_names.format_finding(said) == "5 skipped; next at 0x00000040  cause lost block"


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (13_043_225, "12.4 MiB"),
        (1 << 50, "1.0 PiB"),
        (1 << 62, "4,096.0 PiB"),
    ],
)
def test_sizes_are_readable(number: int, shown: str) -> None:
    assert format_numbers_and_names.format_size(number) == shown


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("plain.xlog", "plain.xlog"),
        ("two words", "'two words'"),
        ("it's", """'it'"'"'s'"""),
        ("esc\x1b[31m", "$'esc\\x1b[31m'"),
        ("new\nline", "$'new\\x0aline'"),
        ("bytes\udcff", "$'bytes\\xff'"),
        ("rtl\u202e'", "$'rtl\\xe2\\x80\\xae\\x27'"),
    ],
)
def test_paths_can_be_pasted_into_a_shell(path: str, word: str) -> None:
    assert format_numbers_and_names.quote_for_shell(path) == word


def test_a_pasted_path_names_the_same_file() -> None:
    import os
    import subprocess

    path = "a'b\x1b\n\u202e\udcff c"
    done = subprocess.run(
        ["bash", "-c", f"printf %s {format_numbers_and_names.quote_for_shell(path)}"], capture_output=True, check=True
    )
    assert done.stdout == os.fsencode(path)


def test_a_plan_says_that_nothing_was_changed() -> None:
    assert list(render_plan_text(plan())) == [
        "plan   /data/binlog/0003.xlog: cut 311 of 13,043,225 bytes at 0x00c66d12 (0 complete records among them)",
        "proof  records 35,116 · last seq 216,377",
        f"sha256 kept {'aa' * 32}  cut {'bb' * 32}",
        "nothing was changed; use --apply to carry out the plan",
    ]


def test_a_refused_plan_says_why() -> None:
    shown = list(render_plan_text(plan(refused=True, reasons=("4,125 complete records follow",))))
    assert shown[-2:] == ["refuse 4,125 complete records follow", "refused; nothing was changed"]


def test_an_explanation_has_three_parts() -> None:
    shown = list(render_explanation("torn-tail"))
    assert shown[0] == "torn-tail  (default severity: note)"
    assert [line for line in shown if line and not line.startswith(" ")][1:] == ["meaning", "causes", "what to do"]


def test_the_list_of_findings_starts_with_errors() -> None:
    shown = list(render_explanation_list())
    assert shown[0] == "error:"
    assert shown.index("error:") < shown.index("warning:") < shown.index("note:")


def test_a_path_that_is_not_read_has_a_row() -> None:
    failed = report(failures=[PathFailure("/data/x", "no such file", 4)])
    assert [line for line in render_verify_text(failed) if "/data/x" in line] == ["/data/x   not read"]
    assert MISMATCH in failed.findings


def test_a_plan_groups_repeated_findings_as_verify_does() -> None:
    whole = plan()
    many = [{"id": "checksum-mismatch", "offset": n, "message": "stored 1"} for n in range(2000)]
    other = {"id": "gap-in-sequence", "offset": 7, "message": "LSN 3"}
    file = replace(whole.files[0], proof={"damage": [*many, other]})
    lines = list(render_plan_text(replace(whole, files=(file,), reasons=tuple(f"reason {n}" for n in range(500)))))
    assert sum(line.startswith("damage 0x") for line in lines) == 21
    assert "damage … 1,980 more checksum-mismatch (all: -O json)" in lines
    assert "damage 0x00000007 gap-in-sequence: LSN 3" in lines
    assert sum("reason " in line for line in lines) == 20 and any("… 480 more (all: -O json)" in line for line in lines)
