# %% [markdown]
# # A tour of wiski in Python
#
# Cells are marked by `# %%`: open this file as a notebook in an editor that knows them, or run it as it is. Every cell
# checks what it claims, and the project's tests run it.

# %%
import pathlib
import tempfile

import matplotlib

matplotlib.use("Agg")  # no window needed

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import wiski
from wiski import OnlineGPClassifier, OnlineGPRegressor, Optimizer, Stats, plot

folder = pathlib.Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)

# %% [markdown]
# ## A stream
#
# A heat pump draws a power that depends on the temperature outside and on the hour. Readings come one by one. Until
# there are enough to start from (50 here), predictions are the mean of what was seen; then each reading is predicted
# before it is learned, and `metrics_` says how good that was.

# %%
hours = np.arange(3000) / 4
frame = pd.DataFrame({"outside": 8 + 6 * np.sin(hours / 24) + rng.normal(size=3000), "hour": hours % 24})
power = 3 - 0.12 * frame["outside"] + 0.5 * np.sin(2 * np.pi * frame["hour"] / 24) + 0.1 * rng.normal(size=3000)

model = OnlineGPRegressor()
for i in range(0, 2000, 100):
    model.partial_fit(frame[i : i + 100], power[i : i + 100])
print(model.metrics_)
assert model.metrics_["rmse"] < 0.15
assert 0.90 < model.metrics_["coverage95"] < 0.99

# %% [markdown]
# ## Predictions with uncertainty
#
# The deviation is that of an observation; without its noise, that of the function. Close to data the function is known
# well, far away it is not.

# %%
mean, std = model.predict(frame[2000:], return_std=True)
inside = np.mean(np.abs(power[2000:] - mean) < 1.96 * std)
print(f"{100 * inside:.1f} % of the next 1000 readings inside of their 95 % interval")
assert 0.9 < inside < 0.99
_, function = model.predict(frame[2000:], return_std=True, include_noise=False)
assert np.all(function < std)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5))
plot.band(model, 0, 23.9, column=1, at=[8, 0], ax=left)
plot.surface(model, (0, 16), (0, 23.9), ax=right)
fig.savefig(folder / "heat_pump.png", dpi=100)

# %% [markdown]
# ## Many columns
#
# Rows with more than two columns become a sum of small grids, found and learned on the first rows. Hours repeat, and
# stations are levels: say so.

# %%
many = pd.DataFrame(rng.normal(size=(900, 4)), columns=["a", "b", "c", "d"])
many["hour"] = rng.uniform(0, 24, 900)
target = np.sin(many["a"]) + 0.3 * many["b"] * many["c"] + np.cos(2 * np.pi * many["hour"] / 24)
additive = OnlineGPRegressor("additive:4", periodic={"hour": 24}, rank_budget=200).fit(many[:700], target[:700])
print(f"R² of rows not seen: {additive.score(many[700:], target[700:]):.3f}")
assert additive.score(many[700:], target[700:]) > 0.8

# %% [markdown]
# ## Forgetting, merging, hypothetical rows
#
# Everything that data say is a sum. So rows can be taken out again, two models become one, and "what if" costs nothing.

# %%
before = model.predict(frame[:5])
after = model.condition(frame[:5], before + 1)
assert np.all(after.predict(frame[:5]) > before)
np.testing.assert_array_equal(model.predict(frame[:5]), before)

start = OnlineGPRegressor(schedule="off").partial_fit(frame[:200], power[:200])
whole = OnlineGPRegressor(schedule="off").partial_fit(frame, power)
for part in (frame[200:1500], frame[1500:]):
    start.merge(start.shard().partial_fit(part, power[part.index]))
np.testing.assert_allclose(start.predict(frame), whole.predict(frame), rtol=1e-6)
start.forget(frame[:100], power[:100])
assert start.n_seen_ == 2900

# %% [markdown]
# Across machines, gather `Stats` and add them up; `bindings/python/examples/dask_shards.py` does it with Dask.

# %%
box = [(-15, 30), (0, 24)]
total = sum(Stats(box).update(frame[i::3], power[i::3]) for i in range(3))
assert total.count == 3000
assert OnlineGPRegressor.from_stats(total).score(frame, power) > 0.9

# %% [markdown]
# ## Files
#
# One file, the same for Python and for the command line: `wiski predict model.wiski new.csv`.

# %%
model.save(folder / "model.wiski")
copy = wiski.load(folder / "model.wiski")
np.testing.assert_array_equal(copy.predict(frame), model.predict(frame))

# %% [markdown]
# ## Classes

# %%
busy = np.where(power > power.median(), "busy", "idle")
classes = OnlineGPClassifier().fit(frame[:1500], busy[:1500])
print(f"accuracy {classes.score(frame[1500:], busy[1500:]):.3f}")
assert classes.score(frame[1500:], busy[1500:]) > 0.85
assert np.allclose(classes.predict_proba(frame[:3]).sum(axis=1), 1)

# %% [markdown]
# ## Where to measure next

# %%
search = Optimizer({"temperature": (20, 90), "dose": (1e-3, 1, "log")}, maximize=True)
for _ in range(12):
    for point in search.ask(2):
        result = -(((point["temperature"] - 65) / 20) ** 2) - (np.log10(point["dose"]) + 1.5) ** 2
        search.tell(point, result)
print(search.best)
assert search.best.y > -0.2
