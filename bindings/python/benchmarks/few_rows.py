"""Series of textbooks, 40 to 2,000 rows: every default, beside statsforecast's AutoETS, AutoTheta, AutoARIMA and the seasonal naive forecast.

    python benchmarks/few_rows.py [--only lynx,nile] [--seasons told] [--scale linear]

Needs `pip install statsforecast pmdarima statsmodels`: the last two hold the series. Forecasts start from four rows near the end and
from rows 40, 60 and 100, as far ahead as in the M4 competition (18 months, 8 quarters; here also 8 years, 96 half-hours). The others are told the season; wiski is not, unless `--seasons
told`. Figures are RMSE in units of the mean error of the seasonal naive forecast within the rows before, the share inside 95 %, and the
interval score in the same units (Gneiting and Raftery 2007); geometric means over series.
"""

import argparse
import warnings

import numpy as np
import pmdarima.datasets as textbook
import statsmodels.api as sm
from statsforecast.models import AutoARIMA, AutoETS, AutoTheta, SeasonalNaive

import wiski

AHEAD = {1: 8, 4: 8, 12: 18, 48: 96}
LEVEL = 95


def series():
    """Name, season and values."""
    monthly = {name: getattr(textbook, f"load_{name}")() for name in ("airpassengers", "wineind")}
    quarterly = {name: getattr(textbook, f"load_{name}")() for name in ("woolyrnq", "ausbeer", "austres")}
    plain = {"lynx": textbook.load_lynx(), "heartrate": textbook.load_heartrate()}
    plain["nile"] = sm.datasets.nile.load_pandas().data["volume"]
    macro = sm.datasets.macrodata.load_pandas().data
    plain |= {name: macro[name] for name in ("realgdp", "cpi", "unemp", "m1", "infl", "realinv")}
    monthly["elnino"] = sm.datasets.elnino.load_pandas().data.iloc[:, 1:].to_numpy().ravel()
    for season, group in ((12, monthly), (4, quarterly), (1, plain), (48, {"taylor": textbook.load_taylor()[-1500:]})):
        for name, values in group.items():
            values = np.asarray(values, dtype=float)
            yield name, season, values[np.isfinite(values)]


def origins(rows, season):
    """The rows that forecasts start from: few of them, and near the end."""
    ahead = AHEAD[season]
    few = [row for row in ((40, 60, 100) if season in (4, 12) else (40, 100)) if 2 * season <= row <= rows - ahead]
    return few, [rows - ahead - k * (ahead // 2) for k in range(4)]


def scores(values, origin, season, forecast):
    """Scaled RMSE, share inside and scaled interval score."""
    known, wanted = values[:origin], values[origin : origin + AHEAD[season]]
    lag = season if origin > season + 5 else 1
    scale = np.mean(np.abs(known[lag:] - known[:-lag]))
    mean, lower, upper = forecast
    off = np.maximum(lower - wanted, 0) + np.maximum(wanted - upper, 0)
    width = np.mean(upper - lower + 2 / (1 - LEVEL / 100) * off)
    return np.sqrt(np.mean((mean - wanted) ** 2)) / scale, np.mean(off == 0), width / scale


def methods(season, told, scale):
    def own(known, ahead):
        model = wiski.Forecaster(seasons=[season] if told and season > 1 else "auto", scale=scale).fit(known)
        said = model.predict(ahead, level=LEVEL / 100)
        return said.mean, said.lower, said.upper

    def other(model):
        def run(known, ahead):
            said = model.forecast(y=known, h=ahead, level=[LEVEL])
            return said["mean"], said[f"lo-{LEVEL}"], said[f"hi-{LEVEL}"]

        return run

    out = {"wiski": own, "AutoETS": other(AutoETS(season_length=season)), "AutoTheta": other(AutoTheta(season_length=season))}
    if season <= 12:
        out["AutoARIMA"] = other(AutoARIMA(season_length=season, max_p=3, max_q=3))
    return out | {"seasonal naive": other(SeasonalNaive(season_length=season))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="series, by name")
    parser.add_argument("--seasons", choices=["found", "told"], default="found")
    parser.add_argument("--scale", choices=["auto", "linear", "log"], default="auto")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    wanted = [name for name in arguments.only.split(",") if name]
    means = {"few rows": {}, "near the end": {}}
    print("| series | from | " + "method | RMSE | inside | interval score |\n| --- | --- | --- | ---: | ---: | ---: |")
    for name, season, values in series():
        if wanted and name not in wanted:
            continue
        for (where, table), rows in zip(means.items(), origins(len(values), season)):
            for method, run in methods(season, arguments.seasons == "told", arguments.scale).items():
                each = [scores(values, row, season, run(values[:row], AHEAD[season])) for row in rows]
                if not each:
                    continue
                rmse, inside, width = np.array(each).T
                figures = (np.exp(np.log(rmse).mean()), inside.mean(), np.exp(np.log(width).mean()))
                table.setdefault(method, {})[name] = figures
                print(f"| {name} | {where} | {method} | " + "{:.3f} | {:.2f} | {:.2f} |".format(*figures), flush=True)
    for where, table in means.items():
        # Those that every method has forecast.
        shared = set.intersection(*(set(figures) for figures in table.values())) if table else set()
        for method, figures in table.items():
            rmse, inside, width = np.array([figures[name] for name in sorted(shared)]).T
            line = f"{np.exp(np.log(rmse).mean()):.3f} | {inside.mean():.2f} | {np.exp(np.log(width).mean()):.2f} |"
            print(f"| {len(shared)} series | {where} | {method} | {line}")


if __name__ == "__main__":
    main()
