"""Time a row and memory of a forecaster with trend, day, week and year, along an endless stream of half-hours.

    PYTHONPATH=python python benchmarks/series.py [rows [lags]]

Prints, after every power of ten, every million and at the end, the processor time of a row since the line before (without fits,
and with them), and the memory of the process. The word "lags" adds the twelve lags that a model with a day and a week has.
"""

import sys
import time

import numpy as np

from wiski import _core

DAY = 48.0


def block(start, count, rng):
    """Rows of a series with all three seasons and noise."""
    t = np.arange(start, start + count, dtype=np.float64)
    hour, day = t % DAY / 2, np.floor(t / DAY) % 7
    # Rush hours, so that the seasons need many harmonics.
    rush = np.exp(-(((hour - 8) / 0.8) ** 2)) + np.exp(-(((hour - 18) / 1.5) ** 2))
    y = 10 * np.sin(t * 2 * np.pi / (365.25 * DAY)) + 12 * rush * (day < 5) + 6 * np.sin((hour - 9) * np.pi / 12)
    return t, y + rng.normal(size=count)


def resident():
    """The memory of this process, in MB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def main():
    rows = int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000
    rng = np.random.default_rng(0)
    lags = [1, 2, 3, 4, 47, 48, 49, 50, 335, 336, 337, 338] if "lags" in sys.argv else []
    model = _core.Forecaster([DAY, 7 * DAY, 365.25 * DAY], lags, "linear", "auto", (False, 1.0), 0, 4096)
    done, goal = 0, 1000
    print(f"{'rows':>10} {'µs a row':>9} {'with fits':>9} {'MB':>7}")
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
            print(f"{done:>10} {each:>9.1f} {1e6 * (plain + fitting) / since:>9.1f} {resident():>7.1f}", flush=True)
            goal = 10 * goal if done < 10**5 else goal + 10**6
            plain = fitting = 0.0
            counted = since = 0


if __name__ == "__main__":
    main()
