"""`Recorder`: stores the records of a search, and keeps them where that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from loopwright.dsl.words import counted
from loopwright.transfer.records.store import Record, RecordError, RecordStore


class Recorder:
    """Stores records as long as the store takes them; then keeps them until `again`. A disk may be
    full after hours of measurements: nothing here raises, and `unstored` says why not all are
    stored."""

    def __init__(self, store: RecordStore | None, tell: Callable[[str], None]) -> None:
        """`store` is None where nothing is to be kept."""
        self.unstored = ""
        self._store, self._tell = store, tell
        self._records: list[Record] = []

    def add(self, records: Sequence[Record]) -> list[Record]:
        """The records, with their numbers if they could be stored."""
        if self._store is None or not records:
            return list(records)
        self._records += records
        if not self.unstored:
            try:
                ids = self._store.add(records)
                return [replace(record, id=number) for record, number in zip(records, ids)]
            except RecordError as error:
                self.unstored = str(error)
                self._tell(f"what is measured is not stored for now: {error}")
        return list(records)

    def again(self) -> bool:
        """Store all records if a part could not be stored, and tell what became of it: equal ones
        are stored once. Return whether that was needed, and worked."""
        if self._store is None or not self.unstored:
            return False
        count = counted(len(self._records), "record")
        try:
            self._store.add(self._records)
        except RecordError as error:
            self._tell(f"of {count} of this search, not all could be stored: {error}")
            return False
        self.unstored = ""
        self._tell(f"{count} of this search were stored at last, in {self._store.location}")
        return True
