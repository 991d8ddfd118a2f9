"use strict";
/* The page of a live calibration: it draws what the command sends (page/guide.py) and decides nothing. */

const body = document.body;
const SIDES = "upper right lower left";
let shown = null;

function lost() {
  if (shown && shown.end) return;  // the page already shows the end
  banner("This page has lost its command: what is shown is old.");
}

function show(guide) {
  const before = shown;
  shown = guide;
  banner(guide.end ? "The command has ended." : "");
  body.classList.toggle("over", guide.end !== null);
  body.classList.toggle("usable", guide.end !== null && guide.end.is_good);
  body.classList.toggle("refused", guide.end !== null && !guide.end.is_good);
  setText(at("do"), guide.end ? guide.end.text : guide.do);
  body.classList.toggle("long", at("do").textContent.length > 75);
  setText(at("problem"), guide.problem);
  at("problem").hidden = !guide.problem;
  setText(at("taken"), String(guide.num_taken));
  setText(at("wanted"), guide.num_wanted === null ? "" : `of ${guide.num_wanted}`);
  setText(at("title"), guide.title);
  document.title = guide.title || "robot-runtime calibrate";
  if (before && guide.num_taken > before.num_taken) flash();
  showCells(guide.cells);
  showCorners(guide.corners);
  showGauges(guide.gauges);
  showMarks(guide.marks_name, guide.marks);
  showEnd(guide.end);
}

function flash() {
  body.classList.add("taken");
  setTimeout(() => body.classList.remove("taken"), 250);
}

/* ---- over the image ---------------------------------------------------------------------------- */

function showPicture(name, jpeg) {
  setPicture(at("picture"), jpeg);
}

at("picture").addEventListener("load", () => {
  const { naturalWidth: width, naturalHeight: height } = at("picture");
  at("frame").style.aspectRatio = `${width} / ${height}`;
  at("frame").style.width = `min(100cqw, ${(100 * width) / height}cqh)`;
});

/* Make as many elements as there are items; fill: receives each with its item. */
function each(list, tag, items, fill) {
  while (list.children.length > items.length) list.lastChild.remove();
  while (list.children.length < items.length)
    list.append(list instanceof SVGElement ? document.createElementNS(list.namespaceURI, tag) : document.createElement(tag));
  items.forEach((item, i) => fill(list.children[i], item));
}

function showCells(cells) {
  document.querySelector("#legend .cell").hidden = cells === null;
  const empty = cells === null ? [] : [...cells.are_filled.keys()].filter((i) => !cells.are_filled[i]);
  each(at("cells"), "rect", empty, (rect, i) => {
    const box = { x: (i % cells.columns) / cells.columns, y: Math.floor(i / cells.columns) / cells.rows, width: 1 / cells.columns, height: 1 / cells.rows };
    for (const [name, value] of Object.entries(box)) rect.setAttribute(name, value);
  });
}

function showCorners(corners) {
  each(at("corners"), "i", corners, (dot, [x, y]) => {
    dot.style.left = `${100 * x}%`;
    dot.style.top = `${100 * y}%`;
  });
}

/* ---- beside it --------------------------------------------------------------------------------- */

function showGauges(gauges) {
  at("gauges").hidden = gauges.length === 0;
  each(at("gauges"), "div", gauges, (box, gauge) => {
    if (!box.className) box.innerHTML = "<b></b><span></span><div class='bar'><i></i><u></u></div>";
    box.className = gauge.is_good ? "gauge" : "gauge bad";
    const [name, text, bar] = box.children;
    setText(name, gauge.name);
    setText(text, gauge.text || "—");
    bar.firstChild.style.width = `${100 * gauge.share}%`;
    bar.lastChild.hidden = gauge.limit_share === null;
    bar.lastChild.style.left = `${100 * (gauge.limit_share || 0)}%`;
  });
}

function showMarks(name, marks) {
  at("marks-card").hidden = marks.length === 0;
  setText(at("marks-name"), name);
  at("marks").classList.toggle("sides", marks.map((mark) => mark.name).join(" ") === SIDES);
  each(at("marks"), "li", marks, (item, mark) => {
    if (!item.firstChild) item.append(document.createElement("b"), document.createElement("span"));
    item.dataset.name = mark.name;
    item.className = mark.is_there ? "there" : "";
    setText(item.firstChild, mark.name);
    setText(item.lastChild, mark.text);
  });
}

function showEnd(end) {
  at("result").hidden = end === null;
  each(at("reasons"), "li", end ? end.reasons : [], (item, reason) => {
    if (!item.firstChild) item.append(document.createElement("b"), document.createElement("span"));
    item.className = reason.is_fatal ? "fatal" : "";
    setText(item.firstChild, reason.name);
    setText(item.lastChild, reason.text);
  });
  each(at("rows").tBodies[0], "tr", end ? end.rows : [], (row, [name, value]) => {
    if (!row.cells.length) (row.insertCell(), row.insertCell());
    setText(row.cells[0], name);
    setText(row.cells[1], value);
  });
}

listen(show, showPicture, lost);
