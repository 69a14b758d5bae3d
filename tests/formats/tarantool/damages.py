"""The catalogue of damages of the corpus."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any


def build(corpus: Path, kind: str, case: dict[str, Any], folder: Path) -> Path:
    """The data directory of a case: its base set with the changes applied."""
    generated = corpus / "tarantool" / "generated"
    shutil.copytree(generated / case["base"], folder, copy_function=shutil.copyfile)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for change in case["changes"]:
        target = folder / change["name"]
        if change["op"] == "delete":
            target.unlink()
        else:
            shutil.copyfile(generated / kind / case["case"] / change["name"], target)
    return folder


def cases(kind: str) -> list[str]:
    names = {
        "damaged": (
            "flip_plain_block flip_zstd_block flip_stored_crc crc32p_nonzero fixheader_length_past_eof "
            "fixheader_length_too_big fixheader_length_too_small fixheader_length_not_uint fixheader_padding_broken "
            "magic_broken garbage_between_blocks garbage_with_false_magics false_magic_swallows_block zeroed_512_bytes "
            "torn_tail_mid_block torn_tail_in_fixheader torn_tail_two_bytes torn_first_block torn_tail_zero_filled "
            "eof_marker_missing_last eof_marker_half eof_marker_missing_middle truncated_middle_file "
            "truncated_middle_file_on_block_boundary data_after_eof_marker eof_marker_in_the_middle header_type_wrong "
            "header_type_snap header_version_wrong header_key_damaged header_vclock_wrong header_vclock_syntax "
            "header_prev_vclock_wrong header_uuid_other header_uuid_syntax header_no_terminator header_server_key_v12 "
            "header_unknown_key empty_file header_only_half missing_middle_file missing_first_file missing_last_files "
            "renamed_file inprogress_left duplicated_block swapped_blocks removed_block tx_commit_row_removed "
            "tx_split_over_two_blocks good_crc_bad_msgpack_header good_crc_row_cut_short good_crc_bad_zstd "
            "good_crc_zstd_frame_cut zstd_block_rewritten_plain snap_eof_marker_missing snap_flip snap_torn "
            "snap_replace_row snap_rows_swapped"
        ),
        "damaged_vinyl": (
            "run_flip_page run_truncated run_missing index_flip index_missing index_no_eof vylog_flip vylog_torn "
            "vylog_missing snap_older_than_vylog"
        ),
    }
    return names[kind].split()


def load(corpus: Path, kind: str) -> dict[str, dict[str, Any]]:
    manifest = json.loads((corpus / "tarantool" / "generated" / kind / "manifest.json").read_text())
    return {case["case"]: case for case in manifest["cases"]}
