"use strict";
// Orders come from the data as they are: order[slot] = patch. Nothing here sorts logits.
const { runs, samples, first } = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const PATH = ["#0d0887", "#6a00a8", "#b12a90", "#e8763f"]; // plasma up to what stands out on white
const LOGITS = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"]; // cividis
const READABLE = 100, TAIL = 16; // patches up to which a whole path can be read, and slots of one that are drawn
const COLOURS = 6, DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const calm = matchMedia("(prefers-reduced-motion: reduce)");

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function blend(stops, t) {
  const place = Math.min(1, Math.max(0, t)) * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(place));
  return [1, 3, 5].map((i) => {
    const [from, to] = [stops[low], stops[low + 1]].map((stop) => parseInt(stop.slice(i, i + 2), 16));
    return Math.round(from + (to - from) * (place - low));
  });
}
const bytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
const css = (rgb) => `rgb(${rgb.join(",")})`;
const inverse = (order) => order.reduce((slots, patch, slot) => ((slots[patch] = slot), slots), []);
const show = (value, digits, unit = "") => (value === null ? "–" : value.toFixed(digits).replace("-", "−") + unit);

// ---- tables ----

function sortTable(table, column, descending) {
  const body = table.tBodies[0], text = (row) => row.cells[column].textContent;
  const numeric = table.tHead.rows[0].cells[column].className === "number", direction = descending ? -1 : 1;
  const compare = (one, other) => {
    if (!numeric) return direction * text(one).localeCompare(text(other), "en", { numeric: true });
    const [a, b] = [one, other].map((row) => parseFloat(text(row).replace("<", ""))); // of "<0.001 ± 0.1"
    if (isNaN(a) || isNaN(b)) return isNaN(a) - isNaN(b); // no number: last either way
    return direction * (a - b);
  };
  body.append(...[...body.rows].sort(compare));
  for (const [i, heading] of [...table.tHead.rows[0].cells].entries())
    if (i === column) heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else heading.removeAttribute("aria-sort");
}

for (const button of document.querySelectorAll("thead button")) {
  const heading = button.parentElement;
  button.addEventListener("click", () =>
    sortTable(heading.closest("table"), heading.cellIndex, heading.getAttribute("aria-sort") === "ascending"));
}

// Keep what has, for every word typed, a word that begins with it.
function filter(items, words, status) {
  const parts = (text) => text.toLowerCase().match(/[\p{L}\p{N}.]+/gu) ?? [];
  const wanted = parts(words);
  for (const item of items) {
    const found = parts(item.cells ? [...item.cells].map((cell) => cell.textContent).join(" ") : item.textContent);
    item.hidden = !wanted.every((word) => found.some((part) => part.startsWith(word)));
  }
  if (status) status.textContent = words ? `${items.filter((item) => !item.hidden).length} of ${items.length}` : "";
}

for (const input of document.querySelectorAll("input[data-filters]"))
  input.addEventListener("input", () =>
    filter([...$(input.dataset.filters).tBodies[0].rows], input.value, input.parentElement.querySelector("[role=status]")));

// A box that does not scroll is no stop for the Tab key.
function stopAtScrollers() {
  for (const box of document.querySelectorAll(".scroll")) box.tabIndex = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight ? 0 : -1;
}

for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", stopAtScrollers);

// Sizes of what is drawn to fit; asking in every frame would lay out the whole page each time.
const sizes = {};
function measure() {
  for (const svg of document.querySelectorAll("#strip, .chart")) sizes[svg.id] = { width: svg.clientWidth, height: svg.clientHeight };
}

// ---- player ----

// A moment is a state of the policy that was kept: before training, after every epoch, and many while it learns.
// `image` counts from 1 those that are shown in the order they have of their own at the end; 0 is the order of all.
const player = { run: null, moment: 0, image: 0, tracked: [0, 0], orders: [], logits: null, slots: [], own: [], ownSlots: [], timer: null };
const grouped = Object.entries(group(runs));

function group(list) {
  const found = {};
  for (const run of list) (found[run.group] ??= []).push(run);
  return found;
}

// The frames of an array that holds one after the other.
function frames(flat, patches) {
  return Array.from({ length: flat.length / patches }, (_, i) => Array.from(flat.subarray(i * patches, (i + 1) * patches)));
}

function unpacked(orders, patches) {
  const flat = bytes(orders);
  return frames(patches > 256 ? new Uint16Array(flat.buffer) : flat, patches);
}

function chooseRun(run) {
  pause();
  player.run = run;
  player.image = 0;
  player.tracked = [...run.tracked];
  const patches = run.grid[0] * run.grid[1], last = run.at.length - 1;
  player.orders = unpacked(run.orders, patches);
  player.logits = run.logits ? frames(bytes(run.logits), patches) : null;
  player.slots = player.orders.map(inverse);
  player.own = unpacked(run.own, patches);
  player.ownSlots = player.own.map(inverse);
  $("moment").max = last;
  $("image").max = $("last-image").textContent = run.images.length;
  $("images").hidden = $("image-item").hidden = run.images.length === 0;
  $("slot").max = patches - 1;
  $("slot").value = patches - 1; // what is read last is what a short memory sees
  $("reading").hidden = patches <= READABLE;
  $("setting").textContent = run.group;
  drawStages(run);
  buildMap(run);
  goTo(last); // what was learned; Play begins at the start
}

function drawStages(run) {
  const stages = run.stage.slice(1); // what leads to each moment
  const names = [...new Set(stages)];
  document.querySelector(".stages").replaceChildren(...names.map((stage) =>
    element("i", { className: stage, textContent: stage, style: `flex-grow:${stages.filter((each) => each === stage).length}` })));
  document.querySelector(".stage-keys").replaceChildren(...names.map((stage) =>
    element("span", { className: "key" }, element("i", { className: stage }), stage)));
  fitStages();
}

// A part of the bar that is too narrow for its name has it below.
function fitStages() {
  const keys = document.querySelectorAll(".stage-keys .key");
  for (const [i, part] of document.querySelectorAll(".stages i").entries()) {
    const narrow = part.scrollWidth > part.clientWidth;
    part.classList.toggle("narrow", narrow);
    keys[i].hidden = !narrow;
  }
}

function buildMap(run) {
  const [rows, columns] = run.grid, map = $("map");
  map.style.cssText = `--rows:${rows};--columns:${columns};grid-template-columns:repeat(${columns},minmax(0,1fr));${columns > 10 ? "--size:.62rem;--ring:4px;--number:end" : "--size:.85rem;--ring:6px"}`;
  map.setAttribute("aria-rowcount", rows);
  map.setAttribute("aria-colcount", columns);
  const cell = (row, column) => {
    const made = element("div", { tabIndex: -1 });
    made.setAttribute("role", "gridcell");
    made.dataset.patch = row * columns + column;
    return made;
  };
  map.replaceChildren(...Array.from({ length: rows }, (_, row) => {
    const line = element("div", {}, ...Array.from({ length: columns }, (_, column) => cell(row, column)));
    line.setAttribute("role", "row");
    return line;
  }));
  player.cells = [...map.querySelectorAll("[role=gridcell]")];
  player.cells[player.tracked[0]].tabIndex = 0;
}

function goTo(moment) {
  player.moment = moment;
  draw();
}

function goToImage(image) {
  player.image = image;
  goTo(player.run.at.length - 1); // images have their orders at the end
}

function draw() {
  const { run, moment, image, tracked } = player, frame = run.frame[moment], last = run.at.length - 1;
  const [order, slots] = image ? [player.own[image - 1], player.ownSlots[image - 1]] : [player.orders[frame], player.slots[frame]];
  const logits = image ? null : player.logits?.[frame];
  readOut(run, moment, image);
  $("moment").disabled = image > 0 || last === 0;
  $("play").disabled = image ? run.images.length === 1 : last === 0;
  $("at-a").textContent = slots[tracked[0]];
  $("at-b").textContent = slots[tracked[1]];
  drawPath(run, order, image);
  paintMap(run, logits, slots);
  drawStrip(run, moment, image);
}

const nameOf = (run, image) => (image ? `${image} of ${run.images.length}` : "all");

function readOut(run, moment, image) {
  const epoch = run.at[moment], validated = run.epochs.findLastIndex((done) => done <= epoch), when = `${epoch} of ${run.at[run.at.length - 1]}`;
  $("image").value = image;
  $("image").setAttribute("aria-valuetext", image ? `image ${nameOf(run, image)}` : "all images");
  $("at-image").textContent = nameOf(run, image);
  $("moment").value = moment;
  $("moment").setAttribute("aria-valuetext", `epoch ${when}, ${run.stage[moment]}`);
  $("at-epoch").textContent = when;
  $("at-stage").textContent = run.stage[moment];
  $("at-temperature").textContent = show(run.temperature[moment], 3);
  $("at-tau").textContent = show(image ? run.own_tau[image - 1] : run.tau[moment], 3);
  $("top1-name").textContent = "Validation top-1" + (validated < 0 ? "" : ` after epoch ${run.epochs[validated]}`);
  $("at-top1").textContent = show(run.top1[validated] ?? null, 1, "%");
  $("remark").textContent = image ? `Image ${image} in the order that it gets at the end of the run: the logits of all images, and those that a network adds for its patches.`
    : remark(run, moment) + (run.images.length ? " To these logits every image adds its own." : "");
}

function remark(run, moment) {
  if (run.kind === "fixed") return "This run reads one fixed order from beginning to end: there is no policy, and nothing moves.";
  if (run.kind === "random every batch") return "Every batch of this run was read in another random order; this is the one it was tested in.";
  if (run.kind === "equal noise") return "The control: batches were read with the noise of learning, but nothing was learned, so the order stays.";
  if (run.at.length === 1) return "The order did not move in this run.";
  if (run.stage[moment] === "warm-up") return `In warm-up the model still reads ${run.warmup}; the policy waits at its start.`;
  if (run.stage[moment] === "frozen") return "The order found is frozen; only the model goes on learning.";
  return moment ? "Orders are drawn around this one, and the loss moves the policy." : "The order the policy starts from.";
}

function drawPath(run, order, number) {
  const [rows, columns] = run.grid, svg = $("path"), fine = order.length > READABLE, slot = fine ? Number($("slot").value) : order.length - 1;
  const unit = Math.min(1, (columns * 48) / 500); // of strokes and marks: coarse grids must not make them fat
  const at = order.map((patch) => [(patch % columns) + 0.5, Math.floor(patch / columns) + 0.5]);
  const sample = number ? run.images[number - 1] : run.sample;
  const image = sample === null ? "" : `<image href="${samples[sample]}" width="${columns}" height="${rows}" preserveAspectRatio="none"/>`;
  const grid = Array.from({ length: rows - 1 }, (_, i) => `M0 ${i + 1}H${columns}`).join("") + Array.from({ length: columns - 1 }, (_, i) => `M${i + 1} 0V${rows}`).join("");
  svg.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
  svg.innerHTML = `${image}<rect width="${columns}" height="${rows}" fill="#fff" opacity=".25"/>` + (fine ? tiles(at, slot) : "") +
    `<path d="${grid}" stroke="#fff" stroke-opacity=".4" stroke-width="${0.03 * unit}"/>` + (fine ? tail(at, slot) : wholePath(at, unit)) +
    ends(at, slot, unit) + player.tracked.map((patch, i) => trackedMark(patch % columns, Math.floor(patch / columns), i, unit)).join("");
  const place = (patch) => `row ${Math.floor(patch / columns) + 1}, column ${(patch % columns) + 1}`;
  $("at-slot").textContent = `slot ${slot} of ${order.length - 1}`;
  $("slot").setAttribute("aria-valuetext", `slot ${slot}: ${place(order[slot])}`);
  svg.setAttribute("aria-label", `Reading path over ${number ? `image ${nameOf(run, number)}` : "a sample image"}, from ${place(order[0])} to ${place(order[order.length - 1])}`);
}

// Steps to a neighbour stand out; jumps, which cross everything, are thin.
function wholePath(at, unit) {
  const segments = at.slice(1).map(([x, y], i) => {
    const width = (Math.hypot(x - at[i][0], y - at[i][1]) < 1.5 ? 0.1 : 0.06) * unit;
    return `<line x1="${at[i][0]}" y1="${at[i][1]}" x2="${x}" y2="${y}" stroke="${css(blend(PATH, i / Math.max(1, at.length - 2)))}" stroke-width="${width}"/>`;
  });
  return `<polyline points="${at.join(" ")}" fill="none" stroke="#fff" stroke-opacity=".85" stroke-width="${0.14 * unit}" stroke-linejoin="round" stroke-linecap="round"/><g stroke-linecap="round">${segments.join("")}</g>`;
}

// Of many patches every cell has the colour of its slot, and what is read later than the chosen one is pale.
function tiles(at, slot) {
  return at.map(([x, y], i) => `<rect x="${x - 0.5}" y="${y - 0.5}" width="1" height="1" fill="${css(blend(PATH, i / (at.length - 1)))}" opacity="${i <= slot ? 0.75 : 0.35}"/>`).join("");
}

// And the path is drawn for the last slots up to the chosen one, fading away.
function tail(at, slot) {
  const from = Math.max(0, slot - TAIL);
  const lines = (width, colour) => at.slice(from + 1, slot + 1).map(([x, y], i) =>
    `<line x1="${at[from + i][0]}" y1="${at[from + i][1]}" x2="${x}" y2="${y}" stroke="${colour}" stroke-width="${width}" stroke-opacity="${(i + 1) / (slot - from)}"/>`).join("");
  return `<g stroke-linecap="round">${lines(0.2, "#000")}${lines(0.1, "#fff")}</g>`;
}

// A dot where reading begins and a square where it has come to.
function ends(at, slot, unit) {
  const [start, end] = [at[0], at[slot]], half = 0.18 * unit;
  return `<rect x="${end[0] - half}" y="${end[1] - half}" width="${2 * half}" height="${2 * half}" fill="${PATH[3]}" stroke="#fff" stroke-width="${0.07 * unit}"/>` +
    `<circle cx="${start[0]}" cy="${start[1]}" r="${0.21 * unit}" fill="${PATH[0]}" stroke="#fff" stroke-width="${0.07 * unit}"/>`;
}

function trackedMark(x, y, i, unit) {
  const colour = ["#00609c", "#b34700"][i], frame = `x="${x + 0.05}" y="${y + 0.05}" width=".9" height=".9" fill="none"`, side = 0.36 * unit;
  return `<g><rect ${frame} stroke="#fff" stroke-width="${0.13 * unit}"/><rect ${frame} stroke="${colour}" stroke-width="${0.07 * unit}"/>` +
    `<rect x="${x + 0.03}" y="${y + 0.03}" width="${side}" height="${side}" fill="${colour}"/>` +
    `<text x="${x + 0.03 + side / 2}" y="${y + 0.03 + 0.77 * side}" font-size="${0.75 * side}" text-anchor="middle" style="fill:#fff;font-weight:700">${"AB"[i]}</text></g>`;
}

function paintMap(run, logits, slots) {
  const columns = run.grid[1], last = Math.max(1, slots.length - 1);
  $("map-heading").textContent = (logits ? "Logits, with the slot of each patch" : "Slot of each patch") + (player.image ? ` of image ${player.image}` : "");
  $("low").textContent = logits ? show(run.low, 2) : "last";
  $("high").textContent = logits ? show(run.high, 2) : "first";
  for (const [patch, cell] of player.cells.entries()) {
    const colour = blend(LOGITS, logits ? logits[patch] / 255 : 1 - slots[patch] / last);
    const light = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 120;
    cell.style.cssText = `background:${css(colour)};color:${light ? "#000" : "#fff"}`;
    if (columns <= 16) cell.textContent = slots[patch];
    const tracks = player.tracked.flatMap((tracked, i) => (tracked === patch ? ["AB"[i]] : []));
    cell.className = tracks.length ? tracks[0].toLowerCase() : "";
    cell.setAttribute("aria-label", `row ${Math.floor(patch / columns) + 1}, column ${(patch % columns) + 1}: slot ${slots[patch]}` +
      (logits ? `, logit ${show(run.low + (logits[patch] / 255) * (run.high - run.low), 2)}` : "") + (tracks.length ? `, tracked as ${tracks.join(" and ")}` : ""));
    cell.setAttribute("aria-selected", tracks.length > 0);
  }
}

// The slots of the two patches moment by moment, or image by image, which nothing connects.
function drawStrip(run, moment, image) {
  const rows = image ? player.ownSlots : run.frame.map((frame) => player.slots[frame]), at = image ? image - 1 : moment;
  const svg = $("strip"), { width, height } = sizes.strip, last = rows.length - 1;
  const patches = rows[0].length, left = 14, top = 26, bottom = height - 14;
  const x = (slot) => left + (slot / Math.max(1, patches - 1)) * (width - 2 * left);
  const y = (m) => top + (last ? m / last : 0.5) * (bottom - top);
  const still = last === 0, now = y(at);
  const ticks = niceTicks(0, patches - 1, width / 70, true).filter((slot) => x(patches - 1) - x(slot) > 30);
  let drawn = [...ticks, patches - 1].map((slot) =>
    `<line class="rule" x1="${x(slot)}" x2="${x(slot)}" y1="${top - 6}" y2="${bottom}"/><text x="${x(slot)}" y="14" text-anchor="middle">${slot}</text>`).join("");
  drawn += `<line class="axis" x1="${x(0)}" x2="${x(patches - 1)}" y1="${now}" y2="${now}"/>`;
  for (const [i, name] of ["a", "b"].entries()) {
    const slotAt = rows.map((slots) => slots[player.tracked[i]]);
    const points = slotAt.map((slot, m) => `${x(slot)},${y(m)}`);
    if (image) drawn += slotAt.map((slot, m) => `<rect class="other ${name}" x="${x(slot) - 4}" y="${y(m) - 4}" width="8" height="8" rx="${name === "a" ? 4 : 1}"/>`).join("");
    else if (!still) drawn += `<polyline class="trail whole ${name}" points="${points.join(" ")}"/><polyline class="trail ${name}" points="${points.slice(0, at + 1).join(" ")}"/>`;
    const centre = x(slotAt[at]);
    drawn += name === "a" ? `<circle class="head a" cx="${centre}" cy="${now}" r="10" data-slot="${slotAt[at]}"/>`
      : `<rect class="head b" x="${centre - 9}" y="${now - 9}" width="18" height="18" rx="3" data-slot="${slotAt[at]}"/>`;
    drawn += `<text class="letter" x="${centre}" y="${now + 4.3}">${name.toUpperCase()}</text>`;
  }
  svg.innerHTML = drawn;
  $("strip-key").textContent = `slot across, ${image ? "images" : "training"} down`;
  const [a, b] = player.tracked.map((patch) => rows[at][patch]);
  svg.setAttribute("aria-label", `${image ? `Image ${nameOf(run, image)}` : `Epoch ${run.at[moment]}`}: patch A is in slot ${a}, patch B in slot ${b}, of ${patches}`);
}

function track(patch) {
  player.tracked[Number(document.querySelector("input[name=which]:checked").value)] = patch;
  focusCell(patch, false);
  goTo(player.moment);
}

function focusCell(patch, move = true) {
  for (const cell of player.cells) cell.tabIndex = -1;
  player.cells[patch].tabIndex = 0;
  if (move) player.cells[patch].focus();
}

function mapKey(event) {
  const cell = event.target.closest("[role=gridcell]"), [rows, columns] = player.run.grid;
  if (!cell) return;
  const patch = Number(cell.dataset.patch), row = Math.floor(patch / columns), column = patch % columns;
  const moves = {
    ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
    Home: [row, 0], End: [row, columns - 1],
  };
  if (event.key === "Enter" || event.key === " ") track(patch);
  else if (event.key in moves) {
    const [r, c] = moves[event.key];
    if (r >= 0 && r < rows && c >= 0 && c < columns) focusCell(r * columns + c);
  } else return;
  event.preventDefault();
}

function pause() {
  clearInterval(player.timer);
  player.timer = null;
  $("play-name").textContent = "Play";
  $("play-sign").setAttribute("d", "M4 2l10 6-10 6z");
  $("readout").setAttribute("aria-live", "polite");
}

// Plays the training or, while an image is chosen, shows one image after another.
function play() {
  const images = player.image > 0, [start, last, wait] = images ? [1, player.run.images.length, 1500] : [0, player.run.frame.length - 1, 0];
  const at = () => (images ? player.image : player.moment), go = images ? goToImage : goTo;
  $("readout").setAttribute("aria-live", "off"); // a screen reader could not keep up
  $("play-name").textContent = "Pause";
  $("play-sign").setAttribute("d", "M3 2h4v12H3zM9 2h4v12H9z");
  if (at() === last) go(start);
  player.timer = setInterval(() => {
    go(at() + 1);
    if (at() === last) pause();
  }, wait || (calm.matches ? 1000 : Math.min(600, Math.max(120, 12000 / last))));
}

function startPlayer() {
  $("run").append(...grouped.map(([name, members]) =>
    element("optgroup", { label: name }, ...members.map((run) => element("option", { value: runs.indexOf(run), textContent: run.name })))));
  $("run").addEventListener("change", () => chooseRun(runs[$("run").value]));
  $("moment").addEventListener("input", () => { pause(); goTo(Number($("moment").value)); });
  $("image").addEventListener("input", () => { pause(); goToImage(Number($("image").value)); });
  $("play").addEventListener("click", () => (player.timer ? pause() : play()));
  $("map").addEventListener("keydown", mapKey);
  $("map").addEventListener("click", (event) => {
    const cell = event.target.closest("[role=gridcell]");
    if (cell) track(Number(cell.dataset.patch));
  });
  $("path").addEventListener("click", (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform($("path").getScreenCTM().inverse());
    const [rows, columns] = player.run.grid, row = Math.floor(point.y), column = Math.floor(point.x);
    if (row >= 0 && row < rows && column >= 0 && column < columns) track(row * columns + column);
  });
  $("slot").addEventListener("input", () => goTo(player.moment));
  $("run").value = first;
  chooseRun(runs[first]);
}

// ---- curves ----

const curves = { chosen: [], epoch: 0 };

function niceTicks(low, high, count, whole = false) {
  const rough = (high - low || 1) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  if (whole) step = Math.max(1, Math.round(step));
  const ticks = [];
  for (let tick = Math.ceil(low / step); tick * step <= high + 1e-9; tick++) ticks.push(Number((tick * step).toPrecision(12)));
  return ticks;
}

const ink = (i) => `stroke="var(--c${i % COLOURS})" stroke-dasharray="${DASHES[i % DASHES.length]}"`;

function drawChart(key) {
  const svg = $(`chart-${key}`), { width, height } = sizes[svg.id];
  const values = curves.chosen.flatMap((run) => run[key].filter((value) => value !== null));
  const last = lastEpoch();
  const low = Math.min(...values), high = Math.max(...values), left = 42, right = width - 12, top = 12, bottom = height - 38;
  const x = (epoch) => left + ((epoch - 1) / Math.max(1, last - 1)) * (right - left);
  const y = (value) => bottom - ((value - low) / (high - low || 1)) * (bottom - top);
  let drawn = values.length ? "" : `<text x="${width / 2}" y="${height / 2}" text-anchor="middle">No run is chosen</text>`;
  for (const tick of values.length ? niceTicks(low, high, 5) : [])
    drawn += `<line class="rule" x1="${left}" x2="${right}" y1="${y(tick)}" y2="${y(tick)}"/><text x="${left - 8}" y="${y(tick) + 4}" text-anchor="end">${tick}</text>`;
  for (const tick of niceTicks(1, last, width / 80, true))
    drawn += `<text x="${x(tick)}" y="${bottom + 18}" text-anchor="middle">${tick}</text>`;
  drawn += `<line class="axis" x1="${left}" x2="${right}" y1="${bottom}" y2="${bottom}"/><text x="${right}" y="${bottom + 34}" text-anchor="end">epoch</text>`;
  drawn += `<line class="cursor" x1="${x(curves.epoch)}" x2="${x(curves.epoch)}" y1="${top}" y2="${bottom}"/>`;
  for (const [i, run] of curves.chosen.entries()) {
    const points = run[key].flatMap((value, j) => (value === null ? [] : [`${x(run.epochs[j])},${y(value)}`]));
    drawn += `<polyline class="line" ${ink(i)} points="${points.join(" ")}"/>`;
    const value = run[key][run.epochs.indexOf(curves.epoch)] ?? null;
    if (value !== null) drawn += `<circle cx="${x(curves.epoch)}" cy="${y(value)}" r="4" fill="var(--c${i % COLOURS})"/>`;
  }
  svg.innerHTML = drawn;
  svg.epochAt = (clientX) => 1 + Math.round(((clientX - svg.getBoundingClientRect().left - left) / (right - left)) * (last - 1));
  for (const [name, value] of [["valuemin", 1], ["valuemax", last], ["valuenow", curves.epoch], ["valuetext", `epoch ${curves.epoch}`]])
    svg.setAttribute(`aria-${name}`, value);
}

const lastEpoch = () => Math.max(1, ...curves.chosen.flatMap((run) => run.epochs.slice(-1)));

function readEpoch(epoch) {
  const last = lastEpoch();
  curves.epoch = Math.min(last, Math.max(1, epoch));
  drawChart("top1");
  drawChart("loss");
  const several = new Set(curves.chosen.map((run) => run.group)).size > 1;
  $("values").replaceChildren(...curves.chosen.map((run, i) => {
    const name = element("th", { scope: "row" });
    name.innerHTML = `<svg viewBox="0 0 32 10" aria-hidden="true"><line x2="32" y1="5" y2="5" stroke-width="3" ${ink(i)}/></svg>`;
    name.append(run.name + (several ? ` · ${run.group}` : ""));
    const end = run.epochs.findLastIndex((done) => done <= curves.epoch);
    if (run.epochs[end] < curves.epoch) name.append(element("span", { className: "error", textContent: ` (after epoch ${run.epochs[end]})` }));
    const number = (value, digits) => element("td", { className: "number", textContent: show(value, digits) });
    return element("tr", {}, name, number(run.top1[end] ?? null, 1), number(run.loss[end] ?? null, 3));
  }));
  $("curve-epoch").textContent = curves.chosen.length ? `Values after epoch ${curves.epoch} of ${last}.` : "";
}

function chartKey(event) {
  const to = { ArrowLeft: curves.epoch - 1, ArrowDown: curves.epoch - 1, ArrowRight: curves.epoch + 1, ArrowUp: curves.epoch + 1, Home: 1, End: Infinity }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  readEpoch(to);
}

function chooseCurves() {
  curves.chosen = [...document.querySelectorAll("#choices input:checked")].map((input) => runs[input.value]);
  readEpoch(Infinity);
}

function startCurves() {
  const chosen = new Set(runs.filter((run) => run.group === runs[first].group && run.seed === runs[first].seed).slice(0, 8));
  if (runs.length <= 8) runs.forEach((run) => chosen.add(run));
  $("choices").append(...grouped.map(([name, members]) =>
    element("fieldset", {}, element("legend", { textContent: name }), ...members.map((run) =>
      element("label", {}, element("input", { type: "checkbox", value: runs.indexOf(run), checked: chosen.has(run) }), element("span", { textContent: run.name }))))));
  $("choices").addEventListener("change", chooseCurves);
  $("find-run").addEventListener("input", () => filter([...document.querySelectorAll("#choices label")], $("find-run").value, $("curve-filter").querySelector("[role=status]")));
  $("no-runs").addEventListener("click", () => {
    for (const input of document.querySelectorAll("#choices input")) input.checked = false;
    chooseCurves();
  });
  for (const chart of document.querySelectorAll(".chart")) {
    chart.addEventListener("pointermove", (event) => readEpoch(chart.epochAt(event.clientX)));
    chart.addEventListener("keydown", chartKey);
  }
  chooseCurves();
}

if (runs.length) {
  $("player").hidden = $("curves").hidden = false;
  measure();
  startPlayer();
  startCurves();
}
addEventListener("resize", () => {
  stopAtScrollers();
  if (!runs.length) return;
  measure();
  fitStages();
  drawStrip(player.run, player.moment, player.image);
  readEpoch(curves.epoch);
});
stopAtScrollers();
