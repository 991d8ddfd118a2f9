"use strict";
/* The page of a run: it shows what a websocket delivers (page/view.py), and sends what is pressed.
   It decides nothing. */

const body = document.body;
const COLOURS = { RUN: "#17803f", HOLD: "#9a6700", STOP: "#d92d2d" };
const STATES = { asked: "#8b95a5", streaming: "#46a0ff", running: "#1f9d57", done: "#3f6b54", dropped: "#d9534f" };
const BY = { POLICY: "#2f6fbb", HUMAN: "#8d3fbf", SCRIPTED: "#0f766e", HOLD: "#9a6700", SAFETY: "#d92d2d" };
const BACK_S = 8, AHEAD_S = 2;

let shown = null, shownAt = 0, pressed = null;

function lost() {
  body.classList.add("gone");
  if (shown && shown.is_over) return;  // the page already shows the end
  banner("This page has lost its server: what is shown is old, and its buttons do nothing.");
}

/* ---- what is shown ----------------------------------------------------------------------------- */

function show(view) {
  shown = view;
  shownAt = performance.now();
  body.classList.remove("waiting");
  body.classList.toggle("recorded", view.player !== null);
  body.classList.toggle("over", view.is_over);
  body.classList.toggle("gone", !view.is_live && view.player === null);
  for (const [name, mode] of [["run", "RUN"], ["hold", "HOLD"], ["halted", "STOP"]])
    body.classList.toggle(name, view.mode === mode && (view.is_live || view.player !== null));
  setText(at("mode"), view.is_over ? "OVER" : view.mode || "—");
  setText(at("cause"), view.cause);
  setText(at("task-now"), view.task || "no task");
  setText(at("who"), view.who);
  document.title = `${at("mode").textContent} · ${view.robot || "robot-runtime"}`;
  banner(view.banner);
  showNumbers(view.figures);
  showCameras(view.cameras);
  showParts(view.parts);
  showLines(view.lines);
  showAnswer(view.orders);
  showPlayer(view.player);
  at("arm").disabled = view.is_armed !== false || view.is_over;
  at("arm").title = view.why_not_armed || "";
  at("reset").disabled = view.mode !== "STOP" || view.is_over;
}

function showNumbers(figures) {
  const box = at("numbers");
  while (box.children.length > 2 * figures.length) box.lastChild.remove();
  while (box.children.length < 2 * figures.length) box.append(document.createElement("span"));
  figures.forEach(([name, value], i) => {
    setText(box.children[2 * i], name);
    setText(box.children[2 * i + 1], value);
  });
}

function showCameras(cameras) {
  cameras.forEach(({ name, age_s }, i) => {
    let figure = document.getElementById(`camera-${name}`);
    if (!figure) {
      figure = document.createElement("figure");
      figure.id = `camera-${name}`;
      figure.append(document.createElement("img"), document.createElement("figcaption"));
      figure.firstChild.alt = `what ${name} sees`;
      at("cameras").append(figure);
    }
    const isOld = age_s !== null && age_s > 0.5;
    figure.classList.toggle("old", isOld);
    setText(figure.lastChild, isOld ? `${name}, ${age_s.toFixed(1)} s old` : name);
    figure.style.order = i;
  });
}

function showPicture(name, jpeg) {
  const image = document.querySelector(`#${CSS.escape(`camera-${name}`)} img`);
  if (image) setPicture(image, jpeg);
}

function showParts(parts) {
  const table = at("parts").tBodies[0];
  const key = parts.map((part) => part.name).join();
  if (table.dataset.key !== key) {
    table.dataset.key = key;
    table.replaceChildren(...(parts.length > 1 ? [null, ...parts] : parts).map(partRow));
  }
  for (const part of parts) {
    const row = document.getElementById(`part-${part.name}`);
    const [by, phase] = row.cells[1].children;
    by.className = `by ${part.authority}`;
    setText(by, (part.authority || "—").toLowerCase());
    setText(phase, [part.phase === "NONE" ? "" : part.phase.toLowerCase(), part.clipped].filter(Boolean).join(", "));
    const button = row.cells[2].firstChild;
    const isTaken = isByPerson(part);
    setText(button, isTaken ? "Hand back" : "Take over");
    button.dataset.order = JSON.stringify({ order: isTaken ? "HandBack" : "TakeOver", parts: [part.name] });
  }
  const all = document.getElementById("part-");
  if (all) {
    const isTaken = parts.some(isByPerson);
    setText(all.cells[2].firstChild, isTaken ? "Hand all back" : "Take all over");
    all.cells[2].firstChild.dataset.order = JSON.stringify({ order: isTaken ? "HandBack" : "TakeOver", parts: [] });
  }
}

function isByPerson(part) {
  return ["HUMAN", "SCRIPTED"].includes(part.authority) || !["NONE", "RELEASE", ""].includes(part.phase);
}

function partRow(part) {
  const row = document.createElement("tr");
  row.id = `part-${part ? part.name : ""}`;
  const cells = [0, 1, 2].map(() => row.insertCell());
  cells[0].textContent = part ? part.name : "all";
  if (part) cells[1].append(document.createElement("span"), document.createElement("span"));
  if (part) cells[1].lastChild.className = "phase";
  const button = document.createElement("button");
  button.className = "order";
  cells[2].append(button);
  return row;
}

let isAtEnd = true;  // of the log lines, so that new ones scroll into view
at("log").addEventListener("wheel", () => { setTimeout(noteEnd, 200); }, { passive: true });
at("log").addEventListener("touchmove", () => { setTimeout(noteEnd, 500); }, { passive: true });
at("log").addEventListener("pointerup", noteEnd);
function noteEnd() {
  isAtEnd = at("log").scrollTop + at("log").clientHeight > at("log").scrollHeight - 30;
}

function showLines(lines) {
  const list = at("lines"), newest = lines.length ? lines[lines.length - 1].n : -1;
  if (isAtEnd) at("log").scrollTop = at("log").scrollHeight;
  if (list.dataset.newest === String(newest)) return;
  list.dataset.newest = newest;
  list.replaceChildren(...lines.map((line) => {
    const item = document.createElement("li"), time = document.createElement("time");
    time.textContent = line.t_s.toFixed(1);
    item.className = line.is_loud ? "loud" : "";
    item.append(time, line.text);
    return item;
  }));
  if (isAtEnd) at("log").scrollTop = at("log").scrollHeight;
}

function showAnswer(orders) {
  const last = orders[orders.length - 1];
  const answer = at("answer");
  if (stopping) return;
  if (pressed && !(last && last.n > pressed.n)) {
    const waits = performance.now() - pressed.at > 1000;
    setText(answer, waits ? `${pressed.text}: no answer yet` : `${pressed.text} …`);
    answer.className = waits ? "refused" : "";
    return;
  }
  pressed = null;
  if (!last) return setText(answer, "");
  setText(answer, last.refused ? `${last.text} refused: ${last.refused}` : `${last.text} by ${last.by}, after ${last.after_ms} ms`);
  answer.className = last.refused ? "refused" : "";
}

/* ---- what is pressed --------------------------------------------------------------------------- */

function say(message) {
  if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

function order(what, text) {
  if (!socket || socket.readyState !== WebSocket.OPEN) {
    const why = shown && shown.is_over ? "the run is over" : "this page has lost its server";
    setText(at("answer"), `${text} was not sent: ${why}`);
    at("answer").className = "refused";
    return;
  }
  const orders = shown ? shown.orders : [];
  pressed = { n: orders.length ? orders[orders.length - 1].n : -1, at: performance.now(), text };
  say(what);
}

/* A stop is sent again until the robot's mode confirms it; other answers do not. */
let stopping = null;

function stop() {
  clearInterval(stopping && stopping.timer);
  pressed = null;
  const press = `${Date.now()}-${Math.random()}`;
  stopping = { at: performance.now(), press, n: shown ? shown.num_stops : 0, timer: setInterval(stopAgain, 100) };
  setText(at("answer"), "Stop …");
  at("answer").className = "";
  stopAgain();
}

function stopAgain() {
  const isOpen = socket && socket.readyState === WebSocket.OPEN;
  if (shown && shown.is_over || isOpen && shown && shownAt > stopping.at && shown.num_stops > stopping.n) {
    clearInterval(stopping.timer);
    stopping = null;
    if (shown.is_over) setText(at("answer"), "the run is over");
    return showAnswer(shown.orders);
  }
  if (isOpen) say({ order: "Stop", press: stopping.press });
  if (isOpen && performance.now() - stopping.at < 400) return;
  setText(at("answer"), "STOP IS NOT CONFIRMED: use the robot's emergency stop");
  at("answer").className = "refused";
}

document.addEventListener("pointerdown", (event) => {  // on press: a click only comes when the finger is lifted
  if (event.target.closest("#stop") && event.button === 0) stop();
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.order");
  if (!button) return;
  if (button.id === "stop") return event.detail > 0 ? undefined : stop();  // pressed by a key, without a pointer
  order(JSON.parse(button.dataset.order), button.textContent);
});
at("task-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const task = at("task").value.trim();
  if (!task) return;
  order({ order: "SetTask", task }, "Task");
  at("task").value = "";
});

/* ---- a recorded run ---------------------------------------------------------------------------- */

let isSliding = false;
function showPlayer(player) {
  at("player").hidden = player === null;
  if (player === null) return;
  const slider = at("slider");
  slider.min = player.start_s;
  slider.max = player.end_s;
  if (!isSliding) slider.value = player.t_s;
  setText(at("play"), player.is_playing ? "Pause" : "Play");
  setText(at("at"), `${player.t_s.toFixed(2)} / ${player.end_s.toFixed(1)} s`);
}
at("slider").addEventListener("pointerdown", () => { isSliding = true; });
at("slider").addEventListener("input", (event) => say({ order: "Player", what: "seek", t_s: Number(event.target.value) }));
addEventListener("pointerup", () => { isSliding = false; });
at("play").addEventListener("click", () => say({ order: "Player", what: shown.player.is_playing ? "pause" : "play" }));

/* ---- the strip of the last seconds --------------------------------------------------------------- */

function drawStrip() {
  requestAnimationFrame(drawStrip);
  const canvas = at("strip");
  if (!shown || canvas.clientWidth === 0) return;
  const w = canvas.clientWidth, h = canvas.clientHeight, scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(w * scale) || canvas.height !== Math.round(h * scale)) {
    canvas.width = Math.round(w * scale);
    canvas.height = Math.round(h * scale);
  }
  const g = canvas.getContext("2d");
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, w, h);
  const style = getComputedStyle(document.documentElement);
  const quiet = style.getPropertyValue("--quiet"), edge = style.getPropertyValue("--edge");
  const text = style.getPropertyValue("--text");
  const isMoving = shown.is_live || (shown.player && shown.player.is_playing);
  const now = shown.t_s + (isMoving ? Math.min((performance.now() - shownAt) / 1000, 0.5) : 0);
  const left = 74, start = now - BACK_S, x = (t) => left + (t - start) * (w - left) / (BACK_S + AHEAD_S);
  g.font = "12px system-ui, sans-serif";
  g.textBaseline = "middle";
  drawAxis(g, { w, h, left, start, x, quiet, edge });
  g.save();
  g.beginPath();
  g.rect(left, 0, w - left, h);
  g.clip();
  const rowsTop = 6, bottom = h - 18, authority = shown.authority.slice(0, 3);
  const bars = 1 + authority.length, barHeight = 10, lanes = 4;
  const laneHeight = (bottom - rowsTop - bars * (barHeight + 4) - 4) / lanes;
  const newestDropped = Math.max(-1, ...shown.chunks.filter((c) => c.state === "dropped").map((c) => c.n));
  for (const chunk of shown.chunks) drawChunk(g, chunk, rowsTop + (chunk.n % lanes) * laneHeight, laneHeight - 3, x, now, chunk.n === newestDropped ? text : null);
  let y = bottom - bars * (barHeight + 4);
  drawBar(g, shown.modes, COLOURS, y, barHeight, x, now, start);
  const labels = [["chunks", rowsTop + 2 * laneHeight], ["mode", y + barHeight / 2]];
  for (const { part, spans } of authority) {
    y += barHeight + 4;
    drawBar(g, spans, BY, y, barHeight, x, now, start);
    labels.push([part, y + barHeight / 2]);
  }
  g.fillStyle = text;
  g.fillRect(x(now) - 0.75, 0, 1.5, bottom);
  g.restore();
  g.fillStyle = quiet;
  for (const [label, middle] of labels) g.fillText(label.length > 10 ? label.slice(0, 9) + "…" : label, 10, middle);
}

function drawAxis(g, { w, h, left, start, x, quiet, edge }) {
  for (let t = Math.ceil(start); t <= start + BACK_S + AHEAD_S; t++) {
    if (t < 0) continue;
    g.fillStyle = edge;
    g.fillRect(x(t), 0, 1, h - 18);
    if (x(t) < left + 8 || x(t) > w - 24) continue;
    g.fillStyle = quiet;
    g.fillText(`${t} s`, x(t) - 8, h - 9);
  }
}

function drawChunk(g, chunk, y, height, x, now, text) {
  const colour = STATES[chunk.state], from = x(chunk.asked_s);
  const came = chunk.came_s === null ? now : chunk.came_s;
  g.globalAlpha = 0.9;
  g.fillStyle = STATES.asked;
  g.fillRect(from, y + height / 2 - 1, Math.max(x(came) - from, 1), 2);
  g.beginPath();
  g.arc(from, y + height / 2, 3, 0, 7);
  g.fill();
  if (chunk.first_s !== null && chunk.end_s !== null) {
    const a = x(chunk.first_s), b = Math.max(x(chunk.end_s), a + 2);
    g.fillStyle = colour;
    g.globalAlpha = chunk.state === "running" || chunk.state === "streaming" ? 0.95 : 0.6;
    g.beginPath();
    g.roundRect(a, y, b - a, height, 3);
    g.fill();
    if (chunk.planned_s !== null && chunk.planned_s > chunk.end_s) {
      g.globalAlpha = 0.25;
      g.fillRect(b, y, x(chunk.planned_s) - b, height);
    }
  }
  g.globalAlpha = 1;
  if (chunk.state === "dropped") {
    g.strokeStyle = STATES.dropped;
    g.lineWidth = 2;
    const m = x(came), c = y + height / 2;
    g.beginPath();
    g.moveTo(m - 4, c - 4); g.lineTo(m + 4, c + 4); g.moveTo(m + 4, c - 4); g.lineTo(m - 4, c + 4);
    g.stroke();
    if (text === null || !chunk.why) return;
    g.fillStyle = text;
    g.fillText(chunk.why.slice(0, 60), m + 8, c);
  }
}

function drawBar(g, spans, colours, y, height, x, now, start) {
  spans.forEach(([t, what], i) => {
    const end = i + 1 < spans.length ? spans[i + 1][0] : now;
    if (end < start) return;
    g.fillStyle = colours[what] || "#4a5361";
    g.fillRect(x(Math.max(t, start)), y, Math.max(x(end) - x(Math.max(t, start)), 1), height);
  });
}

/* ---- begin --------------------------------------------------------------------------------------- */

/* Dark in a light page too: on white, a white robot and the colours of its plan are hard to see. */
if (document.createElement("canvas").getContext("webgl2")) at("scene").src = "scene/?darkMode";
else {
  at("scene").hidden = at("legend").hidden = true;
  at("no-scene").hidden = false;
}
listen(show, showPicture, lost);
drawStrip();
