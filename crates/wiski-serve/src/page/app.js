"use strict";
// The page of a server: its models, and one of them live. Everything comes from the routes that clients use.

const SHOWN = 600, WINDOW = 100;
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const brief = (v) => v == null || !isFinite(v) ? "–" : Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(2) : String(+v.toPrecision(4));
const percent = (v) => v == null || !isFinite(v) ? "–" : (100 * v).toFixed(1) + " %";

let current = null;   // the model that is shown
let source = null;    // its events
let charts = {};
let rows = [], latencies = [], metadata = null, isDirty = false;

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.error || response.statusText), { status: response.status });
  return answer;
}

const model = (rest) => "/v2/models/" + encodeURIComponent(current) + (rest || "");

async function listModels() {
  let list;
  try { list = (await ask("/v2/models")).models; } catch { return; }
  $("empty").hidden = list.length > 0;
  const nav = $("models");
  const old = new Map([...nav.children].map((b) => [b.dataset.name, b]));
  for (const m of list) {
    const button = old.get(m.name) || document.createElement("button");
    old.delete(m.name);
    button.dataset.name = m.name;
    const what = m.loaded ? `${m.kind}, ${m.rows.toLocaleString()} rows${m.ready ? "" : ", warming up"}` : "not in memory";
    const text = document.createElement("small");
    text.textContent = what;
    button.replaceChildren(m.name, text);
    button.onclick = () => { location.hash = m.name; };
    button.toggleAttribute("aria-current", m.name === current);
    nav.append(button);
  }
  for (const button of old.values()) button.remove();
  if (!current && list.length > 0 && !location.hash) location.hash = list[0].name;
}

function show(name) {
  if (source) source.close();
  current = name; rows = []; latencies = []; metadata = null;
  Object.values(charts).forEach((c) => c.destroy());
  charts = {};
  $("events").replaceChildren();
  $("answer").textContent = "";
  $("main").hidden = !name;
  if (!name) return;
  $("name").textContent = name;
  $("report").replaceChildren();
  describe().then(report);
  watch();
  listModels();
}

async function describe() {
  const name = current;
  try {
    const found = await ask(model());
    if (name !== current) return;
    metadata = found;
  } catch (error) {
    $("name").textContent = `${name}: ${error.message}`;
    return;
  }
  const { levels, kind } = metadata.parameters;
  const form = $("form"), select = $("effect-column");
  form.replaceChildren(); select.replaceChildren();
  metadata.inputs.forEach((input, i) => {
    const label = document.createElement("label"), field = document.createElement(levels[i] ? "select" : "input");
    field.name = input.name;
    if (levels[i]) field.append(...levels[i].map((l) => new Option(l, l)));
    else { field.inputMode = "decimal"; field.required = true; }
    label.append(input.name, field);
    form.append(label);
    if (!levels[i] && kind !== "forecaster") select.append(new Option(input.name, i));
  });
  if (kind === "forecaster" && metadata.inputs.length === 1) {
    // Without inputs, only how far ahead.
    const label = document.createElement("label"), field = document.createElement("input");
    field.name = "horizon"; field.inputMode = "numeric"; field.required = true; field.value = "12";
    label.append("steps ahead", field);
    form.replaceChildren(label);
  }
  const go = document.createElement("button");
  go.textContent = "Predict";
  form.append(go);
  $("map-section").hidden = metadata.inputs.length !== 2 || levels.some(Boolean) || kind === "classifier" || kind === "forecaster";
  $("effect-section").hidden = select.children.length === 0 || kind === "classifier";
}

function watch() {
  const name = current;
  source = new EventSource(model("/events?rate=100"));
  const status = $("connection");
  source.onopen = () => { status.textContent = "live"; status.className = ""; };
  source.onerror = () => {
    status.textContent = "the stream is broken; trying again";
    status.className = "broken";
    // A browser gives up after some errors; the page does not.
    if (source && source.readyState === EventSource.CLOSED && name === current) setTimeout(() => name === current && watch(), 1000);
  };
  source.addEventListener("row", (event) => {
    const row = JSON.parse(event.data);
    rows.push(row);
    if (rows.length > SHOWN) rows.splice(0, rows.length - SHOWN);
    if (row.alarm) tell(`row ${row.row}: ${brief(row.z)} standard deviations off`, true);
    isDirty = true;
  });
  for (const kind of ["refit", "drift", "failure", "merge", "missed"])
    source.addEventListener(kind, (event) => {
      const data = JSON.parse(event.data);
      const text = { refit: `refit at row ${data.row}`, drift: `drift at row ${data.row}`, failure: data.error, merge: `merged; ${data.row} rows`, missed: `${data.rows} rows not shown` }[kind];
      if (kind !== "missed") tell(text, kind === "drift" || kind === "failure");
      if (kind === "refit" && metadata && !metadata.parameters.ready) describe();
    });
}

function tell(text, isAlarm) {
  const item = document.createElement("li");
  item.textContent = `${new Date().toLocaleTimeString()} ${text}`;
  if (isAlarm) item.className = "alarm";
  $("events").prepend(item);
  while ($("events").children.length > 50) $("events").lastChild.remove();
}

// ---- charts

const axis = () => ({ stroke: css("--faint"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } });
function chart(id, series, data, extra) {
  const place = $(id);
  if (place.closest("section").hidden) return;
  if (!charts[id]) {
    const axes = [axis(), { ...axis(), size: 56 }];
    const options = { width: place.clientWidth, height: 200, scales: { x: { time: false } }, series: [{ label: "row" }, ...series], axes, legend: { show: series.length > 1 }, ...extra };
    charts[id] = new uPlot(options, data, place);
  } else {
    charts[id].setData(data);
  }
}
const line = (label, color, more) => ({ label, stroke: css(color), width: 1.5, spanGaps: false, points: { show: false }, ...more });
const dots = (label, color) => line(label, color, { paths: () => null, points: { show: true, size: 4, fill: css(color) } });
const band = () => ({ bands: [{ series: [4, 3], fill: css("--band") }] });

function draw() {
  if (!isDirty || rows.length === 0) return;
  isDirty = false;
  const x = rows.map((r) => r.row);
  const column = (name) => rows.map((r) => typeof r[name] === "number" ? r[name] : null);
  if (typeof rows[0].y === "number") {
    chart("stream", [dots("target", "--data"), line("mean", "--mean"), line("lower", "--band"), line("upper", "--band")],
      [x, column("y"), column("mean"), column("lower"), column("upper")], band());
    chart("residuals", [dots("z", "--mean")], [x, column("z")]);
  } else {
    chart("stream", [line("probability of the likeliest class", "--mean")], [x, column("probability")]);
    chart("residuals", [dots("right", "--mean")], [x, rows.map((r) => r.label == null ? null : Number(r.label === r.y))]);
  }
  const inside = rows.map((r) => r.inside == null ? null : Number(r.inside));
  const window = [];
  let sum = 0, count = 0;
  inside.forEach((v, i) => {
    if (v != null) { sum += v; count += 1; }
    const gone = inside[i - WINDOW];
    if (gone != null) { sum -= gone; count -= 1; }
    window.push(count >= 20 ? sum / count : null);
  });
  const level = metadata ? metadata.parameters.level : null;
  chart("coverage", [line("inside", "--mean"), line("level", "--good", { dash: [4, 4] })], [x, window, x.map(() => level)],
    { scales: { x: { time: false }, y: { range: [0, 1.02] } } });
}

// ---- figures, probes, effects, map

async function figures() {
  if (!current) return;
  let s;
  try { s = await ask(model("/stats")); } catch { return; }
  if (s.name !== current) return;
  const isSearch = s.kind === "optimizer";
  const list = [
    ["rows", s.rows.toLocaleString()], ["state", s.ready ? (s.searching ? "ready, still searching" : "ready") : "warming up"],
    isSearch ? (s.front ? ["on the front", s.front.length] : ["best", s.best ? brief(s.best.value) : "–"]) : [s.kind === "classifier" ? "wrong" : "RMSE", s.kind === "classifier" ? percent(s.error) : brief(s.error)],
    ["coverage", `${percent(s.coverage)} of ${percent(s.level)}`], ["last 1,000", percent(s.recent_coverage)],
    ["refits", s.refits], ["drift signals", s.drifts], ["queue", s.queue], ["memory", brief(s.memory_bytes / 1048576) + " MiB"],
  ];
  $("figures").replaceChildren(...list.map(([name, value]) => {
    const box = document.createElement("div"), term = document.createElement("dt"), text = document.createElement("dd");
    term.textContent = name; text.textContent = value;
    box.append(term, text);
    return box;
  }));
  if (s.ready && !isReady) { isReady = true; refresh(); }
  isReady = s.ready;
  if (s.ready) await Promise.allSettled([probe(), effect(), map()]);
}

// ---- the report's figures

async function report() {
  const name = current;
  if (!metadata) return;
  let list;
  try { list = (await ask(model("/figures"))).figures; } catch { return; }
  if (name !== current) return;
  $("report").replaceChildren(...list.map((f) => {
    const figure = document.createElement("figure"), link = document.createElement("a"), image = new Image();
    const caption = document.createElement("figcaption"), heading = document.createElement("strong");
    heading.textContent = f.heading;
    caption.append(heading, " " + f.reading);
    figure.dataset.path = f.path;
    figure.hidden = true;
    image.alt = f.heading;
    // What cannot be drawn yet, in the warm-up for example, is not shown.
    image.onload = () => { figure.hidden = false; figure.classList.toggle("wide", image.naturalWidth > 620); };
    link.append(image);
    figure.append(link, caption);
    return figure;
  }));
  refresh();
}

const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
let isReady = false;
async function refresh() {
  if (document.hidden) return;
  for (const figure of $("report").children) {
    const path = figure.dataset.path + "?theme=" + (isDark() ? "dark" : "light");
    const needsModel = !/latency|intervals|residuals|trace|forecast/.test(path);
    if (needsModel && !isReady) continue;
    figure.firstChild.href = path;
    // Fetched first, so that the old one stays until the new one is there.
    const response = await fetch(path).catch(() => null);
    if (!response || !response.ok) continue;
    const image = figure.querySelector("img"), before = image.src;
    image.src = URL.createObjectURL(await response.blob());
    if (before) URL.revokeObjectURL(before);
  }
}

function lastInputs() {
  const { levels } = metadata.parameters;
  const last = [...rows].reverse().find((r) => r.x);
  if (!last) return null;
  return metadata.inputs.map((_, i) => levels[i] ? levels[i][last.x[i]] : last.x[i]);
}

function ranges() {
  return metadata.inputs.map((_, i) => {
    const values = rows.filter((r) => r.x).map((r) => r.x[i]);
    return [Math.min(...values), Math.max(...values)];
  });
}

function probeBody() {
  if (metadata.parameters.kind !== "forecaster") {
    const inputs = lastInputs();
    return inputs && { rows: [inputs] };
  }
  const last = [...rows].reverse().find((r) => r.x);
  if (metadata.inputs.length === 1) return { horizon: 1 };
  return last && { rows: [Object.fromEntries(metadata.inputs.slice(0, -1).map((input, i) => [input.name, metadata.parameters.levels[i] ? metadata.parameters.levels[i][last.x[i]] : last.x[i]]))] };
}

async function probe() {
  const body = metadata && probeBody();
  if (!body) return;
  const start = performance.now();
  await ask(model("/infer"), body);
  latencies.push(performance.now() - start);
  if (latencies.length > 120) latencies.shift();
  chart("latency", [line("milliseconds", "--mean")], [latencies.map((_, i) => i), latencies]);
}

async function effect() {
  const inputs = metadata && lastInputs(), column = Number($("effect-column").value);
  if (!inputs || $("effect-section").hidden) return;
  const [lo, hi] = ranges()[column];
  if (!(hi > lo)) return;
  const grid = Array.from({ length: 60 }, (_, k) => lo + (hi - lo) * k / 59);
  const said = (await ask(model("/infer"), { rows: grid.map((v) => inputs.map((x, i) => i === column ? v : x)) })).predictions;
  const data = [grid, said.map((p) => p.mean), said.map((p) => p.lower), said.map((p) => p.upper)];
  chart("effect", [line("mean", "--mean"), line("lower", "--band"), line("upper", "--band")], data, { bands: [{ series: [3, 2], fill: css("--band") }] });
}

async function map() {
  if (!metadata || $("map-section").hidden || rows.length < 2) return;
  const [[a, b], [c, d]] = ranges();
  if (!(b > a && d > c)) return;
  const [w, h] = [48, 36], cells = [];
  for (let j = 0; j < h; j++) for (let i = 0; i < w; i++) cells.push([a + (b - a) * (i + .5) / w, d - (d - c) * (j + .5) / h]);
  const said = (await ask(model("/infer"), { rows: cells })).predictions.map((p) => p.mean);
  const [lo, hi] = [Math.min(...said), Math.max(...said)];
  const canvas = $("map"), context = canvas.getContext("2d");
  canvas.width = w; canvas.height = h;
  said.forEach((v, k) => {
    const t = hi > lo ? (v - lo) / (hi - lo) : .5;
    context.fillStyle = `hsl(${240 - 200 * t} 70% ${30 + 40 * t}%)`;
    context.fillRect(k % w, Math.floor(k / w), 1, 1);
  });
  const [first, second] = metadata.inputs;
  $("map-scale").textContent = `mean from ${brief(lo)} (blue) to ${brief(hi)} (yellow); ${first.name} ${brief(a)} to ${brief(b)}, ${second.name} ${brief(c)} to ${brief(d)}`;
}

$("effect-column").onchange = () => { if (charts.effect) { charts.effect.destroy(); delete charts.effect; } effect().catch(() => {}); };
$("form").onsubmit = async (event) => {
  event.preventDefault();
  const answer = $("answer");
  const fields = event.target.elements;
  const body = fields.horizon && metadata.parameters.kind === "forecaster"
    ? { horizon: Number(fields.horizon.value) } : { rows: [metadata.inputs.map((input) => fields[input.name].value)] };
  try {
    const p = (await ask(model("/infer"), body)).predictions.at(-1);
    answer.textContent = p.label !== undefined
      ? `${p.label}; ` + Object.entries(p.probabilities).map(([k, v]) => `${k} ${percent(v)}`).join(", ")
      : `${brief(p.mean)} ± ${brief(p.std)}, in [${brief(p.lower)}, ${brief(p.upper)}] with ${percent(metadata.parameters.level)}`;
    answer.className = "";
  } catch (error) {
    answer.textContent = error.message;
    answer.className = "alarm";
  }
};

addEventListener("hashchange", () => show(decodeURIComponent(location.hash.slice(1))));
addEventListener("resize", () => Object.entries(charts).forEach(([id, c]) => c.setSize({ width: $(id).clientWidth, height: 200 })));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { Object.values(charts).forEach((c) => c.destroy()); charts = {}; isDirty = true; refresh(); });
if (location.hash) show(decodeURIComponent(location.hash.slice(1)));
listModels();
setInterval(listModels, 3000);
setInterval(figures, 1000);
setInterval(draw, 200);
setInterval(refresh, 5000);
