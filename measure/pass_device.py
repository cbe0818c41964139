"""`PassDevice`: one program by many pass lists, built, timed and compared as candidates are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopwright.dsl.workload import Workload
from loopwright.measure.builder import Built
from loopwright.measure.device import Comparison, Failure
from loopwright.measure.local import LocalDevice
from loopwright.measure.runner import Sampled
from loopwright.schedule.sketch.sketch import Config


class PassDevice(LocalDevice):
    """This machine's processor, for programs that differ in what LLVM does with them."""

    def build_lists(self, workload: Workload, config: Config, lists: Sequence[str]) -> list[Built]:
        """Build a config by each list, as `passes=` takes it; by LLVM's own where it is empty."""
        task = self._references.of(workload).task
        return self._builder.build_each([replace(task, passes=one) for one in lists], config)

    def time_built(self, workload: Workload, built: Sequence[Built]) -> list[Sampled]:
        """Time and check what was built, side by side, and briefly."""
        data = self._references.of(workload)
        return list(self._runner.measure(data, built, self._timing))

    def compare_built(
        self, workload: Workload, built: Sequence[Built], rounds: int, anew: bool = False
    ) -> Comparison:
        """Take `rounds` samples of each, side by side and of equal length; `anew` in a process
        that has run none of them."""
        if anew:
            self._runner.renew()
        timing = replace(self._timing, shortest=max(5e-3, self._timing.shortest), retries=3)
        return self._runner.compare(self._references.of(workload), built, timing, rounds)

    def verify_built(self, workload: Workload, built: Built) -> Failure | None:
        """Check all elements of the outputs on fresh data."""
        data = self._references.fresh(workload, scaled=False)
        timing = replace(self._timing, cap=0.0)
        return self._runner.run(data, built, timing, whole=True).failure
