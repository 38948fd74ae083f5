// What the server says has changed is put in its place.
//
// Markup comes from the server alone, where all text is escaped, and becomes elements in one place (`elements`); the
// page's policy forbids every other. Changes wait in `pending`, the latest of each part. What the reader sees is put in
// for a few milliseconds of each frame, what lies off the screen when the browser has nothing better to do, so that a
// thousand changes make nothing stutter.

const main = document.getElementById("main");
const live = document.getElementById("live");
const FRAME_MS = 8;
const BATCH = 4;
const IDLE_MS = 3000;
const ANNOUNCE_MS = 30000;

const policy = window.trustedTypes
  ? trustedTypes.createPolicy("aliquot", { createHTML: (markup) => markup })
  : { createHTML: (markup) => markup };

// By region: what is new, by key, and the keys in their order where it is another one.
const pending = new Map();
let planned = false;

function elements(markups) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(markups.join(""));
  return [...template.content.children];
}

function receive(changes) {
  for (const [name, told] of Object.entries(changes)) {
    if (!document.getElementById(name)) return location.reload();
    const waits = pending.get(name) ?? { set: new Map(), keys: null };
    for (const [key, markup] of Object.entries(told.set ?? {})) waits.set.set(key, markup);
    waits.keys = told.keys ?? waits.keys;
    pending.set(name, waits);
  }
  plan();
}

function plan() {
  if (planned || !pending.size) return;
  planned = true;
  const seen = [...pending].some(([name, waits]) => urgent(name, waits).length || !waits.set.size);
  // A page that nobody looks at gets no frames, and is up to date all the same when somebody does.
  if (document.hidden) setTimeout(work, 0, urgentOrNot);
  else if (seen) requestAnimationFrame(() => work(urgent));
  else requestIdleCallback(() => work(urgentOrNot), { timeout: IDLE_MS });
}

function urgentOrNot(_, waits) {
  return [...waits.set.keys()].slice(0, BATCH);
}

// Keys of what is on the screen or near it; of regions that are not watched, all.
function urgent(name, waits) {
  const keys = [...waits.set.keys()];
  return (name === watched?.id ? keys.filter((key) => near.has(key)) : keys).slice(0, BATCH);
}

function work(choose) {
  planned = false;
  const until = performance.now() + FRAME_MS;
  const focus = focused();
  for (const [name, waits] of pending) {
    const region = document.getElementById(name);
    const known = new Map([...region.children].map((child) => [child.dataset.key, child]));
    let keys = choose(name, waits);
    while (keys.length && performance.now() < until) {
      putIn(region, known, waits.set, keys);
      keys = choose(name, waits);
    }
    if (waits.set.size) continue;
    if (waits.keys) order(region, known, waits.keys);
    pending.delete(name);
    filter(region);
  }
  restore(focus);
  if (!pending.size) settled();
  plan();
}

function putIn(region, known, set, keys) {
  for (const element of elements(keys.map((key) => set.get(key)))) {
    const old = known.get(element.dataset.key);
    if (old) old.replaceWith(element);
    else region.append(element);
    known.set(element.dataset.key, element);
    watch(region, element);
    for (const time of element.querySelectorAll("time")) tellAgo(time);
  }
  for (const key of keys) set.delete(key);
}

// --- what is on the screen -------------------------------------------------------------------------------------------
const watched = document.querySelector(".nodes");
const near = new Set();
const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!target.isConnected) continue;
      if (isIntersecting) near.add(target.dataset.key);
      else near.delete(target.dataset.key);
    }
    plan();
  },
  { rootMargin: "300px" },
);

function watch(region, element) {
  if (region === watched) observer.observe(element);
}

for (const element of watched?.children ?? []) observer.observe(element);

function order(region, known, keys) {
  const wanted = new Set(keys);
  for (const [key, child] of known) {
    if (wanted.has(key)) continue;
    child.remove();
    near.delete(key);
  }
  let before = region.firstElementChild;
  for (const key of keys) {
    const child = known.get(key);
    if (!child) continue;
    if (child === before) before = before.nextElementSibling;
    else region.insertBefore(child, before);
  }
}

// --- what the reader was doing ---------------------------------------------------------------------------------------
function focused() {
  const active = document.activeElement;
  const part = active?.closest("[data-region] > *");
  return part ? { region: part.parentElement.id, key: part.dataset.key, href: active.getAttribute("href") } : null;
}

function restore(focus) {
  if (!focus || document.activeElement !== document.body) return;
  const region = document.getElementById(focus.region);
  const part = [...region.children].find((child) => child.dataset.key === focus.key);
  const same = [...(part?.querySelectorAll("a[href]") ?? [])].find((a) => a.getAttribute("href") === focus.href);
  same?.focus({ preventScroll: true });
}

function filter(region) {
  const box = document.getElementById(`filter-${region.id}`);
  const wanted = box?.value.trim().toLowerCase();
  if (wanted === undefined) return;
  if (!wanted && !region.querySelector(":scope > [hidden]")) return;
  for (const child of region.children) child.hidden = !(child.dataset.filter ?? "").includes(wanted);
}

for (const box of document.querySelectorAll("input[data-filters]")) {
  box.addEventListener("input", () => filter(document.getElementById(box.dataset.filters)));
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, textarea")) return;
  const box = document.querySelector("input[data-filters]");
  if (box) {
    event.preventDefault();
    box.focus();
  }
});

// --- times -----------------------------------------------------------------------------------------------------------
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function tellAgo(time) {
  const seconds = Math.max(0, (Date.now() - Date.parse(time.dateTime)) / 1000);
  if (Number.isNaN(seconds)) return;
  const [size, unit] = UNITS.find(([least]) => seconds >= least) ?? [1, "s"];
  time.title = time.dateTime;
  time.textContent = `${Math.floor(seconds / size)} ${unit} ago`;
}

function tellTimes() {
  for (const time of document.querySelectorAll("time")) tellAgo(time);
}

// --- what a screen reader is told ------------------------------------------------------------------------------------
let announcedAt = 0;
let announced = "";

function say(text) {
  if (text !== live.textContent) live.textContent = text;
}

function settled() {
  const waiting = document.querySelector('#totals [data-key="waiting"] .big')?.textContent;
  const now = performance.now();
  if (waiting === undefined || waiting === announced || now - announcedAt < ANNOUNCE_MS) return;
  announced = waiting;
  announcedAt = now;
  say(`Live, ${waiting} pods wait`);
}

// --- slices' names ---------------------------------------------------------------------------------------------------
const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);

document.addEventListener("pointerover", (event) => {
  const text = event.target.dataset?.tip;
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = `${Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8)}px`;
});

// --- theme -----------------------------------------------------------------------------------------------------------
const THEMES = ["auto", "light", "dark"];
const button = document.getElementById("theme");

function showTheme() {
  button.textContent = `Theme: ${document.documentElement.dataset.theme ?? "auto"}`;
}

button.addEventListener("click", () => {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length];
  if (next === "auto") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    localStorage.setItem("aliquot-theme", next === "auto" ? "" : next);
  } catch {
    // It is good until the page is left.
  }
  showTheme();
  document.dispatchEvent(new Event("theme"));
});

// --- the stream ------------------------------------------------------------------------------------------------------
function listen() {
  const query = new URLSearchParams({ view: main.dataset.view, since: main.dataset.serial });
  const source = new EventSource(`/page/events?${query}`);
  source.addEventListener("open", () => say("Live"));
  source.addEventListener("message", (event) => receive(JSON.parse(event.data)));
  source.addEventListener("again", () => location.reload());
  source.addEventListener("error", () => {
    say("Connection lost, trying again");
    // The browser tries again by itself unless it was refused: then the page says why.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 5000);
  });
  addEventListener("pagehide", () => source.close());
}

showTheme();
tellTimes();
setInterval(tellTimes, 10000);
if (main.dataset.serial) listen();
