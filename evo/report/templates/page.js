"use strict";

// Theme: the browser's own unless its reader chose one; some browsers forbid local files to remember it.
const remembered = {
  get() { try { return localStorage.getItem("evo-theme") ?? ""; } catch { return ""; } },
  set(value) { try { localStorage.setItem("evo-theme", value); } catch { /* chosen for this visit only */ } },
};
function applyTheme(value) {
  if (value) document.documentElement.dataset.theme = value;
  else delete document.documentElement.dataset.theme;
}
document.addEventListener("change", (event) => {
  if (event.target.name !== "theme") return;
  applyTheme(event.target.value);
  remembered.set(event.target.value);
});

// The walk: one step at a time, the one that the address names, else the champion.
const steps = () => [...document.querySelectorAll(".steps article")];
function walk(moveFocus) {
  const all = steps();
  if (!all.length) return;
  const named = all.find((step) => `#${step.id}` === location.hash);
  const current = named ?? all.find((step) => !step.hidden) ?? all[0];
  for (const step of all) step.hidden = step !== current;
  for (const link of document.querySelectorAll("a.step")) {
    if (link.getAttribute("href") === `#${current.id}`) link.setAttribute("aria-current", "step");
    else link.removeAttribute("aria-current");
  }
  if (named && moveFocus) {
    named.querySelector("h3").focus({ preventScroll: true });
    document.getElementById("walk").scrollIntoView();
  }
}
addEventListener("hashchange", () => walk(true));
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || !event.target.closest?.(".steps article")) return;
  if (event.target.closest("pre, .scroll")) return; // there the arrows scroll
  const way = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  const link = way && event.target.closest("article").querySelector(`a[rel=${way}]`);
  if (link) { event.preventDefault(); link.click(); }
});

// Sorting: numbers as numbers, the greatest first; what has no figure comes last.
let sorted = null;
function sortBy(column, descending) {
  const table = document.getElementById("question-table");
  if (!table) return;
  const value = (row) => {
    const text = row.cells[column].textContent.trim();
    const number = text === "–" ? -Infinity : Number(text);
    return Number.isNaN(number) ? text.toLowerCase() : number;
  };
  const body = table.tBodies[0];
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const rows = [...body.rows].sort((a, b) => (descending ? -1 : 1) * order(value(a), value(b)));
  body.append(...rows);
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    if (head.hasAttribute("aria-sort")) {
      head.setAttribute("aria-sort", place === column ? (descending ? "descending" : "ascending") : "none");
    }
  });
  sorted = { column, descending };
}
document.addEventListener("click", (event) => {
  const head = event.target.closest?.(".sortable th");
  if (!head || !event.target.closest("button")) return;
  const words = head.cellIndex < 3;
  const before = head.getAttribute("aria-sort");
  sortBy(head.cellIndex, before === "none" ? !words : before === "ascending");
});

// Live: ask again, and put the new content where the old one was, with what its reader had opened, sorted and focused.
const every = Number(document.documentElement.dataset.live ?? 0);
let tag = null;
function renew(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html").getElementById("main");
  const main = document.getElementById("main");
  const focused = document.activeElement?.id;
  const shown = steps().find((step) => !step.hidden)?.id;
  const followed = shown === steps()[0]?.id && location.hash !== `#${shown}`;
  const open = [...main.querySelectorAll("details")].map((each) => [each.querySelector("summary").textContent, each.open]);
  const offset = scrollY;
  main.replaceChildren(...fresh.childNodes);
  const were = new Map(open);
  for (const each of main.querySelectorAll("details")) {
    each.open = were.get(each.querySelector("summary").textContent) ?? each.open;
  }
  if (shown && !followed) for (const step of steps()) step.hidden = step.id !== shown;
  if (steps().every((step) => step.hidden)) steps().forEach((step) => { step.hidden = false; });
  walk(false);
  if (sorted) sortBy(sorted.column, sorted.descending);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  scrollTo(0, offset);
}
async function ask() {
  const pulse = document.getElementById("pulse");
  try {
    const answer = await fetch(location.pathname, { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 200) {
      const first = tag === null;
      tag = answer.headers.get("ETag");
      const html = await answer.text();
      if (!first) renew(html);
      pulse.textContent = `live; changed at ${new Date().toLocaleTimeString()}`;
    } else if (answer.status !== 304) {
      pulse.textContent = `the server answers ${answer.status}`;
    }
  } catch {
    pulse.textContent = "the server has ended; this is how the runs stood";
  }
  setTimeout(ask, every);
}

const chosen = remembered.get();
applyTheme(chosen);
for (const each of document.getElementsByName("theme")) each.checked = each.value === chosen;
walk(false);
if (every) ask();
