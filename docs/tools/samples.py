"""The files that the examples of the documentation read, small and made up, with the names that they have there."""

import csv
import datetime
import math
import random
import shutil
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]

SPACE = """\
[lr]
min = 1e-5
max = 0.1
scale = "log"

[depth]
min = 1
max = 8
integer = true
"""
# A program to be tuned: `./train --lr 0.01 --depth 3` prints a loss.
TRAIN = """\
#!/bin/sh
awk -v lr="$2" -v depth="${4:-5}" 'BEGIN { l = log(lr) / log(10) + 3; print "loss", l * l + (depth - 5) ^ 2 / 10 }'
"""


def write(path: Path, names: list[str], rows: list[tuple[object, ...]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


def table(folder: Path) -> None:
    """Three inputs, a number y and a class kind, in parts; rows without y to be predicted."""
    rng, rows = random.Random(0), []
    for _ in range(900):
        a, b, c = rng.uniform(0, 10), rng.uniform(0, 1), rng.gauss(0, 1)
        y = math.sin(a) + 2 * b * c + rng.gauss(0, 0.1)
        rows.append((round(a, 3), round(b, 3), round(c, 3), round(y, 3), "high" if y > 0 else "low"))
    for name, part in {
        "data": rows[:500], "monday": rows[:400], "tuesday": rows[400:500], "today": rows[500:550],
        "first": rows[550:600], "second": rows[600:650], "sensor": rows[:450],
    }.items():
        write(folder / f"{name}.csv", ["a", "b", "c", "y", "kind"], part)
    for name, part in {"new": rows[700:750], "candidates": rows[750:850], "region": rows[850:]}.items():
        write(folder / f"{name}.csv", ["a", "b", "c"], [row[:3] for row in part])


def series(folder: Path) -> None:
    """Three years of days with a week and a year, and six years of months that rise."""
    rng, first = random.Random(1), datetime.date(2022, 1, 1)
    days = [
        (first + datetime.timedelta(days=t), round(200 + 0.02 * t + 30 * math.sin(t * math.tau / 365.25) + 40 * (t % 7 > 4) + rng.gauss(0, 8)))
        for t in range(1000)
    ]
    write(folder / "sales.csv", ["date", "sold"], days)
    months = [(round(2000 + t / 52, 4), round(370 + t / 26 + 3 * math.sin(t * math.tau / 52) + rng.gauss(0, 0.3), 2)) for t in range(520)]
    write(folder / "co2.csv", ["year", "ppm"], months)


def pump(folder: Path) -> None:
    rng, rows = random.Random(2), []
    for _ in range(400):
        speed, temperature = rng.uniform(1, 5), rng.uniform(10, 30)
        rows.append((round(speed, 2), round(temperature, 1), round(2 * speed + 0.1 * temperature + rng.gauss(0, 0.2), 2)))
    write(folder / "pump.csv", ["speed", "temperature", "power"], rows)


def make(folder: Path) -> None:
    shutil.copy(PROJECT / "crates/wiski/examples/data/heat_pump.csv", folder)
    table(folder)
    series(folder)
    pump(folder)
    (folder / "space.toml").write_text(SPACE)
    (folder / "rows.json").write_text('{"rows": [{"speed": 3.1, "temperature": 20.5, "power": 7.9}]}')
    (folder / "train").write_text(TRAIN)
    (folder / "train").chmod(0o755)
