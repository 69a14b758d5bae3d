"""Table of the commands, with their modules and short helps."""

from __future__ import annotations

COMMANDS = {
    "diagnose": ("binlogtool.cli.diagnose", "Find out why a database does not start, and what to do."),
    "verify": ("binlogtool.cli.verify", "Check logs: framing, checksums, content, order, sets."),
    "dump": ("binlogtool.cli.dump", "Print records: text, JSON, CSV, a table, SQL."),
    "hexdump-annotate": ("binlogtool.cli.hexdump_annotate", "Show bytes with the field that each belongs to."),
    "truncate-to-durable": ("binlogtool.cli.truncate_to_durable", "Truncate a log to its durable end; can be undone."),
    "undo": ("binlogtool.cli.undo", "Undo a repair."),
    "replay-dry-run": ("binlogtool.cli.replay_dry_run", "Predict what the server would do with a log."),
    "rows": ("binlogtool.cli.rows", "Print the changed rows of tables, typed: text, CSV, JSON, Arrow."),
    "flashback": ("binlogtool.cli.flashback", "Write the script that reverses row changes."),
    "convert": ("binlogtool.cli.convert", "Write tables (Parquet, ORC, CSV, JSON, Avro), scripts or another log."),
    "stats": ("binlogtool.cli.stats", "Count records and bytes over time, also as a chart."),
    "formats": ("binlogtool.cli.explain_and_help:formats_command", "List log formats, or describe one."),
    "explain": ("binlogtool.cli.explain_and_help:explain_command", "Explain a finding or an exit status."),
    "schema": ("binlogtool.cli.explain_and_help:schema_command", "Print the JSON Schema of an output."),
    "completion": ("binlogtool.cli.completion", "Print the completion script of a shell."),
    "help": ("binlogtool.cli.explain_and_help:help_command", "Show the help of a command."),
    "man": ("binlogtool.cli.man", "Show a manual page."),
}

COMMAND_GROUPS = {
    "Find and repair damage": (
        "diagnose",
        "verify",
        "hexdump-annotate",
        "truncate-to-durable",
        "undo",
        "replay-dry-run",
    ),
    "Read and convert": ("dump", "rows", "stats", "flashback", "convert"),
    "Help": ("help", "man", "explain", "formats", "schema", "completion"),
}
"""Title of a group in the help -> its commands."""
