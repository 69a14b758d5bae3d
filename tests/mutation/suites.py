"""List the modules that are mutated, in groups that share their tests."""

from __future__ import annotations

from typing import NamedTuple


class Suite(NamedTuple):
    """Modules of `binlogtool`, and the test files that run against their mutants, below `tests`."""

    modules: tuple[str, ...]
    files: tuple[str, ...]


SUITES = (
    Suite(
        (
            *(
                "repair.apply_plan_or_salvage",
                "repair.execute_plan",
                "repair.diagnose_startup",
                "repair.system_calls",
                "repair.plan_types",
            ),
            *("repair.plan_truncate", "repair.repaired_content", "repair.undo_file", "repair.undo_repair"),
        ),
        (
            *("recovery/test_plan_values.py", "recovery/test_durable.py", "recovery/test_transaction.py"),
            *("recovery/test_transaction_finish.py", "recovery/test_strange_intents.py", "recovery/test_owner.py"),
            *("recovery/test_mounts.py", "recovery/test_leftovers.py", "recovery/test_ownership.py"),
            *("recovery/test_processes.py", "recovery/test_repair_lists.py", "recovery/test_plan.py"),
            *("recovery/test_repair.py", "recovery/test_diagnosis.py", "recovery/test_unfinished.py"),
            *("recovery/test_ordinary_cuts.py", "recovery/test_copy_refusals.py", "recovery/test_repaired_content.py"),
            *("formats/mariadb_innodb_binlog/test_repair_ibb.py", "cli/test_undo.py", "recovery/test_undo_file.py"),
        ),
    ),
    Suite(
        (
            *("core.resync", "prediction.predict_replay", "prediction.replay_options", "prediction.row_store"),
            *("verification.verify_logs", "verification.verify_report"),
        ),
        (
            *("core/test_resync.py", "core/test_resync_bounds.py", "recovery/test_replay.py", "recovery/test_state.py"),
            *("recovery/test_unfinished.py", "recovery/test_limits_are_no_verdicts.py", "recovery/test_agreement.py"),
            *("recovery/test_data_directories.py", "recovery/test_live_verify.py", "recovery/test_ordinary_cuts.py"),
            *("recovery/test_lost_records.py", "cli/test_verify.py", "cli/test_replay.py", "cli/test_state_file.py"),
            *("recovery/test_missing_recorded_files.py", "recovery/test_replay_state_rules.py"),
        ),
    ),
    Suite(
        (
            *(
                "export.append_new_records",
                "export.atomic_output",
                "export.convert_logs",
                "export.copy_to_mariadb_binlog",
            ),
            *("export.incremental_positions", "export.manifest", "export.write_json_sql_raw", "export.output_options"),
            *(
                "export.records_to_arrow",
                "export.write_record_tables",
                "export.sql_script_output",
                "export.table_files",
            ),
            *("export.write_typed_tables", "export.table_router", "export.typed_columns", "export.envelopes.debezium"),
            *("export.envelopes.maxwell", "export.envelopes.encode_change_messages"),
        ),
        (
            *("export/test_append.py", "export/test_append_typed.py", "export/test_append_messages.py"),
            *("export/test_bad_input.py", "export/test_change_events.py", "export/test_change_events_tables.py"),
            *("export/test_lock_files.py", "export/test_convert.py", "export/test_objects.py"),
            *("export/test_file_sizes.py", "export/test_output.py", "export/test_record_tables.py"),
            *("export/test_refused_options.py", "export/test_rows.py", "export/test_rows_beside_events.py"),
            *("export/test_splits.py", "export/test_input_scan.py", "export/test_targets_cli.py"),
            *("export/test_targets_ordered.py", "export/test_targets_tables.py", "export/test_typed_runs.py"),
            *("export/test_typed_statements.py", "export/test_typed_tables.py", "export/test_undo_conflicts.py"),
            *("export/test_to_mysql_binlog.py", "export/test_where_scripts.py", "export/test_wide_numbers.py"),
            *("cli/test_flashback_beside_damage.py", "cli/test_hexdump_and_convert.py"),
            *("export/test_export_internals.py", "export/test_upload.py"),
        ),
    ),
)
MODULES = tuple(module for suite in SUITES for module in suite.modules)
