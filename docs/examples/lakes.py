"""Commits what `convert --append` added to a lake table, once: `python lakes.py delta|iceberg OUTPUT TABLE DIRECTORY`.

OUTPUT is the directory of `convert --append --to parquet --per-table`, TABLE the name of a table in it, DIRECTORY a
place for the Delta table, or for the Iceberg catalog and its tables. Packages: deltalake, or pyiceberg[sql-sqlite].

The lake table remembers the number of the last commit that it has, in the same commit as the rows: a run that is
killed and repeated adds nothing twice, and a run without news adds nothing. Columns that the log adds are added to it.
"""

import json
import sys
from pathlib import Path

import pyarrow.dataset
import pyarrow.parquet

NAME = "binlogtool"


def find_new_files(output: Path, table: str, known: int) -> tuple[int, list[str]]:
    """Return the number of the last commit, and the files of a table since commit `known`."""
    commits = (output / "_binlogtool").glob("*.json")
    commit = json.loads(max(commits, key=lambda path: int(path.stem)).read_text())
    (folder,) = [one["directory"] for one in commit["tables"] if one["name"] == table]
    files = [
        one["path"] for one in commit["outputs"] if one["commit"] > known and Path(one["path"]).parent == Path(folder)
    ]
    return commit["number"], [str((output / name).absolute()) for name in files]


def commit_to_delta(output: Path, table: str, directory: str) -> None:
    """Append the new rows; the transaction number of the application `binlogtool` is that of the commit."""
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    known = DeltaTable(directory).transaction_version(NAME) if DeltaTable.is_deltatable(directory) else None
    number, files = find_new_files(output, table, known or 0)
    if files:
        rows = pyarrow.dataset.dataset(files, schema=unify_schemas(files))
        done = CommitProperties(app_transactions=[Transaction(NAME, number)])
        reader = pyarrow.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
        write_deltalake(directory, reader, mode="append", schema_mode="merge", commit_properties=done)


def commit_to_iceberg(output: Path, table: str, directory: str) -> None:
    """Add the new files themselves, without a copy; a property of the table has the number of the commit."""
    from pyiceberg.catalog.sql import SqlCatalog

    place = Path(directory).absolute()
    place.mkdir(exist_ok=True)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    database, _, name = table.partition(".")
    catalog.create_namespace_if_not_exists(database)
    exists = catalog.table_exists((database, name))
    known = int(catalog.load_table((database, name)).properties.get(NAME, 0)) if exists else 0
    number, files = find_new_files(output, table, known)
    if files:
        schema = unify_schemas(files)
        lake = catalog.load_table((database, name)) if exists else catalog.create_table((database, name), schema)
        with lake.transaction() as changes:
            with changes.update_schema() as columns:
                columns.union_by_name(schema)
            changes.add_files(files)
            changes.set_properties({NAME: str(number)})


def unify_schemas(files: list[str]) -> pyarrow.Schema:
    """Return the columns of all files."""
    return pyarrow.unify_schemas([pyarrow.parquet.read_schema(path) for path in files], promote_options="permissive")


if __name__ == "__main__":
    {"delta": commit_to_delta, "iceberg": commit_to_iceberg}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3], sys.argv[4])
