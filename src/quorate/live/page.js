// The live page: fetches the state of the run once a second and shows it.
// Everything that comes from the run is inserted as text, never as markup.
"use strict";

const SECOND = 1000;
const MOST_SHARDS_NAMED = 24;
const element = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let last = null;
let failures = 0;

async function look() {
  try {
    const answer = await fetch("state");
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    last = await answer.json();
    failures = 0;
    show(last);
  } catch (error) {
    failures += 1;
    missed();
  }
  if (failures < 30) setTimeout(look, failures ? 2 * SECOND : SECOND);
}

function missed() {
  element("stop").hidden = true;
  const ended = last !== null && last.status === "ended";
  if (!ended) badge("no answer", "bad");
  trouble(ended ? "" : "The server of this page does not answer. It may have ended with the run. " +
    "The page shows the last state it received.");
}

// ---------------------------------------------------------------- words

const count = (value) => value.toLocaleString("en");

function short(value) {
  if (value === null) return "–";
  return value < 100 ? value.toPrecision(2) : count(Number(value.toPrecision(2)));
}

function fixed(value, sd) {
  if (value === null) return "–";
  const size = Math.max(Math.abs(value), sd || 0);
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) return value.toExponential(2);
  const digits = sd > 0 ? Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(sd)))) : 3;
  return value.toFixed(digits).replace("-", "−");
}

function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${seconds.toFixed(0)} s`;
  if (seconds < 6000) return `${(seconds / 60).toFixed(0)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} days`;
}

function badge(text, kind) {
  element("status").textContent = text;
  element("status").className = `badge ${kind}`;
}

function trouble(text) {
  element("trouble").textContent = text;
  element("trouble").hidden = !text;
}

/** Give `parent` one child for each thing, and fill each child from its thing. */
function each(parent, things, make, fill) {
  while (parent.children.length > things.length) parent.lastElementChild.remove();
  while (parent.children.length < things.length) parent.append(make());
  things.forEach((thing, i) => fill(parent.children[i], thing, i));
}

function made(tag, ...children) {
  const node = document.createElement(tag);
  node.append(...children);
  return node;
}

// ---------------------------------------------------------------- the page

function show(state) {
  element("run").textContent = state.run;
  trouble(state.trouble || (state.dropped ? `${count(state.dropped)} damaged rows of the journal were left out.` : ""));
  if (state.draws === undefined) {
    const begins = state.status === "not begun";
    if (begins) trouble("");
    badge(begins ? "starting" : "unreadable", begins ? "" : "bad");
    element("what").textContent = begins ? "Rows are being cut into shards." : "";
    return;
  }
  showStatus(state);
  showProgress(state);
  showPosterior(state);
  showLanes(state);
  showEvents(state);
}

function showStatus(state) {
  const share = Math.floor((100 * state.draws) / state.target);
  document.title = `${share} % · ${state.run}`;
  const fine = state.reason === "done" || state.reason === "enough effective draws";
  const running = state.status === "running";
  badge(running ? "running" : state.reason, running || fine ? "good" : "usable");
  const exact = state.method === "exact";
  element("what").textContent = `${exact ? "exact draws, " : ""}scheme ${state.scheme}, ` +
    `${count(state.lanes.length)} workers, redundancy ${state.redundancy}` +
    (exact ? "" : `, sampler ${state.sampler}`);
  const button = element("stop");
  button.hidden = !state.can_stop;
  if (button.hidden) Object.assign(button, { disabled: false, textContent: "Stop the run" });
}

function showProgress(state) {
  element("phase").hidden = !state.phase;
  const passes = state.passes === 1 ? "1 pass" : `${count(state.passes)} passes`;
  element("phase").textContent = `${state.phase}, ${passes} over the posterior`;
  element("draws").max = state.target;
  element("draws").value = state.draws;
  const left = state.seconds_left === null ? "" : `, about ${duration(state.seconds_left)} left`;
  element("draws-told").textContent =
    `${count(state.draws)} of ${count(state.target)} draws after ${duration(state.seconds)}${left}`;
  const wanted = state.target_ess !== null;
  element("ess").hidden = !wanted;
  element("ess").max = wanted ? state.target_ess : 1;
  element("ess").value = state.ess || 0;
  const ess = state.ess === null ? "not known yet" : count(Math.floor(state.ess));
  element("ess-told").textContent = `smallest effective sample size: ${ess}` +
    (wanted ? `; the run stops at ${count(state.target_ess)}` : "");
}

function showPosterior(state) {
  const parameters = state.parameters;
  const more = state.n_parameters - parameters.length;
  element("posterior").hidden = !parameters.length;
  const odd = parameters.some((parameter) => parameter.unconstrained);
  element("posterior-told").textContent = parameters.length
    ? "The band is the mean ± 2 Monte Carlo standard errors (MCSE), which narrows as draws arrive." +
      (odd ? " Parameters in italics are on the unconstrained scale." : "") +
      (more ? ` ${count(more)} more parameters are not shown.` : "")
    : "There are too few draws yet.";
  each(element("parameters"), parameters, makeParameter, (row, parameter) => fillParameter(row, parameter, state));
}

function makeParameter() {
  const name = made("th");
  name.scope = "row";
  const cells = ["", "wide", "wide", "", ""].map((kind) => {
    const cell = made("td");
    cell.className = kind;
    return cell;
  });
  const picture = made("td", made("canvas"));
  picture.className = "picture";
  return made("tr", name, ...cells, picture);
}

function fillParameter(row, parameter, state) {
  const { mean, sd, "3%": low, "97%": high, ess, mcse } = parameter;
  const told = [parameter.name, fixed(mean, sd), short(mcse), short(sd), `${fixed(low, sd)} … ${fixed(high, sd)}`,
    ess === null ? "–" : count(Math.floor(ess))];
  told.forEach((text, i) => { row.children[i].textContent = text; });
  row.children[0].style.fontStyle = parameter.unconstrained ? "italic" : "";
  drawMeans(row.querySelector("canvas"), parameter, state);
}

function showLanes(state) {
  element("slow").hidden = !state.slow;
  element("slow").textContent = state.slow;
  const unit = state.method === "exact" ? "points" : "draws";
  element("unit").textContent = unit;
  each(element("lanes"), state.lanes, () => made("li", made("span"), made("canvas")), (row, lane, worker) => {
    const shards = lane.shards.length > 4 ? `${lane.shards.slice(0, 4).join(", ")}, …` : lane.shards.join(", ");
    const [label, canvas] = row.children;
    const held = lane.shards.length === 1 ? `shard ${shards}` : `shards ${shards}`;
    const status = ["working", "ended"].includes(lane.status) ? "" : ` · ${lane.status}`;
    label.textContent = `${worker} · ${held} · ${count(lane.draws)} ${unit}${status}`;
    label.title = `worker ${worker}: ${count(lane.blocks)} blocks, ${lane.status}`;
    label.className = ["working", "starting", "ended"].includes(lane.status) ? "" : "gone";
    drawLane(canvas, lane, state);
  });
  element("axis").hidden = false;
  element("now").textContent = duration(state.seconds);
  const named = state.lanes.length <= MOST_SHARDS_NAMED ? state.lanes : [];
  each(element("shards"), named, () => made("span", made("canvas"), made("span")), (item, lane, shard) => {
    const { pen, width, height } = canvasOf(item.firstElementChild);
    pen.fillStyle = shardColour(shard);
    pen.fillRect(0, 0, width, height);
    item.lastElementChild.textContent = `shard ${shard}`;
  });
}

function showEvents(state) {
  each(element("events"), state.events, () => made("li"), (item, event) => {
    const who = event.worker === null ? "run" : `worker ${event.worker}`;
    item.textContent = `${event.time.toFixed(1)} s  ${who} ${event.what}${event.text ? `: ${event.text}` : ""}`;
  });
}

// ---------------------------------------------------------------- pictures

/** An empty canvas in CSS pixels, sharp on any screen. */
function canvasOf(canvas) {
  const scale = window.devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  return { pen, width, height };
}

/** A colour for each shard: neighbours differ, and all have the same brightness. */
function shardColour(shard) {
  return `oklch(${colour("--brightness")} 0.14 ${((0.68 + shard * 0.6180339887) % 1) * 360})`;
}

function drawLane(canvas, lane, state) {
  const { pen, width, height } = canvasOf(canvas);
  const place = (time) => (time / Math.max(state.seconds, 1e-9)) * (width - 9);
  pen.fillStyle = colour("--raised");
  pen.fillRect(0, 2, width, height - 4);
  const shades = new Map();
  for (const [begin, end, cell] of lane.spans) {
    const shards = state.cells[cell];
    const stripe = (height - 4) / shards.length;
    const [left, right] = [place(begin), place(end)];
    const gap = right - left > 4 ? 1 : 0;
    shards.forEach((shard, i) => {
      if (!shades.has(shard)) shades.set(shard, shardColour(shard));
      pen.fillStyle = shades.get(shard);
      pen.fillRect(left, 2 + i * stripe, Math.max(right - left - gap, 0.75), stripe);
    });
  }
  pen.fillStyle = colour("--ink");
  for (const time of state.sittings) {
    for (let y = 0; y < height; y += 4) pen.fillRect(place(time), y, 1.5, 2);
  }
  for (const [time, what] of lane.marks) drawMark(pen, what, Math.max(place(time), 10), height / 2);
}

/** Faults are drawn before their time and what follows from them after it, so that both are visible. */
function drawMark(pen, what, x, y) {
  const shapes = {
    restarted: `M${x + 1} ${y - 5}L${x + 8} ${y}L${x + 1} ${y + 5}Z`,
    moved: `M${x + 1} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z`,
    retired: `M${x + 1} ${y - 4}h8v8h-8Z`,
    quarantined: `M${x + 1} ${y}l5 -5l5 5l-5 5Z`,
  };
  const path = new Path2D(shapes[what] || `M${x - 9} ${y - 4}l8 8m0 -8l-8 8`);
  pen.lineJoin = pen.lineCap = "round";
  pen.strokeStyle = colour("--paper");
  pen.lineWidth = 5;
  pen.stroke(path);
  pen.strokeStyle = pen.fillStyle = colour(what === "restarted" || what === "moved" ? "--ink" : "--bad");
  pen.lineWidth = 2.2;
  pen.stroke(path);
  if (what in shapes) pen.fill(path);
}

/** The mean and its standard error as draws came in. */
function drawMeans(canvas, parameter, state) {
  const { pen, width, height } = canvasOf(canvas);
  const points = state.times
    .map((time, i) => ({ time, mean: parameter.means[i], error: (2 * parameter.mcse) / Math.sqrt(state.shares[i]) }))
    .filter((point) => point.mean !== null && parameter.mcse !== null);
  if (!points.length) return;
  const reaches = points.map((point) => Math.abs(point.mean - parameter.mean) + point.error).sort((a, b) => a - b);
  const reach = reaches[Math.floor(0.85 * (reaches.length - 1))] || 1e-300; // the first few are much larger
  const begin = points[0].time;
  const x = (point) => ((point.time - begin) / Math.max(state.seconds - begin, 1e-9)) * (width - 2) + 1;
  const y = (value) => (0.5 - (0.46 * (value - parameter.mean)) / reach) * height;
  const line = (list, value) => list.forEach((point) => pen.lineTo(x(point), y(value(point))));
  pen.fillStyle = colour("--faint");
  pen.fillRect(0, y(parameter.mean), width, 1);
  pen.beginPath();
  line(points, (point) => point.mean + point.error);
  line([...points].reverse(), (point) => point.mean - point.error);
  pen.fillStyle = colour("--band");
  pen.fill();
  pen.beginPath();
  line(points, (point) => point.mean);
  pen.strokeStyle = colour("--accent");
  pen.lineWidth = 1.6;
  pen.stroke();
}

// ---------------------------------------------------------------- what people do

async function stop() {
  if (!confirm("Stop the run now and keep the draws so far? It can be resumed.")) return;
  const button = element("stop");
  button.disabled = true;
  try {
    const answer = await fetch("stop", { method: "POST" });
    button.textContent = answer.ok ? "Stopping" : "The run is not running";
  } catch (error) {
    button.disabled = false;
  }
}

function redraw() {
  if (last !== null) show(last);
}

element("stop").addEventListener("click", stop);
window.addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
look();
