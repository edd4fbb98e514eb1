"""Writers, compactions, readers and a clean-up of the log of one table, which take turns at each request for a file.

A run follows from its numbers alone: they determine the order, what the writers plan, and where one of them dies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.land.data_file import DataFile
from holdfast.spark.pipelines.land.delta_entry import LOG, entry_name
from holdfast.spark.pipelines.land.delta_log import DeltaLog
from holdfast.spark.pipelines.land.parquet_merge import merge_files
from holdfast.spark.pipelines.land.table_compaction import Compaction, Merge
from holdfast.spark.pipelines.land.table_files import TableFiles
from holdfast.spark.pipelines.land.writer import TableWriter
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import SharedFiles
from holdfast.types import TopicPartition
from tests.unit.spark.pipelines.actors import Actor
from tests.unit.spark.pipelines.land_harness import TOPIC, every, opened, rows_of, writing
from tests.unit.spark.pipelines.places import Place

TOPIC_PARTITION: TopicPartition = (TOPIC, 0)
LAST = 40
_STEPS = 20_000


_TURNS = ("read", "link", "create")
"""What other processes can see, or change: reads and creations of entries."""

MakeLog = Callable[[Location, SharedFiles], DeltaLog]


class Run:
    def __init__(self, place: Place, numbers: Sequence[int], make_log: MakeLog = DeltaLog) -> None:
        self.table = place.location
        self._place = place
        self._numbers = cycle(numbers or [0])
        self._make_log = make_log
        self.deaths = self.races = self.exchanges = self.cleanups = 0

    def play(self) -> None:
        """All at once, with deaths; then one writer alone, which lands the rest. Each offset is in the table once."""
        actors = [Actor(self._writer) for _ in range(3)] + [Actor(self._compaction) for _ in range(2)]
        actors += [Actor(self._reader), Actor(self._log_cleanup)]
        try:
            self._take_turns(actors)
        finally:
            for actor in actors:
                if not actor.is_over:
                    actor.step(dies=True)
        self._land(self._new_writer(lambda: None), 0, LAST)
        assert rows_of(self.table) == every((0, 0, LAST))

    def _take_turns(self, actors: list[Actor]) -> None:
        for _ in range(_STEPS):
            alive = [actor for actor in actors if not actor.is_over]
            if not alive:
                return
            number = next(self._numbers)
            actor = alive[number % len(alive)]
            dies = number % 13 == 12
            self.deaths += dies
            actor.step(dies=dies)
            for _ in range(number >> 8 & 31):  # the others are paused for that long
                if not actor.is_over:
                    actor.step()
        raise AssertionError("a process does not end")

    # -- processes -----------------------------------------------------------------------------------------------------

    def _new_writer(self, turn: Callable[[], None]) -> TableWriter:
        files = self._files(turn)
        return TableWriter(self._make_log(self.table, files), TableFiles(self.table, files), "writer")

    def _files(self, turn: Callable[[], None]) -> SharedFiles:
        def step(what: str, _path: str) -> None:
            if what in _TURNS:
                turn()

        return self._place.files(step, with_reads=True)

    def _writer(self, turn: Callable[[], None]) -> None:
        writer = self._new_writer(turn)
        for _ in range(3):
            # The group's offset is never beyond the table: it is stored when a batch is landed.
            reached = self._end()
            start = max(0, reached - next(self._numbers) % 6)
            self._land(writer, start, min(LAST, start + 1 + next(self._numbers) % 9))

    def _end(self) -> int:
        log = DeltaLog(self.table)
        return log.ends([TOPIC_PARTITION])[TOPIC_PARTITION] or 0

    def _land(self, writer: TableWriter, start: int, end: int) -> None:
        if start >= end:
            return
        wanted = [OffsetRange(*TOPIC_PARTITION, start, end)]
        landed = writer.land(wanted, writing(self.table))
        self.races += landed.already > 0

    def _compaction(self, turn: Callable[[], None]) -> None:
        for _ in range(2):
            turn()
            self._end()  # creates the table
            work = _Merging(self.table, self._merge_all, now_s=lambda: 2e9, files=self._files(turn))
            work._log = self._make_log(self.table, self._files(turn))
            self.exchanges += work.run().commits

    def _merge_all(self, merges: Sequence[Merge]) -> list[DataFile]:
        files = TableFiles(self.table)
        return [merge_files(files, merge.files) for merge in merges]

    def _reader(self, turn: Callable[[], None]) -> None:
        for _ in range(4):
            turn()
            found = [row[2] for row in rows_of(self.table)]
            assert found == list(range(len(found))), "a reader sees each offset once, and none is left out"

    def _log_cleanup(self, turn: Callable[[], None]) -> None:
        """As if the retention time of the log were over at once: the entries before a checkpoint are deleted."""
        for _ in range(2):
            turn()
            self._end()
            table = opened(self.table)
            table.create_checkpoint()
            for name in self._place.names(f"{LOG}/*.json"):
                if name < entry_name(table.version()):
                    self._place.delete(name)
            self.cleanups += 1


class _Merging(Compaction):
    """Deletes no data files: readers and writers hold no file for longer than a turn here."""

    def _delete_unneeded(self) -> None:
        """Nothing is old."""
