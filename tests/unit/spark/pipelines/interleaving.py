"""Writers, compactions and readers of one table, which take turns at every single thing they ask of the disk.

A run follows from its numbers alone: they say who is next, what the writers plan, and who dies where.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, cycle
from pathlib import Path

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.durable_files import Disk
from holdfast.spark.pipelines.land.manifest import DataFile
from holdfast.spark.pipelines.land.manifest_store import ManifestStore
from holdfast.spark.pipelines.land.table_compaction import Compaction, Merge
from holdfast.spark.pipelines.land.writer import TableWriter, WrittenFile
from holdfast.types import TopicPartition
from tests.unit.spark.pipelines.land_harness import Died

TOPIC_PARTITION: TopicPartition = ("numbers", 0)
TABLE = Path(tempfile.gettempdir())
"""It has to exist; nothing is written to it."""
LAST = 40
_OLD = "2020-01-01"
_STEPS = 20_000


class MemoryDisk(Disk):
    """Of one process; the files are everybody's."""

    def __init__(self, files: dict[str, bytes], turn: Callable[[], None]) -> None:
        self.files = files
        self._turn = turn

    def names(self, directory: Path) -> list[str]:
        self._turn()
        inside = f"{directory}/"
        return sorted({path.removeprefix(inside).split("/")[0] for path in self.files if path.startswith(inside)})

    def directories(self, directory: Path) -> list[str]:
        return self.names(directory)

    def read(self, path: Path) -> bytes | None:
        self._turn()
        return self.files.get(str(path))

    def create(self, path: Path, content: bytes) -> bool:
        self._turn()
        created = self.files.setdefault(str(path), content) is content
        self._turn()
        return created

    def remove(self, path: Path) -> None:
        self._turn()
        self.files.pop(str(path), None)

    def touch(self, path: Path) -> None:
        assert str(path) in self.files

    def sync_directory(self, directory: Path) -> None:
        """It is memory."""


class Actor(threading.Thread):
    """Does its work step by step, whenever it is asked to go on."""

    def __init__(self, work: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._dies = False
        self.is_over = False
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        self._go.acquire()
        try:
            if not self._dies:
                self._work(self._turn)
        except Died:
            pass
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            self.error = error
        self.is_over = True
        self._stopped.release()

    def _turn(self) -> None:
        self._stopped.release()
        self._go.acquire()
        if self._dies:
            raise Died

    def step(self, *, dies: bool = False) -> None:
        self._dies = dies
        self._go.release()
        self._stopped.acquire()
        if self.error is not None:
            raise self.error


MakeStore = Callable[[MemoryDisk], ManifestStore]


class Run:
    def __init__(self, numbers: Sequence[int], make_store: MakeStore = lambda disk: ManifestStore(TABLE, disk)) -> None:
        self.files: dict[str, bytes] = {}
        self._numbers = cycle(numbers or [0])
        self._make_store = make_store
        self._names = count()
        self.deaths = self.races = 0

    def play(self) -> None:
        """Everybody at once, with deaths; then one writer alone, which lands what is left. Each offset stands once."""
        actors = [Actor(self._writer) for _ in range(3)] + [Actor(self._compaction) for _ in range(2)]
        actors.append(Actor(self._reader))
        try:
            self._take_turns(actors)
        finally:
            for actor in actors:
                if not actor.is_over:
                    actor.step(dies=True)
        self._lands(self._make_store(self._own_disk()), "the last", 0, LAST)
        assert self._landed(self._make_store(self._own_disk())) == list(range(LAST))

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
            for _ in range(number >> 8 & 31):  # the others stand still for that long
                if not actor.is_over:
                    actor.step()
        raise AssertionError("somebody goes round in circles")

    # -- who takes part ------------------------------------------------------------------------------------------------

    def _writer(self, turn: Callable[[], None]) -> None:
        store = self._make_store(MemoryDisk(self.files, turn))
        lander = TableWriter(store, "writer")
        for _ in range(3):
            # The group's offset is never beyond the table: it is stored when a batch is landed.
            reached = store.end(TOPIC_PARTITION) or 0
            start = max(0, reached - next(self._numbers) % 6)
            end = min(LAST, start + 1 + next(self._numbers) % 9)
            self._lands(store, "", start, end, lander)

    def _lands(self, store: ManifestStore, name: str, start: int, end: int, lander: TableWriter | None = None) -> None:
        if start >= end:
            return
        wanted = OffsetRange(*TOPIC_PARTITION, start, end)

        def write(floors: Mapping[TopicPartition, int]) -> list[WrittenFile]:
            return [WrittenFile(TOPIC_PARTITION, self._data_file(range(floors[TOPIC_PARTITION], end)))]

        landed = (lander or TableWriter(store, name)).land([wanted], write)
        self.races += landed.already > 0

    def _compaction(self, turn: Callable[[], None]) -> None:
        for _ in range(2):
            _Merging(self._make_store(MemoryDisk(self.files, turn)), self._merge_all).run()

    def _reader(self, turn: Callable[[], None]) -> None:
        for _ in range(4):
            found = self._landed(self._make_store(MemoryDisk(self.files, turn)))
            assert found == list(range(len(found))), "a reader sees each offset once, and none is left out"

    # -- files ---------------------------------------------------------------------------------------------------------

    def _own_disk(self) -> MemoryDisk:
        return MemoryDisk(self.files, lambda: None)

    def _data_file(self, offsets: Sequence[int]) -> DataFile:
        path = f"topic=numbers/date={_OLD}/{next(self._names)}.parquet"
        self.files[str(TABLE / path)] = json.dumps(list(offsets)).encode()
        return DataFile(path, _OLD, min(offsets), max(offsets) + 1, len(offsets), 10)

    def _offsets(self, file: DataFile) -> list[int]:
        offsets: list[int] = json.loads(self.files[str(TABLE / file.path)])
        return offsets

    def _merge_all(self, merges: Sequence[Merge]) -> list[DataFile]:
        return [self._data_file([one for file in merge.files for one in self._offsets(file)]) for merge in merges]

    def _landed(self, store: ManifestStore) -> list[int]:
        chain = store.chain(TOPIC_PARTITION)
        if chain is None:
            return []
        found = sorted(offset for file in chain.files for offset in self._offsets(file))
        assert found == list(range(chain.first, chain.end))
        return found


class _Merging(Compaction):
    """Deletes no data files: when is a matter of time, and there is none here."""

    def _sweep(self, topic: str) -> None:
        del topic


def random_numbers(seed: int) -> Iterator[list[int]]:
    import random

    chance = random.Random(seed)
    while True:
        yield [chance.randrange(1 << 16) for _ in range(400)]
