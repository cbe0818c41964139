"""`TensorBoard`: a search as event files, which TensorBoard shows beside others."""

from __future__ import annotations

import math
import os
from typing import Any

from loopwright.explore.budget import TuningError
from loopwright.explore.report.callbacks import Callback, Progress
from loopwright.packages import optional


class TensorBoard(Callback):
    """Writes the best cost, the speed, and failures by kind, by trial.

    By tensorboardX (extra `tensorboard`), a writer of event files without TensorFlow.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Each search of a folder has a file of its own. Raises `TuningError` without the
        package."""
        package = optional("tensorboardX", "a TensorBoard log", TuningError)
        self._writer: Any = package.SummaryWriter(os.fspath(folder))
        self._trials = -1

    def update(self, progress: Progress) -> None:
        if progress.trials == self._trials or self._writer is None:
            return
        self._trials = progress.trials
        if math.isfinite(progress.best):
            self._writer.add_scalar("best/seconds", progress.best, progress.trials)
            speed = progress.flops / progress.best / 1e9
            self._writer.add_scalar("best/GFLOP_per_s", speed, progress.trials)
        for kind, count in progress.failures.items():
            self._writer.add_scalar(f"failures/{kind}", count, progress.trials)

    def note(self, text: str) -> None:
        if self._writer is not None:
            self._writer.add_text("notes", text, max(self._trials, 0))

    def stop(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
