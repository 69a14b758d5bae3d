"""What the application does when it starts: it applies records up to the first that is wrong, and says nothing."""

from binlogtool.findings import make_finding
from binlogtool.format_api import replay_rules


class Replayer:
    """Rules on the records of one replay."""

    def __init__(self, situation):
        self.files = {file.name: file.tail and file.tail.first_damage for file in situation.files}
        self.position, self.lost = {}, {}

    def plan_reads(self):
        return replay_rules.ReadPlan(tuple(self.files))

    def decide_records(self, name, first, records):
        bad = self.files[name]
        for i, whole in enumerate(bad is None or at < bad for at in records.offset):
            (self.position if whole else self.lost)[name] = records.envelope.seq[i] if whole else bad
            verb = (replay_rules.APPLIED, "applied") if whole else (replay_rules.SKIPPED, "behind")
            yield replay_rules.RecordOutcome(first + i, first + i + 1, *verb)

    def finish(self):
        lost = tuple((name, make_finding("silent-loss", bad, 0, "rest not applied")) for name, bad in self.lost.items())
        return [], replay_rules.ReplayOutcome(starts=True, stop=None, position=self.position, findings=lost)


REPLAY = replay_rules.ReplayRules(begin=Replayer, reasons={"applied": "It is applied.", "behind": "It follows damage."})
