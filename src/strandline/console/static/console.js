// What HTML cannot do: charts, copying, keys, and a word when the console does not answer. Pages work without it.
(function () {
  "use strict";

  const plots = new Map();

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function short(value) {
    if (value === null || value === undefined) return "–";
    const units = ["", "k", "M", "G", "T"];
    let at = 0;
    while (Math.abs(value) >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
    return (Math.abs(value) >= 10 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1)) + units[at];
  }

  function clock(seconds) {
    return new Date(seconds * 1000).toISOString().slice(11, 16);
  }

  function draw(element) {
    const text = element.dataset.chart;
    const data = JSON.parse(text);
    const width = element.clientWidth;
    if (!width || !window.uPlot) return;
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const series = data.series.map((each, at) => ({
      label: each.label, stroke: colour("--chart-" + (at % 5 + 1)), width: 1.5,
      // A line needs two values beside each other.
      points: { show: each.values.filter((value) => value !== null).length < 10, size: 4 },
      value: (plot, value) => short(value) + " " + each.unit,
    }));
    const options = {
      width, height: element.clientHeight - (width < 420 ? 52 : 28), legend: { live: true }, cursor: { y: false, drag: { x: true, y: false } },
      // Times of the server, in UTC: the clock of this machine may be wrong.
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      axes: [{ ...axis, values: (plot, seconds) => seconds.map(clock) }, { ...axis, size: 48, values: (plot, values) => values.map(short) }],
      scales: { y: { range: (plot, low, high) => [Math.min(0, low || 0), high > 0 ? high * 1.08 : 1] } },
      series: [{ value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" }, ...series],
    };
    if (element.closest("[data-brush]")) {
      // A page with a brush keeps the zoom in its URL, so that it can be shared.
      options.cursor.drag.setScale = false;
      options.hooks = { setSelect: [(plot) => {
        const { left, width } = plot.select;
        if (width < 4) return;
        const url = new URL(location.href);
        url.searchParams.set("from", Math.floor(plot.posToVal(left, "x")));
        url.searchParams.set("to", Math.ceil(plot.posToVal(left + width, "x")));
        location.assign(url);
      }] };
    }
    element.replaceChildren();
    plots.set(element, new uPlot(options, [data.times, ...data.series.map((each) => each.values)], element));
  }

  function drawAll() {
    for (const [element, plot] of plots) {
      plot.destroy();
      plots.delete(element);
    }
    document.querySelectorAll("[data-chart]").forEach(draw);
  }

  function lost(isLost) {
    const element = document.getElementById("lost");
    if (element) element.hidden = !isLost;
  }

  let pending = 0;
  window.addEventListener("resize", () => { clearTimeout(pending); pending = setTimeout(drawAll, 150); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  document.addEventListener("DOMContentLoaded", drawAll);
  document.addEventListener("htmx:afterSwap", drawAll);
  document.addEventListener("htmx:sseMessage", drawAll);
  document.addEventListener("htmx:sseMessage", () => {
    // A tab that stays open for a day must not keep every row.
    document.querySelectorAll("[data-rows-max]").forEach((body) => { while (body.rows.length > Number(body.dataset.rowsMax)) body.deleteRow(-1); });
  });
  document.addEventListener("htmx:sendError", () => lost(true));
  document.addEventListener("htmx:sseError", () => lost(true));
  document.addEventListener("htmx:sseOpen", () => lost(false));
  document.addEventListener("htmx:afterOnLoad", () => lost(false));

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) {
      try {
        await navigator.clipboard.writeText(button.dataset.copy);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select and copy it";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    }
    // A menu closes when something else is chosen.
    document.querySelectorAll("details.menu[open]").forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; });
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.querySelectorAll("details.menu[open]").forEach((menu) => { menu.open = false; menu.querySelector("summary").focus(); });
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    if (event.key === "/") {
      const search = document.querySelector("[data-search]");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    }
  });
})();
