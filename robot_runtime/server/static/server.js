"use strict";
/* Asks for /status.json twice a second and shows it. */

const KEPT = 240;
const history = new Map();  // of each policy: [{at, ended, waiting}]

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

async function look() {
  try {
    const answer = await fetch("status.json", { signal: AbortSignal.timeout(3000) });
    if (!answer.ok) throw new Error(answer.statusText);
    show(await answer.json());
    document.getElementById("gone").hidden = true;
  } catch {
    document.getElementById("gone").hidden = false;
  }
  setTimeout(look, 500);
}

function show(status) {
  setText(document.getElementById("gpus"), status.gpus.map((gpu) =>
    `${gpu.name}: ${(gpu.used_bytes / 2 ** 30).toFixed(1)} of ${(gpu.total_bytes / 2 ** 30).toFixed(0)} GiB`).join(" · "));
  for (const policy of status.policies) showPolicy(policy);
}

function showPolicy(policy) {
  let card = document.getElementById(`policy-${policy.name}`);
  if (!card) {
    card = document.getElementById("policy").content.firstElementChild.cloneNode(true);
    card.id = `policy-${policy.name}`;
    document.getElementById("policies").append(card);
  }
  const at = (name) => card.querySelector(`.${name}`);
  setText(at("name"), policy.name);
  setText(at("ready"), policy.is_ready ? `ready${warmth(policy.warm)}` : "not ready");
  at("ready").classList.toggle("yes", policy.is_ready);
  const past = history.get(policy.name) || [];
  history.set(policy.name, past);
  past.push({ at: performance.now() / 1000, ended: policy.requests.answered || 0, waiting: policy.waiting });
  if (past.length > KEPT) past.shift();
  showFigures(at("figures"), policy, rate(past, 10));
  showRobots(at("robots").tBodies[0], policy.robots);
  showOutcomes(at("outcomes").tBodies[0], { ...policy.requests, ...prefixed("turned away: ", policy.turned_away) });
  showBatches(at("batches").tBodies[0], policy.batch_sizes);
  drawStrip(at("strip"), past);
}

function warmth(warm) {
  if (!warm.pieces_left) return "";
  return `; warm: ${warm.samplers.join(", ")}, batches up to ${warm.max_batch}; ${warm.pieces_left} left to warm up`;
}

function prefixed(words, counts) {
  return Object.fromEntries(Object.entries(counts).map(([name, count]) => [words + name, count]));
}

function rate(past, last) {
  const some = past.slice(-last);
  if (some.length < 2) return 0;
  const [a, b] = [some[0], some[some.length - 1]];
  return (b.ended - a.ended) / (b.at - a.at);
}

function time(quantiles) {
  if (!quantiles) return "—";
  const ms = (value) => (value >= 1000 ? `${value / 1000} s` : `${value}`);
  return `≤ ${ms(quantiles.p50)} / ${ms(quantiles.p95)}`;
}

function showFigures(box, policy, perSecond) {
  const figures = [
    ["robots", policy.robots.length], ["answers per s", perSecond.toFixed(1)], ["requests waiting", policy.waiting],
    ["wait p50 / p95, ms", time(policy.queue_ms)], ["first rows, ms", time(policy.first_rows_ms)],
    ["batch, ms", time(policy.infer_ms)], ["rows sent", policy.rows_sent.toLocaleString("en")],
    ["rows unwanted", policy.rows_unwanted.toLocaleString("en")],
  ];
  while (box.children.length < figures.length) {
    const one = document.createElement("div");
    one.append(document.createElement("b"), document.createElement("small"));
    box.append(one);
  }
  figures.forEach(([name, value], i) => {
    setText(box.children[i].firstChild, String(value));
    setText(box.children[i].lastChild, name);
  });
}

function rows(table, number, width) {
  while (table.rows.length > number) table.deleteRow(-1);
  while (table.rows.length < number) {
    const row = table.insertRow();
    for (let i = 0; i < width; i++) row.insertCell();
  }
  return [...table.rows];
}

function showRobots(table, robots) {
  rows(table, robots.length, 5).forEach((row, i) => {
    const robot = robots[i], first = robot.requests[0], [name, heard, answered, now, left] = row.cells;
    setText(name, robot.name);
    setText(heard, robot.silent_ms < 1000 ? "now" : `${(robot.silent_ms / 1000).toFixed(0)} s ago`);
    setText(answered, robot.num_answered.toLocaleString("en"));
    const runs = robot.requests.filter((request) => request.is_running).length;
    const waits = robot.requests.length - runs;
    setText(now, [runs ? "is answered" : "", waits ? `waits for ${Math.max(...robot.requests.map((r) => r.waited_ms))} ms` : ""].filter(Boolean).join(", ") || "—");
    now.className = `now ${waits ? "waits" : runs ? "runs" : ""}`;
    setText(left, first ? `${(Math.min(...robot.requests.map((r) => r.left_ms)) / 1000).toFixed(1)} s` : "—");
    left.className = first && first.left_ms < 200 ? "late" : "";
  });
}

function showOutcomes(table, counts) {
  const names = Object.keys(counts).sort((a, b) => counts[b] - counts[a]);
  rows(table, names.length, 2).forEach((row, i) => {
    setText(row.cells[0], names[i].replaceAll("_", " "));
    setText(row.cells[1], counts[names[i]].toLocaleString("en"));
  });
}

function showBatches(table, sizes) {
  const used = sizes.filter(([, count]) => count > 0), most = Math.max(1, ...used.map(([, count]) => count));
  rows(table, used.length, 2).forEach((row, i) => {
    const [bound, count] = used[i];
    setText(row.cells[0], bound === "1" || bound === "more" ? bound : `≤ ${bound}`);
    if (!row.cells[1].firstChild) row.cells[1].append(document.createElement("meter"));
    row.cells[1].firstChild.max = most;
    row.cells[1].firstChild.value = count;
    row.cells[1].firstChild.title = String(count);
  });
}

function drawStrip(canvas, past) {
  const w = canvas.clientWidth, h = canvas.clientHeight, scale = devicePixelRatio || 1;
  canvas.width = Math.round(w * scale);
  canvas.height = Math.round(h * scale);
  const g = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  g.scale(scale, scale);
  const rates = past.map((_, i) => (i < 2 ? 0 : rate(past.slice(0, i + 1), 4)));
  const waiting = past.map((each) => each.waiting);
  const x = (i) => w - (past.length - 1 - i) * (w - 40) / (KEPT - 1);
  for (const [values, colour, label, line] of [[rates, "--line", "answers per s", 0], [waiting, "--wait-text", "waiting", 1]]) {
    const most = Math.max(1, ...values);
    g.strokeStyle = g.fillStyle = style.getPropertyValue(colour);
    g.lineWidth = 2;
    g.beginPath();
    values.forEach((value, i) => g[i ? "lineTo" : "moveTo"](x(i), h - 4 - (h - 26) * value / most));
    g.stroke();
    g.font = "12px system-ui, sans-serif";
    g.fillText(`${label}, up to ${most.toFixed(most < 10 ? 1 : 0)}`, 4 + 190 * line, 12);
  }
}

look();
