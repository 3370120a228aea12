"""Time a row and memory of a forecaster with trend, day, week and year, along an endless stream of half-hours.

    PYTHONPATH=python python benchmarks/series.py [rows]

Prints, after every power of ten, every million and at the end, the processor time of a row since the line before (without fits,
and with them), the memory of the process and the number of lags.
"""

import sys
import time

import numpy as np

from wiski import _core

DAY = 48.0


def block(start, count, rng):
    """Rows of a series with all three seasons and noise that remembers."""
    t = np.arange(start, start + count, dtype=np.float64)
    y = 10 * np.sin(t * 2 * np.pi / (365.25 * DAY)) + 5 * np.sin(t * 2 * np.pi / DAY) + 2 * np.cos(t * 4 * np.pi / DAY)
    y += 3 * (np.floor(t / DAY) % 7 > 4)
    return t, y + rng.normal(size=count)


def resident():
    """The memory of this process, in MB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def main():
    rows = int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000
    rng = np.random.default_rng(0)
    model = _core.Forecaster([DAY, 7 * DAY, 365.25 * DAY], None, "linear", 0, 1.0, None, 4096)
    done, goal = 0, 1000
    print(f"{'rows':>10} {'µs a row':>9} {'with fits':>9} {'MB':>7}  lags")
    plain = fitting = 0.0
    counted = since = 0
    while done < rows:
        count = min(1000, rows - done)
        t, y = block(done, count, rng)
        none = np.zeros((count, 0))
        begin = time.process_time()
        blocks = done // 1000
        if blocks & (blocks - 1):
            model.advance(t, none, y)
            plain += time.process_time() - begin
            counted += count
        else:
            # The rows have doubled, so here a fit may come.
            model.extend(t, none, y)
            fitting += time.process_time() - begin
        done += count
        since += count
        if done >= goal or done == rows:
            each = 1e6 * plain / max(counted, 1)
            print(f"{done:>10} {each:>9.1f} {1e6 * (plain + fitting) / since:>9.1f} {resident():>7.1f}  {len(model.lags)}", flush=True)
            goal = 10 * goal if done < 10**5 else goal + 10**6
            plain = fitting = 0.0
            counted = since = 0


if __name__ == "__main__":
    main()
