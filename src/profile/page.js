// Zoom of the timeline and the memory in use, search in the table, and the row of a span. The page works without.
const pictures = ["timeline", "memory"].map((id) => document.getElementById(id)).filter(Boolean);
const [timeline, rows] = [document.getElementById("timeline"), [...document.querySelectorAll("tbody tr")]];
const frame = timeline.parentElement;
document.querySelectorAll(".tools").forEach((tools) => { tools.hidden = false; });

// The part of the time that is shown.
const whole = 1200;
let from = 0, width = whole;
const spans = [...timeline.querySelectorAll("rect")].map((rect) => {
  const number = (name) => Number(rect.getAttribute(name));
  const text = rect.textContent;
  return { x: number("x"), y: number("y"), width: number("width"), name: text.slice(0, text.lastIndexOf(": ")) };
});
const names = document.createElement("div");
names.setAttribute("aria-hidden", "true");
frame.append(names);

// Names of spans that are wide enough for some letters.
function label() {
  const pixels = frame.clientWidth / width;
  const shown = [];
  for (const span of spans) {
    const [left, right] = [Math.max(from, span.x), Math.min(from + width, span.x + span.width)];
    if ((right - left) * pixels < 30) continue;
    const name = document.createElement("span");
    name.className = "name";
    name.textContent = span.name;
    name.style.left = `${(left - from) * pixels}px`;
    name.style.top = `${span.y}px`;
    name.style.width = `${(right - left) * pixels}px`;
    shown.push(name);
  }
  names.replaceChildren(...shown);
}

function show() {
  width = Math.min(whole, Math.max(whole / 100000, width));
  from = Math.min(whole - width, Math.max(0, from));
  for (const picture of pictures) {
    picture.setAttribute("viewBox", `${from} 0 ${width} ${picture.viewBox.baseVal.height}`);
  }
  label();
}

function zoom(factor, at = 0.5) {
  const fixed = from + at * width;
  width *= factor;
  from = fixed - at * width;
  show();
}

function move(share) {
  from += share * width;
  show();
}

function all() {
  [from, width] = [0, whole];
  show();
}

const steps = { in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.25), right: () => move(0.25), all };
for (const button of document.querySelectorAll("[data-zoom]")) {
  button.addEventListener("click", steps[button.dataset.zoom]);
}
const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all" };
frame.addEventListener("keydown", (event) => {
  if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
  steps[keys[event.key]]();
  event.preventDefault();
});

let held = null, was_dragged = false;
for (const picture of pictures) {
  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const box = picture.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - box.left) / box.width);
  }, { passive: false });
  picture.addEventListener("pointerdown", (event) => {
    [held, was_dragged] = [{ at: event.clientX, from }, false];
  });
}
window.addEventListener("pointermove", (event) => {
  if (!held) return;
  was_dragged ||= Math.abs(event.clientX - held.at) > 4;
  if (was_dragged) {
    from = held.from - ((event.clientX - held.at) / frame.clientWidth) * width;
    show();
  }
});
window.addEventListener("pointerup", () => { held = null; });
new ResizeObserver(label).observe(frame);

// A click on a span or a dot lights its row.
document.querySelector("main").addEventListener("click", (event) => {
  const part = event.target.closest("[data-row]");
  if (!part || was_dragged) return;
  rows.forEach((row) => row.classList.remove("lit"));
  const row = rows[Number(part.dataset.row)];
  row.classList.add("lit");
  document.getElementById("chosen").textContent = part.textContent;
});

const [search, found] = ["search", "found"].map((id) => document.getElementById(id));
const texts = rows.map((row) => row.textContent.toLowerCase());
search.addEventListener("input", () => {
  const wanted = search.value.trim().toLowerCase();
  rows.forEach((row, at) => { row.hidden = !texts[at].includes(wanted); });
  const n_shown = rows.filter((row) => !row.hidden).length;
  found.textContent = wanted ? `${n_shown} of ${rows.length} rows` : "";
});
