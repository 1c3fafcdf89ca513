// Search, zoom, colours and details of each report of the page. Without this script the page shows the same, at rest.
const CHOICES = { kernel: "by kernel", measured: "by measured time", modelled: "by modelled time" };

// The colour of a share of the greatest time: yellow to red, light enough for dark letters.
function heat(share) {
  return `hsl(${Math.round(55 - 50 * share)},90%,${Math.round(86 - 24 * share)}%)`;
}

function made(name, text, ...inside) {
  const element = document.createElement(name);
  if (text) element.textContent = text;
  element.append(...inside);
  return element;
}

function start(report) {
  const all = (selector) => [...report.querySelectorAll(selector)];
  const graph = report.querySelector(".graph");
  if (!graph) return;
  const [svg, details] = [graph.querySelector("svg"), report.querySelector(".details")];
  const boxes = [...graph.querySelectorAll(".box")];
  const rows = all("tr[data-group]");
  report.querySelector(".tools").hidden = false;
  const parts_of = new Map();
  for (const part of all("[data-group], [data-groups]")) {
    for (const group of part.dataset.group?.split() ?? part.dataset.groups.split(" ")) {
      if (!parts_of.has(group)) parts_of.set(group, []);
      parts_of.get(group).push(part);
    }
  }
  const of = (group) => parts_of.get(group) ?? [];

  details.append(made("h4", "Details"), made("p", "Choose a kernel in a picture or in the table."));

  // Kernels are lit under the pointer, and as long as they are chosen.
  let chosen = null;
  const light = (group, on) => of(group).forEach((part) => part.classList.toggle("lit", on || group === chosen));
  const group_at = (target) => {
    const part = target.closest("[data-group], [data-groups]");
    return part && (part.dataset.group ?? part.dataset.groups.split(" ")[0]);
  };
  for (const [event, on] of [["mouseover", true], ["mouseout", false]]) {
    report.addEventListener(event, ({ target }) => {
      const group = group_at(target);
      if (group) light(group, on);
    });
  }

  function describe(row, group) {
    const heads = [...row.closest("table").querySelectorAll("th")].map((head) => head.textContent);
    const facts = made("dl");
    [...row.cells].forEach((cell, at) => {
      if (at !== 0 && heads[at] !== "ops") facts.append(made("dt", heads[at]), made("dd", cell.textContent));
    });
    const [ops, code] = [row.querySelector(".ops").cloneNode(true), row.querySelector("pre")];
    const parts = [made("h4", `Kernel ${group}`), ops, facts];
    const edges = all("tr[data-groups]").filter((edge) => edge.dataset.groups.split(" ").includes(group));
    if (edges.length) parts.push(made("h4", "Not fused with its neighbours"));
    for (const edge of edges) {
      const [from, to, costs, why, hint] = [...edge.cells].map((cell) => cell.textContent);
      parts.push(made("p", `${from} → ${to}, ${costs}: ${why}. What to do: ${hint}.`));
    }
    if (code) {
      const copy = code.cloneNode(true);
      parts.push(made("h4", "Generated code"), copy);
    }
    details.replaceChildren(...parts);
  }

  // Scrolls the graph, but not the page, until a box of the kernel is seen.
  function reveal(group) {
    const frame = graph.getBoundingClientRect();
    const places = boxes.filter((box) => box.dataset.group === group).map((box) => box.getBoundingClientRect());
    const is_seen = ({ left, right, top, bottom }) =>
      right > frame.left && left < frame.right && bottom > frame.top && top < frame.bottom;
    if (places.length === 0 || places.some(is_seen)) return;
    const { left, top } = places[0];
    graph.scrollBy(left - frame.left - frame.width / 2, top - frame.top - frame.height / 3);
  }

  function choose(group) {
    const before = chosen;
    chosen = null;
    if (before !== null) light(before, false);
    const row = rows.find((other) => other.dataset.group === group);
    if (!row) return;
    chosen = group;
    light(group, true);
    describe(row, group);
    details.closest(".beside").scrollTop = 0;
    reveal(group);
    const line = report.querySelector(`.line[data-groups~="${group}"]`);
    if (line) line.closest("pre").scrollTop = line.offsetTop - line.closest("pre").offsetTop - 60;
  }

  let was_dragged = false;
  report.addEventListener("click", ({ target }) => {
    const group = group_at(target);
    if (group && !was_dragged && !target.closest("details, tr[data-groups]")) choose(group);
  });

  // One box is a tab stop. Arrow keys go to the nearest box in their direction.
  const middle = (box) => {
    const rect = box.querySelector("rect");
    const number = (name) => Number(rect.getAttribute(name));
    return [number("x") + number("width") / 2, number("y") + number("height") / 2];
  };
  const computed = boxes.filter((box) => box.dataset.group !== undefined);
  for (const box of computed) {
    box.setAttribute("role", "button");
    box.setAttribute("tabindex", "-1");
  }
  computed[0]?.setAttribute("tabindex", "0");
  function focus(box) {
    graph.querySelector(".box[tabindex='0']")?.setAttribute("tabindex", "-1");
    box.setAttribute("tabindex", "0");
    box.focus({ preventScroll: true });
    box.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  function nearest(from, [right, down]) {
    const [x, y] = middle(from);
    let best = null, least = Infinity;
    for (const box of computed) {
      const [dx, dy] = [middle(box)[0] - x, middle(box)[1] - y];
      const along = dx * right + dy * down;
      const distance = along + 3 * Math.abs(dx * down + dy * right);
      if (along > 1 && distance < least) [best, least] = [box, distance];
    }
    return best;
  }
  const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  graph.addEventListener("keydown", (event) => {
    const box = event.target.closest(".box");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in ways && box) {
      const next = nearest(box, ways[event.key]);
      if (next) focus(next);
    } else if ((event.key === "Enter" || event.key === " ") && box) {
      choose(box.dataset.group);
    } else if (event.key === "+" || event.key === "=") {
      zoom(1.25);
    } else if (event.key === "-") {
      zoom(0.8);
    } else if (event.key === "0") {
      fit();
    } else {
      return;
    }
    event.preventDefault();
  });

  // Zoom keeps the point under the pointer, or the middle.
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
  const zooms = { in: () => zoom(1.25), out: () => zoom(0.8), fit };
  all("[data-zoom]").forEach((button) => button.addEventListener("click", zooms[button.dataset.zoom]));
  graph.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const frame = graph.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 0.9 : 1.1, [event.clientX - frame.left, event.clientY - frame.top]);
  }, { passive: false });
  set(Math.max(0.6, Math.min(1, (graph.clientWidth - 2) / width)));

  // A drag moves the picture.
  let held = null;
  graph.addEventListener("pointerdown", (event) => {
    was_dragged = false;
    if (event.button === 0) held = [event.clientX, event.clientY, graph.scrollLeft, graph.scrollTop];
  });
  window.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [dx, dy] = [event.clientX - held[0], event.clientY - held[1]];
    was_dragged ||= Math.abs(dx) + Math.abs(dy) > 4;
    if (was_dragged) graph.scrollTo(held[2] - dx, held[3] - dy);
    graph.classList.toggle("dragged", was_dragged);
  });
  window.addEventListener("pointerup", () => {
    held = null;
    graph.classList.remove("dragged");
    setTimeout(() => { was_dragged = false; });
  });

  // Search dims boxes and hides rows. Enter goes to the first box that was found.
  const [field, found] = [report.querySelector("[data-search]"), report.querySelector("[data-found]")];
  const texts = new Map();
  const text_of = (part) => {
    if (!texts.has(part)) texts.set(part, part.textContent.toLowerCase());
    return texts.get(part);
  };
  let hits = [];
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    hits = boxes.filter((box) => text_of(box).includes(wanted));
    boxes.forEach((box) => box.classList.toggle("dim", !text_of(box).includes(wanted)));
    rows.forEach((row) => { row.hidden = !text_of(row).includes(wanted); });
    found.textContent = wanted ? `${hits.length} of ${boxes.length} boxes` : "";
    hits[0]?.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  field.addEventListener("keydown", (event) => {
    const next = hits.find((box) => box.dataset.group !== undefined);
    if (event.key === "Enter" && field.value && next) focus(next);
  });

  // Colours, by kernel or by time.
  const swatches = new Map(all(".swatch").map((cell) => [cell.closest("tr").dataset.group, cell]));
  const by_kernel = new Map([...swatches].map(([group, cell]) => [group, cell.style.background]));
  const colours = report.querySelector("[data-colours]");
  function paint() {
    const time = (group) => Number(swatches.get(group).dataset[colours.value] ?? 0);
    const most = Math.max(1, ...[...swatches.keys()].map(time));
    for (const group of swatches.keys()) {
      const colour = colours.value === "kernel" ? by_kernel.get(group) : heat(time(group) / most);
      for (const part of of(group)) {
        const shape = part.querySelector("rect, ellipse");
        if (shape) shape.style.fill = colour;
        else if (part.matches(".slice, .swatch, i")) part.style.background = colour;
      }
      const [row, swatch] = [swatches.get(group).closest("tr"), swatches.get(group)];
      swatch.style.background = colour;
      row.querySelector(".bar").style.background = colour;
    }
  }
  const has = (name) => [...swatches.values()].some((cell) => cell.dataset[name] !== undefined);
  for (const [value, name] of Object.entries(CHOICES)) {
    if (value === "kernel" || has(value)) colours.append(new Option(name, value));
  }
  if (has("measured")) colours.value = "measured";
  colours.addEventListener("change", paint);
  for (const cell of swatches.values()) {
    const button = made("button", cell.textContent);
    button.type = "button";
    button.setAttribute("aria-label", `Details of kernel ${cell.textContent}`);
    cell.replaceChildren(button);
  }
  paint();
}

document.querySelectorAll(".report").forEach(start);
