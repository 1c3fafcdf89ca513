for (const report of document.querySelectorAll(".report")) {
  const light = (event, on) => {
    const part = event.target.closest("[data-group]");
    if (!part) return;
    for (const same of report.querySelectorAll(`[data-group="${part.dataset.group}"]`)) same.classList.toggle("lit", on);
  };
  report.addEventListener("mouseover", event => light(event, true));
  report.addEventListener("mouseout", event => light(event, false));
}
