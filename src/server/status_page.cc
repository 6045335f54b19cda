#include "src/server/status_page.h"

namespace embercache {

const std::string_view kStatusPage = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>EmberCache</title>
<link rel="icon" href="data:,">
<style>
:root {
  color-scheme: light dark;
  --page: #f6f6f4; --card: #ffffff; --line: #dcdcd8; --text: #1d1f21; --dim: #5f6368;
  --local: #1f6fb2; --global: #1b8a6b; --joined: #8a6fb8; --computed: #c8651b;
  --free: #d9d9d4; --filling: #d2a52a; --ready: #1f6fb2; --quarantined: #b3372f;
  --good: #1a7f4b; --warn: #9a6a00; --bad: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #16181a; --card: #1f2225; --line: #363a3f; --text: #e6e7e8; --dim: #a2a7ad;
    --local: #5aa5e6; --global: #47c09c; --joined: #b39ae0; --computed: #f0955a;
    --free: #3a3e43; --filling: #e3bd52; --ready: #5aa5e6; --quarantined: #ef7b72;
    --good: #5fce93; --warn: #e3bd52; --bad: #ff8a80;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 15px/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums;
}
header { display: flex; flex-wrap: wrap; gap: .25rem 1rem; align-items: baseline; }
h1 { font-size: 1.3rem; margin: 0; }
h2 { font-size: .95rem; margin: 0 0 .5rem; }
.dim, small { color: var(--dim); }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
main { display: grid; gap: .8rem; margin-top: .8rem; grid-template-columns: repeat(12, 1fr); }
section {
  grid-column: span 6; min-width: 0; padding: .8rem 1rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .5rem;
}
section.tile { grid-column: span 3; }
section.wide { grid-column: span 12; }
.tile b { display: block; font-size: 1.6rem; line-height: 1.2; }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .2rem .5rem .2rem 0; text-align: left; vertical-align: top; }
th { color: var(--dim); font-weight: normal; }
td.number { text-align: right; white-space: nowrap; }
td.text { overflow-wrap: anywhere; }
.bar { display: flex; height: 1rem; border-radius: .2rem; overflow: hidden; background: var(--free); }
.bar i { display: block; height: 100%; }
.key { display: flex; flex-wrap: wrap; gap: .1rem .9rem; margin: .35rem 0 .6rem; font-size: .85rem; }
.key i { display: inline-block; width: .7rem; height: .7rem; margin-right: .3rem; border-radius: .15rem; }
svg { display: block; width: 100%; height: 9rem; }
svg text { fill: var(--dim); font-size: 11px; }
@media (max-width: 48rem) {
  section { grid-column: span 12; }
  section.tile { grid-column: span 6; }
}
</style>
</head>
<body>
<header>
  <h1>EmberCache</h1>
  <span id="state" role="status">connecting …</span>
  <span class="dim" id="about"></span>
</header>
<main>
  <section class="tile"><h2>Hit rate, last minute</h2><b id="hit-now">–</b><small id="hit-all"></small></section>
  <section class="tile"><h2>Items per second</h2><b id="rate">–</b><small id="items-all"></small></section>
  <section class="tile"><h2>Encoder time saved</h2><b id="saved">–</b><small>since the start</small></section>
  <section class="tile"><h2>In progress</h2><b id="admitted">–</b><small id="queue-limit"></small></section>
  <section class="wide">
    <h2>Hit rate over time</h2>
    <svg id="chart" viewBox="0 0 600 120" preserveAspectRatio="none" role="img" aria-label="Hit rate over time"></svg>
    <small id="chart-note">kept while this page is open</small>
  </section>
  <section><h2>Where items came from</h2><div id="tiers"></div></section>
  <section><h2>Host memory</h2><div id="pools"></div></section>
  <section><h2>Store</h2><table id="store"></table></section>
  <section><h2>Queues</h2><table id="queues"></table></section>
  <section class="wide"><h2>Models</h2><table id="models"></table></section>
  <section class="wide"><h2>Last errors</h2><table id="errors"></table></section>
</main>
<script>
"use strict";
const kPeriodMs = 2000, kPoints = 450;
const SOURCES = ["local", "global", "joined", "computed"];
const SOURCE_TEXT = {local: "host cache", global: "store", joined: "joined another's work", computed: "computed"};
const STATES = ["ready", "filling", "quarantined", "free"];
const points = [];
const $ = (id) => document.getElementById(id);

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}
function put(id, ...children) { $(id).replaceChildren(...children); }
function row(...cells) {
  const line = make("tr");
  for (const cell of cells) line.append(cell instanceof Node ? cell : make("td", cell));
  return line;
}
const number = (value) => Math.round(value).toLocaleString("en");
const percent = (part, all) => all > 0 ? (100 * part / all).toFixed(1) + " %" : "–";
function bytes(value) {
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (value < 1024 || unit === "TiB") return value.toFixed(value < 10 && unit !== "B" ? 1 : 0) + " " + unit;
    value /= 1024;
  }
}
function duration(seconds) {
  if (seconds < 60) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  if (seconds < 3600) return (seconds / 60).toFixed(1) + " min";
  if (seconds < 172800) return (seconds / 3600).toFixed(1) + " h";
  return (seconds / 86400).toFixed(1) + " days";
}

// [{name, labels, value}] of Prometheus' text format.
function parseMetrics(text) {
  const series = [];
  for (const line of text.split("\n")) {
    const match = /^(\w+)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, key, value] of (match[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[key] = value;
    series.push({name: match[1], labels, value: Number(match[3])});
  }
  return series;
}
function sum(series, name, labels = {}) {
  return series.filter((s) => s.name === name && Object.entries(labels).every(([k, v]) => s.labels[k] === v))
    .reduce((total, s) => total + s.value, 0);
}

function stacked(parts) {  // [[text, color, value]]
  const all = parts.reduce((total, part) => total + part[2], 0);
  const bar = make("div", undefined, "bar"), key = make("div", undefined, "key");
  for (const [text, color, value] of parts) {
    const piece = make("i");
    piece.style.background = `var(--${color})`;
    piece.style.width = all > 0 ? 100 * value / all + "%" : "0";
    bar.append(piece);
    const label = make("span"), patch = make("i");
    patch.style.background = `var(--${color})`;
    label.append(patch, `${text} ${Math.round(value).toLocaleString("en")} (${percent(value, all)})`);
    key.append(label);
  }
  return [bar, key];
}

function drawChart() {
  const svg = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const y = (rate) => 112 - 104 * rate;
  const nodes = [0, .5, 1].map((rate) => svg("line",
    {x1: 0, x2: 600, y1: y(rate), y2: y(rate), stroke: "var(--line)", "vector-effect": "non-scaling-stroke"}));
  const path = [];
  for (let i = 1; i < points.length; i++) {
    const items = points[i].items - points[i - 1].items;
    if (items <= 0) continue;
    const rate = (points[i].hits - points[i - 1].hits) / items;
    path.push(`${path.length ? "L" : "M"}${(600 * (i - 1) / Math.max(1, points.length - 2)).toFixed(1)} ${y(rate).toFixed(1)}`);
  }
  nodes.push(svg("path", {d: path.join(" "), fill: "none", stroke: "var(--local)", "stroke-width": 2,
    "stroke-linecap": "round", "vector-effect": "non-scaling-stroke"}));
  put("chart", ...nodes);
  const seconds = points.length > 1 ? (points[points.length - 1].at - points[0].at) / 1000 : 0;
  $("chart-note").textContent = path.length ? `0 to 100 %, the last ${duration(seconds)}, while this page is open`
    : "no items since this page was opened";
}

function showTraffic(series) {
  const counts = SOURCES.map((source) => sum(series, "embercache_items_total", {source}));
  const items = counts.reduce((a, b) => a + b, 0), hits = items - counts[3];
  points.push({at: Date.now(), items, hits});
  if (points.length > kPoints) points.shift();
  const now = points[points.length - 1], first = points[Math.max(0, points.length - 31)];
  const seconds = Math.max(1, (now.at - first.at) / 1000);
  $("hit-now").textContent = percent(now.hits - first.hits, now.items - first.items);
  $("hit-all").textContent = `${percent(hits, items)} since the start`;
  $("rate").textContent = ((now.items - first.items) / seconds).toFixed(1);
  $("items-all").textContent = `${items.toLocaleString("en")} items, ${sum(series, "embercache_item_errors_total").toLocaleString("en")} failed`;
  $("saved").textContent = duration(sum(series, "embercache_encoder_saved_seconds_total"));
  put("tiers", ...stacked(SOURCES.map((source, i) => [SOURCE_TEXT[source], source, counts[i]])));
  drawChart();
}

function showPools(pools) {
  const nodes = [];
  for (const pool of pools) {
    const title = make("div");
    title.append(make("span", pool.name + " "), make("small", `${bytes(pool.pages.total * pool.page_bytes)} in ${
      pool.pages.total.toLocaleString("en")} pages, ${pool.entries.ready} entries, ${pool.entries.pinned} pinned, ${pool.evicted} evicted`));
    nodes.push(title, ...stacked(STATES.map((state) => [state, state, pool.pages[state]])));
  }
  put("pools", ...nodes);
}

function showStore(stats, series) {
  const store = stats.store;
  if (!store.backend) {
    put("store", row("none: the host cache alone"));
    return;
  }
  const tone = {up: "good", starting: "warn"}[store.state] || "bad";
  const lines = [row(make("th", "backend"), store.backend),
    row(make("th", "state"), make("td", store.state + (store.detail ? ": " + store.detail : ""), tone))];
  for (const lane of stats.lanes) {
    lines.push(row(make("th", `breaker, ${lane.name}`), make("td",
      lane.breaker_open ? "open: answers without the store" : "closed", lane.breaker_open ? "bad" : "good")));
  }
  for (const result of ["stored", "already_present", "accepted", "dropped", "failed"]) {
    lines.push(row(make("th", "published: " + result.replace("_", " ")), number(sum(series, "embercache_published_total", {result}))));
  }
  lines.push(row(make("th", "corrupt objects"), number(sum(series, "embercache_corruptions_total"))));
  put("store", ...lines);
}

function show(stats, series) {
  $("about").textContent = `${stats.version}, up ${duration(stats.uptime_s)}`;
  const down = stats.store.backend && stats.store.state !== "up";
  $("state").textContent = down ? "serving; the store is " + stats.store.state : "serving";
  $("state").className = down ? "warn" : "good";
  $("admitted").textContent = stats.items_admitted;
  $("queue-limit").textContent = `of at most ${stats.configuration.queue_items} items`;
  showTraffic(series);
  showPools(stats.pools);
  showStore(stats, series);
  put("queues", ...["decode", "encode", "get", "put"].map((queue) =>
    row(make("th", queue), number(sum(series, "embercache_queue_depth", {queue})))));
  put("models", ...stats.models.map((model) => row(make("th", model.name),
    `${model.modality}, rows of ${model.hidden} ${model.dtype}`, make("td", "namespace " + model.namespace, "text"))));
  const errors = stats.recent_errors.map((error) => {
    const text = make("td", error.message + " ", "text");
    text.append(make("small", error.request_id));
    return row(make("td", new Date(error.unix_ms).toLocaleTimeString(), "number"), error.code, text);
  });
  put("errors", ...(errors.length ? errors : [row("none")]));
}

async function fetchText(path) {
  const answer = await fetch(path, {signal: AbortSignal.timeout(5000)});
  if (!answer.ok) throw new Error(answer.status === 503 ? "loading" : `${path} answered ${answer.status}`);
  return answer.text();
}
async function refresh() {
  try {
    const [stats, metrics] = await Promise.all([fetchText("/v1/stats"), fetchText("/metrics")]);
    show(JSON.parse(stats), parseMetrics(metrics));
  } catch (error) {
    $("state").textContent = error.message === "loading" ? "loading models" : "no answer: " + error.message;
    $("state").className = error.message === "loading" ? "warn" : "bad";
  }
  setTimeout(refresh, kPeriodMs);
}
refresh();
</script>
</body>
</html>
)html";

}  // namespace embercache
