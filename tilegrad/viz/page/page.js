// The list to the left, the state in the middle, what led to it to the right.
"use strict";

const element = (id) => document.getElementById(id);
const view = new GraphView(element("graph"), element("note"));
const chosen = { row: -1, state: 0, states: 1 };
let sections = [];
let showsText = false;
let request = 0;

async function asked(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

function made(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// left

function titleOf(section) {
  if (section.kind === "kernel") return section.name;
  return section.kind === "plan" ? "schedule" : "outside of plans";
}

function list() {
  const showsAll = element("all").checked;
  element("list").replaceChildren(...sections.map((section) => {
    const rows = section.rows.filter((row) => showsAll || row.changes || row.id === chosen.row);
    const folder = made("details", { open: rows.some((row) => row.id === chosen.row) },
      made("summary", {}, titleOf(section), made("span", { className: "calls" }, section.calls)),
      ...rows.map(rowElement));
    return folder;
  }));
}

function rowElement(row) {
  const count = row.isByRules ? `${row.changes}` : row.changes ? "changed" : "";
  const classes = ["row", row.depth ? "within" : "", row.changes ? "" : "same"];
  if (row.id === chosen.row) classes.push("chosen");
  const node = made("div", { className: classes.filter(Boolean).join(" ") },
    made("span", { className: "count" }, count), row.name, " ",
    made("span", { className: "location" }, row.location));
  node.dataset.id = `${row.id}`;
  node.addEventListener("click", () => choose(row.id));
  return node;
}

function marked() {
  const before = element("list").querySelector(".chosen");
  if (before) before.classList.remove("chosen");
  const now = element("list").querySelector(`[data-id="${chosen.row}"]`);
  if (!now) return;
  now.classList.add("chosen");
  now.closest("details").open = true;
  now.scrollIntoView({ block: "nearest" });
}

// middle and right

async function choose(row, state) {
  const number = ++request;
  const found = await asked(`row/${row}`);
  if (number !== request) return;
  Object.assign(chosen, { row, states: found.states, code: found.code });
  marked();
  // At first what the pass made, so that one key tells what each pass does.
  await show(state === undefined ? found.states - 1 : state);
}

async function show(state) {
  const number = ++request;
  const found = await asked(`state/${chosen.row}/${state}`);
  if (number !== request) return;
  chosen.state = state;
  const row = sections.flatMap((section) => section.rows).find(({ id }) => id === chosen.row);
  element("title").textContent = row.name;
  element("position").textContent = state
    ? `after match ${state} of ${chosen.states - 1}: ${found.rule}` : "before";
  element("text").textContent = found.text;
  const drawn = found.nodes && !showsText;
  element("graph").toggleAttribute("hidden", !drawn);
  element("text").hidden = !!drawn;
  if (drawn) view.show(found.nodes);
  else view.clear();
  details(found);
  document.body.dataset.state = `${chosen.row}/${state}`;
  location.replace(`#${chosen.row}/${state}`);
}

function details(found) {
  const parts = [];
  const section = sections.find(({ rows }) => rows.some(({ id }) => id === chosen.row));
  if (found.diff.length) parts.push(heading("Difference"), differences(found.diff));
  if (found.calls.length) parts.push(heading("Your lines"), made("pre", {}, found.calls.join("\n")));
  if (found.code) parts.push(heading(`Rule: ${found.code.file}:${found.code.line}`), code(found.code));
  if (chosen.code && (!found.code || chosen.code.first !== found.code.first)) {
    parts.push(heading(`Called at ${chosen.code.file}:${chosen.code.line}`), code(chosen.code));
  }
  if (section && section.source) {
    parts.push(heading(`Text of ${section.name}`), made("pre", { id: "source" }, section.source));
  }
  element("details").replaceChildren(...parts);
}

const heading = (text) => made("h2", {}, text);
const code = (piece) => made("pre", {}, piece.text);

function differences(lines) {
  const kinds = { "-": "removed", "+": "added" };
  return made("pre", { id: "diff" }, ...lines.map((line) =>
    made("span", { className: kinds[line[0]] || "kept" }, `${line}\n`)));
}

// keys, buttons, splitters

function step(by) {
  const rows = [...element("list").querySelectorAll("details[open] .row, details:not([open]) .row")];
  const at = rows.findIndex((row) => row.dataset.id === `${chosen.row}`);
  const next = rows[at + by];
  if (next) choose(Number(next.dataset.id));
}

function turn(by) {
  const next = chosen.state + by;
  if (next >= 0 && next < chosen.states) show(next);
}

const actions = {
  ArrowUp: () => step(-1),
  ArrowDown: () => step(1),
  ArrowLeft: () => turn(-1),
  ArrowRight: () => turn(1),
  t: () => { showsText = !showsText; show(chosen.state); },
  f: () => view.fit(),
};

document.addEventListener("keydown", (event) => {
  const action = actions[event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  action();
});
element("earlier").addEventListener("click", actions.ArrowLeft);
element("later").addEventListener("click", actions.ArrowRight);
element("view").addEventListener("click", actions.t);
element("fit").addEventListener("click", actions.f);
element("all").addEventListener("change", () => { list(); marked(); });

for (const splitter of document.querySelectorAll(".splitter")) {
  splitter.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    const pane = element(splitter.dataset.before);
    const width = pane.offsetWidth;
    const direction = splitter.dataset.before === "list" ? 1 : -1;
    const drag = (moved) => {
      pane.style.width = `${Math.max(120, width + direction * (moved.clientX - event.clientX))}px`;
    };
    document.addEventListener("pointermove", drag);
    document.addEventListener(
      "pointerup", () => document.removeEventListener("pointermove", drag), { once: true });
  });
}

async function begin() {
  sections = await asked("sections");
  const [row, state] = (location.hash.slice(1) || "-1").split("/").map(Number);
  const rows = sections.flatMap((section) => section.rows);
  if (!rows.length) {
    view.say("Nothing was rewritten.");
    return;
  }
  const first = rows.find(({ id }) => id === row) || rows.find(({ changes }) => changes) || rows[0];
  chosen.row = first.id;
  list();
  await choose(first.id, first.id === row && state >= 0 ? state : undefined);
}

begin().catch((error) => view.say(`The page could not be loaded: ${error.message}`));
