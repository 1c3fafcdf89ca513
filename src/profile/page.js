const pictures = ["timeline", "memory"].map((id) => document.getElementById(id)).filter(Boolean);
const whole = 1200;
let from = 0, width = whole;
function show() {
  width = Math.min(whole, Math.max(whole / 100000, width));
  from = Math.min(whole - width, Math.max(0, from));
  for (const picture of pictures) {
    picture.setAttribute("viewBox", `${from} 0 ${width} ${picture.viewBox.baseVal.height}`);
  }
}
function zoom(factor, at) {
  const fixed = from + at * width;
  width *= factor;
  from = fixed - at * width;
  show();
}
const steps = {
  in: () => zoom(0.5, 0.5),
  out: () => zoom(2, 0.5),
  left: () => { from -= width / 4; show(); },
  right: () => { from += width / 4; show(); },
  all: () => { from = 0; width = whole; show(); },
};
for (const button of document.querySelectorAll("[data-zoom]")) {
  button.addEventListener("click", steps[button.dataset.zoom]);
}
for (const picture of pictures) {
  picture.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = picture.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - box.left) / box.width);
  }, { passive: false });
}
document.getElementById("search").addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const row of document.querySelectorAll("tbody tr")) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
  }
});
