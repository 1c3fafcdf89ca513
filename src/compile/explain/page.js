// Search, zoom, colours and details of each report of the page. Without this script the page shows the same, at rest.
const CHOICES = { kernel: "by kernel", measured: "by measured time", modelled: "by modelled time" };
const DIRECTIONS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

/** An element with this text and these elements inside. */
function made(name, text, ...inside) {
  const element = document.createElement(name);
  if (text) element.textContent = text;
  element.append(...inside);
  return element;
}

/** The parts of a report, or nothing if it has no graph. */
function parts(report) {
  const graph = report.querySelector(".graph");
  if (!graph) return null;
  const all = (selector) => [...report.querySelectorAll(selector)];
  const boxes = [...graph.querySelectorAll(".box")];
  const of_group = new Map();
  for (const part of all("[data-group], [data-groups]")) {
    for (const group of part.dataset.group?.split() ?? part.dataset.groups.split(" ")) {
      if (!of_group.has(group)) of_group.set(group, []);
      of_group.get(group).push(part);
    }
  }
  return {
    report, graph, boxes, all,
    svg: graph.querySelector("svg"),
    computed: boxes.filter((box) => box.dataset.group !== undefined),
    rows: all("tr[data-group]"),
    of: (group) => of_group.get(group) ?? [],
    chosen: null,
    was_dragged: false,
  };
}

/** The kernel that an element belongs to. */
function group_at(target) {
  const part = target.closest("[data-group], [data-groups]");
  return part && (part.dataset.group ?? part.dataset.groups.split(" ")[0]);
}

/** Lights the parts of a kernel, or leaves only those of the chosen kernel lit. */
function light(view, group, on) {
  view.of(group).forEach((part) => part.classList.toggle("lit", on || group === view.chosen));
}

/** The details of the kernel of a row of the table. */
function described(view, row) {
  const { group } = row.dataset;
  const heads = [...row.closest("table").querySelectorAll("th")].map((head) => head.textContent);
  const facts = made("dl");
  [...row.cells].forEach((cell, at) => {
    if (at !== 0 && heads[at] !== "ops") facts.append(made("dt", heads[at]), made("dd", cell.textContent));
  });
  const found = [made("h4", `Kernel ${group}`), row.querySelector(".ops").cloneNode(true), facts];
  const edges = view.of(group).filter((part) => part.matches("tr[data-groups]"));
  if (edges.length) found.push(made("h4", "Not fused with its neighbours"));
  for (const edge of edges) {
    const [from, to, costs, why, hint] = [...edge.cells].map((cell) => cell.textContent);
    found.push(made("p", `${from} → ${to}, ${costs}: ${why}. What to do: ${hint}.`));
  }
  const code = row.querySelector("pre");
  if (code) found.push(made("h4", "Generated code"), code.cloneNode(true));
  return found;
}

/** Scrolls the graph, but not the page, until a box of the kernel is seen. */
function reveal({ graph, boxes }, group) {
  const frame = graph.getBoundingClientRect();
  const places = boxes.filter((box) => box.dataset.group === group).map((box) => box.getBoundingClientRect());
  const is_seen = ({ left, right, top, bottom }) =>
    right > frame.left && left < frame.right && bottom > frame.top && top < frame.bottom;
  if (places.length === 0 || places.some(is_seen)) return;
  const { left, top } = places[0];
  graph.scrollBy(left - frame.left - frame.width / 2, top - frame.top - frame.height / 3);
}

/** Shows the details of a kernel, and keeps its parts lit. */
function choose(view, group) {
  const row = view.rows.find((other) => other.dataset.group === group);
  if (!row) return;
  const before = view.chosen;
  view.chosen = group;
  if (before !== null) light(view, before, false);
  light(view, group, true);
  const details = view.report.querySelector(".details");
  details.replaceChildren(...described(view, row));
  details.parentElement.scrollTop = 0;
  reveal(view, group);
}

/** Kernels are lit under the pointer, and chosen by a click on any of their parts. */
function answer_pointer(view) {
  for (const [event, on] of [["mouseover", true], ["mouseout", false]]) {
    view.report.addEventListener(event, ({ target }) => {
      const group = group_at(target);
      if (group) light(view, group, on);
    });
  }
  view.report.addEventListener("click", ({ target }) => {
    const group = group_at(target);
    if (group && !view.was_dragged && !target.closest("details, tr[data-groups]")) choose(view, group);
  });
  view.report.querySelector(".details").append(
    made("h4", "Details"),
    made("p", "Choose a kernel in a picture or in the table."),
  );
}

/** Makes a box the one tab stop of the graph. */
function focus({ graph }, box) {
  graph.querySelector(".box[tabindex='0']")?.setAttribute("tabindex", "-1");
  box.setAttribute("tabindex", "0");
  box.focus({ preventScroll: true });
  box.scrollIntoView({ block: "nearest", inline: "nearest" });
}

/** The nearest box in a direction; what lies aside counts three times. */
function nearest(boxes, from, [right, down]) {
  const middle = (box) => {
    const rect = box.querySelector("rect");
    const number = (name) => Number(rect.getAttribute(name));
    return [number("x") + number("width") / 2, number("y") + number("height") / 2];
  };
  const [x, y] = middle(from);
  let best = null, least = Infinity;
  for (const box of boxes) {
    const [dx, dy] = [middle(box)[0] - x, middle(box)[1] - y];
    const along = dx * right + dy * down;
    const distance = along + 3 * Math.abs(dx * down + dy * right);
    if (along > 1 && distance < least) [best, least] = [box, distance];
  }
  return best;
}

/** Arrow keys go from box to box, Enter shows details, and +, - and 0 zoom. */
function answer_keys(view, { zoom, fit }) {
  for (const box of view.computed) {
    box.setAttribute("role", "button");
    box.setAttribute("tabindex", "-1");
  }
  view.computed[0]?.setAttribute("tabindex", "0");
  view.graph.addEventListener("keydown", (event) => {
    const box = event.target.closest(".box");
    if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = event.key in DIRECTIONS ? nearest(view.computed, box, DIRECTIONS[event.key]) : null;
    if (next) focus(view, next);
    else if (event.key === "Enter" || event.key === " ") choose(view, box.dataset.group);
    else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else if (!(event.key in DIRECTIONS)) return;
    event.preventDefault();
  });
}

/** Buttons and the wheel with Ctrl zoom the graph. The point under the pointer stays, or the middle. */
function zooms({ graph, svg, all }) {
  const [width, height] = [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height];
  let scale = 1;
  function set(to) {
    scale = Math.min(8, Math.max(0.02, to));
    svg.setAttribute("width", width * scale);
    svg.setAttribute("height", height * scale);
  }
  function zoom(factor, [x, y] = [graph.clientWidth / 2, graph.clientHeight / 2]) {
    const [left, top, before] = [graph.scrollLeft + x, graph.scrollTop + y, scale];
    set(scale * factor);
    graph.scrollTo((left * scale) / before - x, (top * scale) / before - y);
  }
  function fit() {
    set(Math.min(1, (graph.clientWidth - 2) / width, (graph.clientHeight - 2) / height));
  }
  const steps = { in: () => zoom(1.25), out: () => zoom(0.8), fit };
  all("[data-zoom]").forEach((button) => button.addEventListener("click", steps[button.dataset.zoom]));
  graph.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const frame = graph.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 0.9 : 1.1, [event.clientX - frame.left, event.clientY - frame.top]);
  }, { passive: false });
  set(Math.max(0.6, Math.min(1, (graph.clientWidth - 2) / width)));
  return { zoom, fit };
}

/** A drag moves the picture, and is no click. */
function answer_drags(view) {
  const { graph } = view;
  let held = null;
  graph.addEventListener("pointerdown", (event) => {
    view.was_dragged = false;
    if (event.button === 0) held = [event.clientX, event.clientY, graph.scrollLeft, graph.scrollTop];
  });
  window.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [dx, dy] = [event.clientX - held[0], event.clientY - held[1]];
    view.was_dragged ||= Math.abs(dx) + Math.abs(dy) > 4;
    if (view.was_dragged) graph.scrollTo(held[2] - dx, held[3] - dy);
    graph.classList.toggle("dragged", view.was_dragged);
  });
  window.addEventListener("pointerup", () => {
    held = null;
    graph.classList.remove("dragged");
    setTimeout(() => { view.was_dragged = false; });
  });
}

/** Search dims boxes and hides rows. Enter goes to the first box that was found. */
function answer_search(view) {
  const { report, boxes, rows } = view;
  const [field, found] = [report.querySelector("[data-search]"), report.querySelector("[data-found]")];
  const texts = new Map();
  const has = (part, wanted) => {
    if (!texts.has(part)) texts.set(part, part.textContent.toLowerCase());
    return texts.get(part).includes(wanted);
  };
  let hits = [];
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    hits = boxes.filter((box) => has(box, wanted));
    boxes.forEach((box) => box.classList.toggle("dim", !has(box, wanted)));
    rows.forEach((row) => { row.hidden = !has(row, wanted); });
    found.textContent = wanted ? `${hits.length} of ${boxes.length} boxes` : "";
  });
  field.addEventListener("keydown", (event) => {
    const first = hits.find((box) => box.dataset.group !== undefined);
    if (event.key === "Enter" && field.value && first) focus(view, first);
  });
}

/** The colour of a share of the greatest time: yellow to red, light enough for dark letters. */
function heat(share) {
  return `hsl(${Math.round(55 - 50 * share)},90%,${Math.round(86 - 24 * share)}%)`;
}

/** Paints the parts of kernels by time, or by kernel as they were. */
function paint_kernels({ report, rows, of }) {
  const swatches = new Map(rows.map((row) => [row.dataset.group, row.querySelector(".swatch")]));
  const by_kernel = new Map([...swatches].map(([group, cell]) => [group, cell.style.background]));
  const select = report.querySelector("[data-colours]");
  function paint() {
    const time = (group) => Number(swatches.get(group).dataset[select.value] ?? 0);
    const most = Math.max(1, ...[...swatches.keys()].map(time));
    for (const [group, swatch] of swatches) {
      const colour = select.value === "kernel" ? by_kernel.get(group) : heat(time(group) / most);
      swatch.style.background = colour;
      swatch.closest("tr").querySelector(".bar").style.background = colour;
      for (const part of of(group)) {
        const shape = part.querySelector("rect, ellipse");
        if (shape) shape.style.fill = colour;
        else if (part.matches(".slice, i")) part.style.background = colour;
      }
    }
  }
  const has = (name) => [...swatches.values()].some((cell) => cell.dataset[name] !== undefined);
  for (const [value, name] of Object.entries(CHOICES)) {
    if (value === "kernel" || has(value)) select.append(new Option(name, value));
  }
  if (has("measured")) select.value = "measured";
  select.addEventListener("change", paint);
  paint();
}

/** The numbers of kernels in the table become buttons. */
function number_buttons({ rows }) {
  for (const cell of rows.map((row) => row.querySelector(".swatch"))) {
    const button = made("button", cell.textContent);
    button.type = "button";
    button.setAttribute("aria-label", `Details of kernel ${cell.textContent}`);
    cell.replaceChildren(button);
  }
}

for (const view of [...document.querySelectorAll(".report")].map(parts).filter(Boolean)) {
  view.report.querySelector(".tools").hidden = false;
  number_buttons(view);
  answer_pointer(view);
  answer_keys(view, zooms(view));
  answer_drags(view);
  answer_search(view);
  paint_kernels(view);
}
