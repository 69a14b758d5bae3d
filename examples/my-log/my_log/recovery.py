"""Is the log whole? Each record is durable by itself; numbers go up by one."""

from collections import Counter

from binlogtool.findings import make_finding
from binlogtool.format_api.format import ValidationResult
from binlogtool.format_api.layout import to_int_list
from my_log.schema import TYPES


class Judge:
    """Looks at the records of one file, in its order."""

    def __init__(self, layout, compile, limits):
        self.types, self.last = Counter(), None

    def validate_batch(self, batch):
        columns = (to_int_list(batch.frames[name], 0, batch.frames.count) for name in ("offset", "end", "type", "seq"))
        found = []
        for record, (start, end, kind, number) in enumerate(zip(*columns, strict=True), batch.first_record):
            place = (batch.base + start, end - start)
            self.types[TYPES.get(kind, str(kind))] += 1
            if kind not in TYPES:
                found.append(make_finding("unknown-record-type", *place, f"type {kind} is unknown", record=record))
            if self.last is not None and number != self.last + 1:
                found.append(make_finding("gap-in-sequence", *place, f"{number} follows {self.last}", record=record))
            self.last = number
        return found

    def skip_damage(self, start, end):
        self.last = None  # records are lost there: the next number may be any

    def finish(self, tail):
        return ValidationResult(transactions=self.types.total(), record_types=dict(self.types))
