// Chosen rows of a table, and filters that are kept. The pages work without it.
(function () {
  "use strict";

  // Rows that are chosen stay so when the table renews itself.
  let chosen = new Set();
  function boxes() { return [...document.querySelectorAll(".rows input[type=checkbox][form]")]; }
  function countChosen() {
    const form = document.querySelector("[data-chosen]");
    if (!form) return;
    chosen = new Set(boxes().filter((box) => box.checked).map((box) => box.value));
    form.querySelector("[data-chosen-words]").textContent = chosen.size ? chosen.size + " chosen:" : "None chosen:";
    form.querySelectorAll("[data-needs]").forEach((button) => { button.disabled = button.dataset.needs === "1" ? chosen.size !== 1 : chosen.size === 0; });
    const all = document.querySelector("[data-choose-all]");
    if (all) { all.hidden = false; all.checked = chosen.size > 0 && chosen.size === boxes().length; }
  }
  function chooseAgain() {
    boxes().forEach((box) => { box.checked = chosen.has(box.value); });
    countChosen();
  }
  document.addEventListener("DOMContentLoaded", countChosen);
  document.addEventListener("htmx:afterSwap", chooseAgain);
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-choose-all]")) boxes().forEach((box) => { box.checked = event.target.checked; });
    if (event.target.matches(".rows input[type=checkbox]")) countChosen();
  });

  // Filters with a name stay in this browser: they may tell what the visitor looks for.
  const FILTERS = "strandline.filters";
  function filters() {
    try { return JSON.parse(localStorage.getItem(FILTERS)) || {}; } catch { return {}; }
  }
  function keepFilters(found) {
    try { localStorage.setItem(FILTERS, JSON.stringify(found)); } catch { return false; }
    return true;
  }
  function showFilters() {
    const place = document.querySelector("[data-filters]");
    if (!place) return;
    const mine = filters()[place.dataset.filters] || {};
    const list = place.querySelector("ul");
    list.replaceChildren(...Object.entries(mine).map(([name, query]) => {
      const item = document.createElement("li"), link = document.createElement("a"), gone = document.createElement("button");
      link.textContent = name;
      link.href = "?" + query;
      if (new URLSearchParams(location.search).toString() === query) link.setAttribute("aria-current", "true");
      gone.type = "button";
      gone.className = "quiet";
      gone.textContent = "Forget";
      gone.setAttribute("aria-label", "Forget the filter " + name);
      gone.addEventListener("click", () => {
        const all = filters();
        delete all[place.dataset.filters][name];
        keepFilters(all);
        showFilters();
      });
      item.append(link, gone);
      return item;
    }));
    place.hidden = false;
  }
  document.addEventListener("DOMContentLoaded", showFilters);
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("[data-keep-filter]");
    if (!form) return;
    event.preventDefault();
    const name = form.elements.name.value.trim(), place = form.closest("[data-filters]");
    const query = new URLSearchParams(new FormData(document.querySelector("[data-filter-form]")));
    for (const [key, value] of [...query]) if (!value) query.delete(key);
    const all = filters();
    all[place.dataset.filters] = { ...all[place.dataset.filters], [name]: query.toString() };
    if (keepFilters(all)) location.assign("?" + query);
  });
})();
