"""Write change messages as JSON lines with several tasks; the file is the same as that of one task."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec.structs import replace

from binlogtool.core.open_log import LogReader, open_log
from binlogtool.errors import InputOutputError
from binlogtool.export.atomic_output import reserve_temporary_task_folder
from binlogtool.export.envelopes.messages_to_arrow import MessageOutcome, MessageRows
from binlogtool.export.manifest import FindingTally, Manifest, ManifestInput
from binlogtool.export.table_files import WrittenFile
from binlogtool.export.table_spool import SpooledTable
from binlogtool.export.task_planning import require_task_file
from binlogtool.export.write_json_sql_raw import StreamJob
from binlogtool.export.write_typed_tables import RowTableJob, SpoolResult, TableSpooler, TaskReader
from binlogtool.format_api.layout import CRC32

_CHUNK_BYTES = 1 << 20


class MessageLines(MessageRows, frozen=True):
    """Change messages as JSON lines."""

    def spool_rows(self, reader: TaskReader, pool: ThreadPoolExecutor) -> SpoolResult:
        """Write the messages of one task as lines to its single output table."""
        result, checksum = SpoolResult([], FindingTally(), MessageOutcome()), 0
        reader.folder.mkdir(parents=True)
        file = WrittenFile(reader.folder, "lines.jsonl")
        with file.path.open("xb") as out:
            for data in self.read_messages_as_lines(reader, self.options, result):
                checksum = CRC32.kernel(data, checksum)
                out.write(data)
        result.outcome.checksum = checksum
        result.tables.append(SpooledTable("", result.outcome.message_count, (), (), (file,)))
        return result


class MessageLineJob(RowTableJob, frozen=True, kw_only=True):
    """One conversion to a file of change messages by tasks of a runner."""

    kind: MessageLines

    def write(self, inputs: list[ManifestInput], stage: Path) -> Manifest:
        """Write the file at `stage`.

        Raises:
            UsageError: a format has no row changes, or the log has no names that the selection contains.
            InputOutputError, LimitError.
        """
        with self.open_job_runner(inputs) as (runner, limits), reserve_temporary_task_folder(stage) as folder:
            request, inputs, tasks = self._plan_spool_tasks(runner, inputs)
            folder.mkdir()
            spooler = TableSpooler(request, self.kind, self.shape, str(folder.absolute()), limits)
            results = self._run_spool_tasks_until_consistent(runner, spooler, tasks)
            checksum = _join_task_files_with_crc32(results, stage)
            stream = self._merge_results_into_stream_job(self.kind.merge_results(results))
            files, options = [one.path for one in inputs if not one.trouble], self.request.read_options()
            with open_log(files, options, LogReader) as log:
                stream.require_selection_not_empty(log)
            manifest, spark = stream.verify_output_and_build_manifest(inputs, stage, checksum), runner.describe()
        return replace(manifest, details={**manifest.details, "spark": spark}) if spark else manifest

    def _merge_results_into_stream_job(self, result: SpoolResult) -> StreamJob:
        """Return the job of a file that has the messages of all tasks. result: of all tasks."""
        outcome: MessageOutcome = result.outcome
        return StreamJob(
            "jsonl", self.request, envelope=self.kind.options,
            finding_tally=result.finding_tally, records_by_file=outcome.records_by_file, damaged=outcome.damaged,
            has_left_out=outcome.has_left_out, other_message_count=outcome.message_count,
            script_ends=outcome.script_ends,
        )  # fmt: skip


def _join_task_files_with_crc32(results: list[SpoolResult], output_path: Path) -> int:
    """Append the files of all tasks to a new file; return its CRC-32.

    Raises:
        InputOutputError: a file is not there, or differs from what its task wrote.
    """
    whole = 0
    with output_path.open("xb") as out:
        for result in results:
            path, checksum = result.tables[0].files[0].path, 0
            require_task_file(path)
            with path.open("rb") as file:
                while data := file.read(_CHUNK_BYTES):
                    checksum, whole = CRC32.kernel(data, checksum), CRC32.kernel(data, whole)
                    out.write(data)
            if checksum != result.outcome.checksum:
                raise InputOutputError(f"{path}: what was read back differs from what a task wrote")
            path.unlink()
    return whole
