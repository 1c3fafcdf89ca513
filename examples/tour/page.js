// A name under the pointer is lit wherever the same listing has it, and the chapter that is read is marked.
for (const pre of document.querySelectorAll("pre")) {
  pre.innerHTML = pre.innerHTML.replace(/\b([nrv]\d+|acc\d+)\b/g, '<span class="name" data-name="$1">$1</span>');
}
for (const [event, on] of [["mouseover", true], ["mouseout", false]]) {
  document.addEventListener(event, ({ target }) => {
    const { name } = target.dataset;
    if (!name) return;
    target.closest("pre").querySelectorAll(`[data-name="${name}"]`).forEach((one) => one.classList.toggle("lit", on));
  });
}
const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) links.get(target.id).classList.toggle("here", isIntersecting);
}, { rootMargin: "-20% 0px -70% 0px" });
document.querySelectorAll("section").forEach((section) => seen.observe(section));
