"""Which tests know a module: those of the first file are tried first, then the fastest."""

from __future__ import annotations

_PLANS = ("tests/recovery/test_plan.py", "tests/recovery/test_repair.py", "tests/recovery/test_repair_lists.py")
_CARRIED_OUT = ("tests/recovery/test_transaction.py", "tests/recovery/test_transaction_finish.py")
_DISKS = ("tests/crash/test_model_disk.py", "tests/recovery/test_repair.py", "tests/recovery/test_owner.py")
_IBB = "tests/formats/mariadb_innodb_binlog/test_repair_ibb.py"

_LIMITS = ("tests/recovery/test_unfinished.py", "tests/recovery/test_leftovers.py")

SUITES: dict[str, tuple[str, ...]] = {
    "repair.plan_truncate": ("tests/recovery/test_durable.py", *_PLANS, _IBB, *_LIMITS),
    "repair.plan": ("tests/recovery/test_plan_values.py", *_PLANS),
    "repair.atomic_file_changes": (*_CARRIED_OUT, *_DISKS),
    "core.resync": ("tests/log/test_resync.py", "tests/log/test_resync_bounds.py"),
}
