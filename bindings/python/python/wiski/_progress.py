"""How far a long fit is, on standard error."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType


class Progress:
    """Says every second how many rows are learned, and every five what is done meanwhile, from a thread of its own: a search
    for features takes many seconds in a single call."""

    def __init__(self, rows: int, wanted: bool) -> None:
        self._rows, self._wanted = rows, wanted
        self.done = 0
        self.doing = "learning"
        self._start = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._speak, name="wiski progress", daemon=True)

    def __enter__(self) -> Progress:
        if self._wanted:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._wanted:
            self._ended.set()
            self._thread.join()

    def _speak(self) -> None:
        said, at = (-1, ""), self._start
        while not self._ended.wait(1.0):
            state, now = (self.done, self.doing), time.monotonic()
            if state != said or now - at >= 5.0:
                said, at = state, now
                text = f"wiski: {self.done} of {self._rows} rows after {now - self._start:.0f} s, {self.doing}"
                print(text, file=sys.stderr, flush=True)
