"""See `recorder`."""

import sys
from pathlib import Path

from tests.export.connectors.recorder import SERVERS, Case, record

ALL = {
    "maxwell": ("workload", "more", "keys", "transactions"),
    "canal": ("workload", "more", "keys", "transactions"),
    "debezium": ("workload", "more", "keys", "transactions", "odd"),
}

if __name__ == "__main__":
    jars, *wanted = sys.argv[1:]
    for connector, workloads in ALL.items():
        for server in SERVERS:
            for workload in workloads:
                name = f"{connector}/{server}/{workload}"
                if not wanted or any(f"{name}/".startswith(f"{one}/") for one in wanted):
                    print(name, record(Case(connector, server, workload), Path(jars).resolve()), flush=True)
