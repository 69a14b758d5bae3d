"""Start and stop the Spark session: settings, executors, package for the cluster, Ctrl-C.

Spark and its Python workers run in a separate process group, so a terminal's Ctrl-C reaches only this process. Their
output goes to a file in the temporary directory; its end is shown if Spark cannot start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from zipimport import zipimporter

import msgspec

from binlogtool.errors import InputOutputError, LimitError
from binlogtool.export.atomic_output import create_work_folder
from binlogtool.export.manifest import SparkJobStats
from binlogtool.export.output_options import require_modules_lifting_memory_limit
from binlogtool.export.spark_settings import (
    SparkMaster,
    build_settings,
    check_master_answers,
    check_master_url,
    is_local_url,
    is_loopback_sufficient,
    read_user_settings,
)
from binlogtool.spark import find_java

# --- Interruptible work in a thread ---

T = TypeVar("T")

_POLL_INTERVAL_S = 0.2
STOP_TIMEOUT_S = 2.0
"""Maximum time, in seconds, for Spark to stop cleanly."""


def _do_nothing(*_: object) -> None:
    pass


def run_interruptibly_in_thread(
    action: Callable[[], T], poll: Callable[[], None] = _do_nothing, on_interrupt: Callable[[], None] = _do_nothing
) -> T:
    """Run `action` in a thread and return its result; meanwhile call `poll`, and turn SIGINT into KeyboardInterrupt.

    A signal only sets a flag here, so that it never interrupts a call to the Java side.

    Args:
        action: the work.
        poll: called regularly while waiting; may raise.
        on_interrupt: must make `action` fail; called repeatedly until it ends, for at most STOP_TIMEOUT_S.
    """
    outcome: list[T] = []
    errors: list[BaseException] = []
    finished, interrupted = threading.Event(), threading.Event()

    def run_action() -> None:
        try:
            outcome.append(action())
        except BaseException as error:
            errors.append(error)
        finally:
            finished.set()

    with _set_event_on_sigint(interrupted):
        threading.Thread(target=run_action, name="binlogtool-spark", daemon=True).start()
        while not finished.wait(_POLL_INTERVAL_S):
            if interrupted.is_set():
                break
            poll()
        if interrupted.is_set():
            _repeat_until_finished(on_interrupt, finished)
            raise KeyboardInterrupt
    if errors:
        raise errors[0]
    return outcome[0]


def _repeat_until_finished(act: Callable[[], None], finished: threading.Event) -> None:
    end = time.monotonic() + STOP_TIMEOUT_S
    with suppress_logging():
        act()
        while not finished.wait(_POLL_INTERVAL_S / 2) and time.monotonic() < end:
            act()


@contextlib.contextmanager
def suppress_logging() -> Iterator[None]:
    """Suppress logging and warnings while connections to Java are closed on purpose, which py4j reports at length."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _set_event_on_sigint(event: threading.Event) -> Iterator[None]:
    """Set `event` on SIGINT for the duration of a `with` block; do nothing outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: event.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# --- Executors of a cluster ---

WAITING = "waiting for executors"

_CHECK_INTERVAL_S = 1.0
_STABLE_S = 2.0
"""Seconds without a new executor after which all are assumed to be registered."""
_REGISTRATION_TIMEOUT_S = 30.0
"""Seconds to wait for the configured number of executors, as Spark itself does."""


class ExecutorWatch:
    """Check regularly whether a Spark context has executors.

    Args:
        context: the SparkContext.
        timeout: seconds without any executor before giving up.
        expected: number of executors in the settings; None = the cluster decides.
    """

    def __init__(self, context: Any, timeout: float, expected: int | None = None) -> None:
        self._context = context
        self._timeout = timeout
        self._expected = expected
        self._last_seen = self._last_checked = time.monotonic()
        self._max_count = expected or 0
        self._waiting = self._settled = False

    def restart_timeout(self) -> None:
        """Restart the timeout."""
        self._last_seen = self._last_checked = time.monotonic()

    @property
    def waiting_text(self) -> str:
        """Progress text while waiting for executors."""
        return f"{WAITING}: 0 of {self._max_count}" if self._max_count else f"{WAITING}: none yet"

    def is_without_executors(self) -> bool:
        """Return True while there is no executor.

        Raises:
            InputOutputError: there was no executor for the whole timeout.
        """
        now = time.monotonic()
        if now - self._last_checked >= _CHECK_INTERVAL_S:
            self._last_checked = now
            self._waiting = not self._count_executors()
            if not self._waiting:
                self._last_seen = now
            elif now - self._last_seen > self._timeout:
                raise InputOutputError(
                    f"no executor for {self._timeout:g} seconds: the cluster has none free, or lost them all"
                    " (--conf spark.binlogtool.waitExecutors=SECONDS waits longer)"
                )
        return self._waiting

    def wait_until_registered(self) -> None:
        """Wait until all expected executors have registered, so that a job gets enough tasks.

        Only waits once per session.
        """
        first_time = last_time = None
        count, end = 0, time.monotonic() + self._timeout
        while not self._settled and (now := time.monotonic()) < end:
            if (current := self._count_executors()) != count:
                count, last_time = current, now
                first_time = first_time or now
            is_stable = last_time is not None and now - last_time > (
                _STABLE_S if self._expected is None else _REGISTRATION_TIMEOUT_S
            )
            is_late = first_time is not None and now - first_time > _REGISTRATION_TIMEOUT_S
            self._settled = bool(count) and (count == self._expected or is_stable or is_late)
            time.sleep(_CHECK_INTERVAL_S / 4)
        self._settled = True

    def _count_executors(self) -> int:
        """Return the number of registered executors; Spark's list also contains the driver."""
        count = int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1
        self._max_count = max(self._max_count, count)
        return count


def configured_executors(get_setting: Any) -> int | None:
    """Return the number of executors in Spark's settings.

    None if they do not specify it. get_setting: name -> value of a setting or None.
    """
    if get_setting("spark.dynamicAllocation.enabled") == "true":
        return None
    if (count := get_setting("spark.executor.instances")) is not None and count.isdigit():
        return int(count)
    cores, max_cores = get_setting("spark.executor.cores"), get_setting("spark.cores.max")
    return (
        int(max_cores) // int(cores)
        if cores and max_cores and cores.isdigit() and max_cores.isdigit() and cores != "0"
        else None
    )


# --- Zip of this package for executors ---

_ENTRY_TIME = (2020, 1, 1, 0, 0, 0)
_EXCLUDED_FOLDERS = ("__pycache__",)


def write_package_zip(target: Path) -> Path:
    """Write this package with its formats to the zip `target`, reproducibly, and return its path."""
    root = Path(__file__).parents[1]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _list_files(root):
            entry = zipfile.ZipInfo(str(path.relative_to(root.parent)), _ENTRY_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return target


def make_module_paths_absolute() -> None:
    """Make the module search path absolute on an executor, so that changing the directory does not break imports.

    Spark names the zip by a relative path.
    """
    sys.path[:] = [os.path.abspath(one) if one else one for one in sys.path]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "binlogtool":
            continue
        if hasattr(module, "__path__"):
            module.__path__ = [os.path.abspath(one) for one in module.__path__]
        loader = getattr(module.__spec__, "loader", None)
        if isinstance(loader, zipimporter) and module.__file__:
            module.__file__ = os.path.abspath(module.__file__)
            loader.archive = os.path.abspath(loader.archive)


def _list_files(root: Path) -> Iterator[Path]:
    """Yield the files in a fixed order; the link `formats` of a source tree is followed, and forms no cycle."""
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if name not in _EXCLUDED_FOLDERS)
        yield from (Path(folder) / name for name in sorted(names) if not name.endswith(".pyc"))


# --- Start and stop of Spark ---

_SHOWN_LOG_LINES = 2
_FINAL_CALL_TIMEOUT_S = 0.5
"""Seconds to wait for the last call to a killed Java process; the call fails silently."""
_STACK_TRACE_LINE = re.compile(r"\s*(at |\.\.\. \d+ )")
_JAVA_CLASS = re.compile(r"^(?:Caused by: |Exception in thread \"\w+\" )?(?:[a-z]\w*\.)+[A-Z][\w$]*: ")
_LOG4J_PROPERTIES = """\
rootLogger.level = error
rootLogger.appenderRef.c.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %p %c{1}: %m%n
logger.gw.name = org.apache.spark.api.python.PythonGatewayServer
logger.gw.level = error
"""


class SparkProgress(msgspec.Struct, frozen=True):
    """Progress of the running Spark job, in tasks; `total` grows when later stages appear.

    waiting: text about missing executors; empty if there are any.
    """

    done: int
    total: int
    waiting: str = ""


OnProgress = Callable[[SparkProgress], None]


class SparkJobSession(msgspec.Struct, frozen=True):
    """A running Spark session.

    spark: the SparkSession. folder: temporary directory, removed at the end. executors: watches the executors of a
    cluster; None = Spark runs locally.
    """

    spark: Any
    folder: Path
    executors: ExecutorWatch | None = None

    def run_spark_action(
        self,
        action: Callable[[], T],
        on_progress: OnProgress | None = None,
        timeout_seconds: float | None = None,
        *,
        job_name: str = "",
        job_stats: SparkJobStats | None = None,
    ) -> T:
        """Run `action`, which uses Spark, in a background thread; report progress and handle Ctrl-C.

        timeout_seconds: seconds. job_name: name of the jobs in Spark. job_stats: receives statistics of the jobs.

        Raises:
            LimitError: the timeout passed; the job is cancelled.
            InputOutputError: there is no executor.
            KeyboardInterrupt: on SIGINT; Spark has then been killed, and the `with` block must end.
        """
        context, deadline = (
            self.spark.sparkContext,
            None if timeout_seconds is None else time.monotonic() + timeout_seconds,
        )
        job_stats = job_stats or SparkJobStats()
        group = job_stats.create_job_group_name()
        if self.executors is not None:
            self.executors.restart_timeout()

        def run_in_group() -> T:
            context.setJobGroup(group, job_name)
            return action()

        def poll() -> None:
            if deadline is not None and time.monotonic() > deadline:
                context.cancelAllJobs()
                raise LimitError("the time limit was reached")
            waiting = (
                self.executors.waiting_text
                if self.executors is not None and self.executors.is_without_executors()
                else ""
            )
            if on_progress:
                on_progress(self._read_progress(group, waiting))

        result = run_interruptibly_in_thread(run_in_group, poll, context._gateway.proc.kill)
        job_stats.update(context)
        return result

    def count_parallel_tasks(self) -> int:
        """Return the number of tasks that can run in parallel; waits for the executors of a cluster."""
        if self.executors is not None:
            self.executors.wait_until_registered()
        return int(self.spark.sparkContext.defaultParallelism)

    def _read_progress(self, group: str, waiting: str) -> SparkProgress:
        tracker = self.spark.sparkContext.statusTracker()
        stages: set[int] = set()
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            stages.update(info.stageIds if info else ())
        infos = [info for info in map(tracker.getStageInfo, stages) if info]
        estimated = (len(stages) - len(infos)) * max((i.numTasks for i in infos), default=0)
        return SparkProgress(
            sum(i.numCompletedTasks for i in infos), sum(i.numTasks for i in infos) + estimated, waiting
        )


@contextlib.contextmanager
def open_session(master: str | SparkMaster = "local[*]") -> Iterator[SparkJobSession]:
    """Start Spark for a `with` block; at its end, Spark's processes and files are removed.

    Args:
        master: local[N], or a cluster. Its executors receive this package but need a Python with the dependencies, at
            the path of this Python or in PYSPARK_PYTHON. For more settings see `export.spark_settings`.

    Raises:
        UsageError: this kind of master is not supported.
        MissingExtraError: pyspark, pyarrow or a usable Java is missing.
        InputOutputError: Spark cannot start (the message ends with its output), the master does not answer, or the Java
            process ended within the block or refused a call.
        KeyboardInterrupt: on SIGINT while it starts.
    """
    chosen = SparkMaster.coerce(master)
    check_master_url(chosen.url)
    require_modules_lifting_memory_limit("--master", "pyspark", "pyarrow", extra="spark")
    check_master_answers(chosen.url)
    user_conf = read_user_settings(chosen.conf)
    java_program = find_java.find_java()
    with create_work_folder() as folder, _restore_module_path(folder):
        home = find_java.make_java_home(java_program, folder)
        with _set_environment(**_worker_environment(chosen.url)), _mute_py4j():
            with _set_environment(JAVA_HOME=str(home)):  # only while starting: other programs keep their own Java
                spark = _start_spark(chosen, user_conf, folder)
            is_interrupted = False  # after which nothing is left to stop
            try:
                with _translate_java_errors():
                    yield SparkJobSession(spark, folder, _create_executor_watch(spark.sparkContext, chosen))
            except KeyboardInterrupt:
                is_interrupted = True
                raise
            finally:
                _stop_spark(spark, kills_only=is_interrupted)


@contextlib.contextmanager
def _restore_module_path(folder: Path) -> Iterator[None]:
    """Remove the zips in `folder`, which Spark adds, from the module search path at the end."""
    try:
        yield
    finally:
        sys.path[:] = [one for one in sys.path if not one.startswith(f"{folder}{os.sep}")]


@contextlib.contextmanager
def use_session(session: SparkJobSession | None, master: str | SparkMaster) -> Iterator[SparkJobSession]:
    """Provide the given session, or start a new session at `master`."""
    if session is not None:
        with _translate_java_errors():
            yield session
    else:
        with open_session(master) as opened:
            yield opened


@contextlib.contextmanager
def _translate_java_errors() -> Iterator[None]:
    """Convert errors of the Java side, or its loss, to InputOutputError."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    try:
        yield
    except Py4JNetworkError as error:
        raise InputOutputError("Spark's Java process ended unexpectedly") from error
    except Py4JError as error:
        raise InputOutputError(f"Spark failed: {format_java_root_cause(error)}") from error


@contextlib.contextmanager
def _mute_py4j() -> Iterator[None]:
    """Drop the tracebacks that py4j writes to the root logger for each lost connection."""

    def is_not_py4j(record: logging.LogRecord) -> bool:
        return f"{os.sep}py4j{os.sep}" not in record.pathname

    logging.root.addFilter(is_not_py4j)
    try:
        yield
    finally:
        logging.root.removeFilter(is_not_py4j)


def format_java_root_cause(error: Exception) -> str:
    """Return the innermost cause that Java reports, or else the first line, without the names of Java classes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return _JAVA_CLASS.sub("", causes[-1] if causes else lines[0])


def _create_executor_watch(context: Any, master: SparkMaster) -> ExecutorWatch | None:
    return (
        None
        if master.is_local
        else ExecutorWatch(context, master.wait_executors, configured_executors(context.getConf().get))
    )


def _worker_environment(master: str) -> dict[str, str]:
    """Return environment variables for Spark's Python workers.

    With them, workers run this Python and find this package, even in a source tree that is not installed; they import
    nothing from the working directory, which is a private directory (`_launch_java`).
    """
    package_root = str(Path(__file__).parents[2])
    paths = [package_root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    python = sys.executable if is_local_url(master) else os.environ.get("PYSPARK_PYTHON", sys.executable)
    values = {
        "PYSPARK_PYTHON": python,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)),
        "PYTHONSAFEPATH": "1",
    }
    if is_loopback_sufficient(master):
        values["SPARK_LOCAL_IP"] = "127.0.0.1"
    return values


@contextlib.contextmanager
def _set_environment(**values: str) -> Iterator[None]:
    """Set environment variables for a `with` block, as PySpark takes some paths only from them."""
    old_values = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in old_values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start_spark(master: SparkMaster, user_conf: Mapping[str, str], folder: Path) -> Any:
    (folder / "log4j2.properties").write_text(_LOG4J_PROPERTIES)
    abandoned = threading.Event()

    def give_up() -> None:
        abandoned.set()
        _kill_java(folder)

    try:
        return run_interruptibly_in_thread(
            lambda: _create_spark_session(_launch_java(master, user_conf, folder), folder, abandoned),
            on_interrupt=give_up,
        )
    except Exception as error:
        _kill_java(folder)
        _reset_pyspark()
        raise InputOutputError(f"Spark cannot start: {_read_last_messages(folder) or error}") from error


def _create_spark_session(launched: tuple[Any, Any], folder: Path, abandoned: threading.Event) -> Any:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from binlogtool.spark.data_source import BinlogSource

    conf, gateway = launched
    if abandoned.is_set():
        _kill_java(folder)
    context = SparkContext(conf=conf, gateway=gateway)
    context._accumulatorServer.handle_error = _do_nothing  # the connection breaks when Java is killed
    spark = SparkSession(context)
    spark.dataSource.register(BinlogSource)
    return spark


def _launch_java(master: SparkMaster, user_conf: Mapping[str, str], folder: Path) -> tuple[Any, Any]:
    """Return Spark's settings, and the connection to its Java process."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf_values = build_settings(folder, user_conf, loopback=is_loopback_sufficient(master.url), name=master.name)
    if not master.is_local:
        conf_values["spark.submit.pyFiles"] = str(write_package_zip(folder / "binlogtool.zip"))
    conf = SparkConf(loadDefaults=False).setMaster(master.url).setAll(list(conf_values.items()))
    with (folder / "spark.log").open("wb") as log:
        _write_python_stub(folder, os.environ["PYSPARK_PYTHON"])
        popen_options = {"stdout": log, "stderr": log, "start_new_session": True, "cwd": folder}
        return conf, launch_gateway(conf, popen_options)


def _write_python_stub(folder: Path, python: str) -> None:
    """Write a script that starts this Python, where the driver looks for the Python of an archive for executors."""
    if "/" not in python or os.path.isabs(python):
        return
    script = folder / python
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o700)


def _stop_spark(spark: Any, *, kills_only: bool) -> None:
    """Stop Spark cleanly, with a time limit, then end its Java process. kills_only: only end the process."""
    gateway = spark.sparkContext._gateway
    done = threading.Event()

    def stop_cleanly() -> None:
        with contextlib.suppress(Exception):
            spark.stop()
            gateway.shutdown()
        done.set()

    with suppress_logging():
        if not kills_only:
            threading.Thread(target=stop_cleanly, daemon=True).start()
            done.wait(STOP_TIMEOUT_S)
        process = gateway.proc
        process.stdin.close()
        if not done.is_set():
            process.kill()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if not kills_only:
            done.wait(_FINAL_CALL_TIMEOUT_S)
    _reset_pyspark()


def _kill_java(folder: Path) -> None:
    """Kill the Java process; its Python workers end with it, as their pipes close."""
    pid_file = find_java.pid_file_path(folder)
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        pid_file.unlink()
        os.kill(pid, signal.SIGKILL)


def _reset_pyspark() -> None:
    """Reset PySpark's class attributes, which refer to the dead session, so that a later session can start."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _read_last_messages(folder: Path) -> str:
    """Return the last messages that Spark printed, without stack traces."""
    with contextlib.suppress(OSError):
        text = (folder / "spark.log").read_text(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not _STACK_TRACE_LINE.match(line)]
        causes = [line for line in lines if line.startswith("Caused by:")]
        return " | ".join(_JAVA_CLASS.sub("", line) for line in (causes or lines)[-_SHOWN_LOG_LINES:])
    return ""
