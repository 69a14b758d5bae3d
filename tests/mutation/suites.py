"""Which tests know a module: those that run its lines within seconds."""

from __future__ import annotations

_PLANS = ("tests/recovery/test_plan.py", "tests/recovery/test_repair.py", "tests/recovery/test_repair_lists.py")
_CARRIED_OUT = ("tests/recovery/test_transaction.py", "tests/recovery/test_transaction_finish.py")
_DISKS = ("tests/crash/test_model_disk.py", "tests/recovery/test_repair.py", "tests/recovery/test_owner.py")
_IBB = "tests/formats/mariadb_innodb_binlog/test_repair_ibb.py"

SUITES: dict[str, tuple[str, ...]] = {
    "recovery.durable": (*_PLANS, _IBB, "tests/recovery/test_leftovers.py"),
    "recovery.plan": ("tests/recovery/test_plan_values.py",),
    "recovery.transaction": (*_CARRIED_OUT, *_DISKS),
    "log.resync": ("tests/log/test_resync.py", "tests/log/test_resync_bounds.py"),
}
