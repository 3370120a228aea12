"""Draws the history of benchmarks and compares its last line with those before.

Usage: benchmarks.py FILE.csv PICTURE.svg
"""

import csv
import statistics
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 320, 50, 130, 20, 40
COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"]
# A change of more than this is worth a look.
NOTABLE = 1.1


def read(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name not in ("date", "commit")]
    return rows, {name: [float(row[name]) for row in rows] for name in names}


def compare(rows, figures):
    """Prints the last line beside the median of up to ten before it."""
    print(f"{'operation':<16} {'kMAC':>9} {'before':>9} {'ratio':>6}")
    for name, values in figures.items():
        before = statistics.median(values[-11:-1]) if len(values) > 1 else values[-1]
        ratio = values[-1] / before
        mark = "  slower" if ratio > NOTABLE else "  faster" if ratio < 1 / NOTABLE else ""
        print(f"{name:<16} {values[-1]:>9.1f} {before:>9.1f} {ratio:>6.2f}{mark}")


def draw(rows, figures):
    """Each operation relative to the median of all its lines, from half to twice as much, on a logarithmic axis."""
    from math import log2

    def x(i):
        return LEFT + (WIDTH - LEFT - RIGHT) * (i / (len(rows) - 1) if len(rows) > 1 else 0.5)

    def y(ratio):
        share = (1 - max(-1.0, min(1.0, log2(ratio)))) / 2
        return TOP + (HEIGHT - TOP - BOTTOM) * share

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for ratio, label in [(0.5, "½"), (0.71, "0.7"), (1.0, "1"), (1.41, "1.4"), (2.0, "2")]:
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 8}" y="{y(ratio) + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for end in sorted({0, len(rows) - 1}):
        label = f"{rows[end]['date']} {rows[end]['commit']}"
        anchor = "start" if end == 0 and len(rows) > 1 else "end" if end else "middle"
        out.append(f'<text x="{x(end):.1f}" y="{HEIGHT - 14}" text-anchor="{anchor}">{label}</text>')
    for k, (name, values) in enumerate(figures.items()):
        color, middle = COLORS[k % len(COLORS)], statistics.median(values)
        places = [(x(i), y(value / middle)) for i, value in enumerate(values)]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        out.extend(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{color}"/>' for a, b in places)
        at = TOP + 16 + 18 * k
        out.append(f'<circle cx="{WIDTH - RIGHT + 20}" cy="{at - 4}" r="4" fill="{color}"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 30}" y="{at}">{name}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    rows, figures = read(sys.argv[1])
    compare(rows, figures)
    with open(sys.argv[2], "w") as file:
        file.write(draw(rows, figures))
