"""Any order of writing, going back, failing, dying and reopening, compared with a plain dictionary."""

import shutil
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rlhf_studio.runs import schema
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, StepRecord, WatchRecord
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import NASTY_TEXTS, new_run, rollout, same, token_record

pytestmark = pytest.mark.slow

texts = st.sampled_from(NASTY_TEXTS) | st.text(alphabet=st.characters(), max_size=5)
numbers = st.floats(allow_nan=True, allow_infinity=True)
metrics = st.dictionaries(st.sampled_from(["objective/kl", "lr", "\ud800", "loss/value_avg"]), numbers, max_size=4)


class Store(RuleBasedStateMachine):
    @initialize()
    def create(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.run = new_run(self.root / "run")
        self.writer = RunWriter(self.run)
        self.readers = [RunReader(self.run), RunReader(self.run)]
        self.steps: dict[int, StepRecord] = {}
        self.before: dict[int, StepRecord] = {}  # recorded before a resume, and not played again yet
        self.watched: dict[tuple[int, int], WatchRecord] = {}
        self.events: list[EventRecord] = []
        self.step, self.epoch, self.seq = 0, 0, self.readers[0].status().seq

    def teardown(self) -> None:
        if hasattr(self, "root"):
            self.writer.close()
            shutil.rmtree(self.root)

    def record(self, gap: int, values: dict[str, float], samples: list[tuple[str, float, int]], text: str) -> StepRecord:
        return StepRecord(
            step=self.step + gap,
            metrics=values,
            rollouts=[
                rollout(number, score, token_record(length, seed=number), prompt=sample_text, parts={sample_text: score})
                for number, (sample_text, score, length) in enumerate(samples)
            ],
            watched=[WatchRecord(0, text, text, 1.0, None)],
            events=[EventRecord("info", "phase", text, {"text": text})],
        )

    samples = st.lists(st.tuples(texts, numbers, st.integers(0, 4)), max_size=2)

    @rule(gap=st.integers(1, 3), values=metrics, samples=samples, text=texts)
    def commit(self, gap: int, values: dict[str, float], samples: list, text: str) -> None:
        record = self.record(gap, values, samples, text)
        self.writer.commit_step(record)
        self.steps[record.step] = record
        self.before = {step: old for step, old in self.before.items() if step > record.step}
        self.watched[record.step, 0] = record.watched[0]
        self.events += record.events
        self.step = record.step
        self.seq += 1

    @rule(gap=st.integers(1, 3), values=metrics, samples=samples, text=texts)
    def commit_on_a_full_disk(self, gap: int, values: dict[str, float], samples: list, text: str) -> None:
        def full(connection: sqlite3.Connection) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(schema, "commit", full)
            with pytest.raises(StoreError, match="disk is full"):
                self.writer.commit_step(self.record(gap, values, samples, text))

    @rule(back=st.integers(0, 3), same_sample=st.booleans())
    def commit_an_old_step(self, back: int, same_sample: bool) -> None:
        with pytest.raises(StoreError, match="go back first"):
            self.writer.commit_step(StepRecord(self.step - back, {"lr": 1.0}, []))

    @rule(back=st.integers(0, 4))
    def resume_from_an_earlier_step(self, back: int) -> None:
        target = max(0, self.step - back)
        self.writer.go_back(target)
        self.before |= {step: record for step, record in self.steps.items() if step > target}
        self.steps = {step: record for step, record in self.steps.items() if step <= target}
        self.watched = {key: record for key, record in self.watched.items() if key[0] <= target}
        self.step = min(self.step, target)
        self.epoch += 1
        self.seq += 1

    @rule(text=texts, number=st.integers(0, 2))
    def watch_the_start(self, text: str, number: int) -> None:
        record = WatchRecord(number, text, text, 0.5, None)
        self.writer.watched(0, [record])
        self.watched = {key: old for key, old in self.watched.items() if key[0] > 0} | {(0, number): record}
        self.seq += 1

    @rule(text=texts)
    def tell(self, text: str) -> None:
        record = EventRecord("warning", "health", text, {})
        self.writer.event(record)
        self.events.append(record)
        self.seq += 1

    @rule(clean=st.booleans())
    def end_and_open_again(self, clean: bool) -> None:
        if clean:
            self.writer.close()
        else:  # as after a kill: the connection goes without a word, the write-ahead log stays
            self.writer._connection.close()
        self.writer = RunWriter(self.run)
        self.seq += 1

    @precondition(lambda self: hasattr(self, "root"))
    @invariant()
    def both_readers_see_the_model(self) -> None:
        for reader in self.readers:
            status = reader.status()
            assert (status.step, status.epoch, status.seq) == (self.step, self.epoch, self.seq)
            assert status.last_recorded_step == max([self.step, *self.before])
        reader = self.readers[0]
        metrics = dict(reader.metrics_since(0))
        assert list(metrics) == sorted(self.steps)
        flags = {(step, name): value for step, name, value in reader.non_finite()}
        for step, record in self.steps.items():
            values = {name: flags.get((step, name), value) for name, value in metrics[step].items()}
            assert same({name: values[name] for name in record.metrics}, record.metrics) and len(values) == len(record.metrics)
            assert same(reader.rollouts(step), [replace(sample, tokens=None) for sample in record.rollouts])
        recorded = [step for step, record in sorted(self.steps.items()) if record.rollouts]
        assert reader.rollout_steps() == recorded
        for step in recorded[-1:]:
            for sample in self.steps[step].rollouts:
                assert same(reader.rollout(step, sample.sample), sample)
        assert same([list(item) for item in reader.watched()], [[key[0], record] for key, record in sorted(self.watched.items())])
        self.nothing_is_deleted_before_it_is_played_again()
        stored = reader.events_since(0, limit=10_000)
        assert [event.id for event in stored] == list(range(1, len(self.events) + 1))
        assert same([EventRecord(event.level, event.kind, event.text, event.data) for event in stored], self.events)

    def nothing_is_deleted_before_it_is_played_again(self) -> None:
        """Read without the reader, which shows only what is of now."""
        with sqlite3.connect(f"{(self.run / 'run.db').as_uri()}?mode=ro", uri=True) as connection:
            rows = dict(connection.execute("SELECT step, recorded FROM steps WHERE step > ?", (self.step,)).fetchall())
            metrics = dict(connection.execute("SELECT step, count(*) FROM metrics WHERE step > ? GROUP BY step", (self.step,)).fetchall())
            tokens = dict(
                connection.execute("SELECT step, count(*) FROM token_texts WHERE step > ? GROUP BY step", (self.step,)).fetchall()
            )
        connection.close()
        assert rows == {step: len(record.rollouts) for step, record in self.before.items()}
        assert metrics == {step: len(record.metrics) for step, record in self.before.items() if record.metrics}
        assert tokens == {step: len(record.rollouts) for step, record in self.before.items() if record.rollouts}


TestStore = Store.TestCase
TestStore.settings = settings(max_examples=10, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))
