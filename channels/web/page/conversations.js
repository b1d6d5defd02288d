// The person's conversations: the list in the sidebar, search, names, and the conversation that the page shows.
// The address names the conversation (`/#<id>`); an address without an id names the first conversation.

import { $, composing, el, post, request } from "/dom.js";
import { words as said } from "/words.js";

const FIRST = "first";
const ID = /^[A-Za-z0-9_-]{1,64}$/;
const rows = new Map(); // each listed conversation as the server sent it, and its list item, by id
let order = []; // ids, newest first
let unread = readUnread();
let asked = 0; // number of the newest request; answers of older requests are ignored
let shownTitle = () => {};

export const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Return the id of the conversation that the page shows. */
export function current() {
  const id = location.hash.slice(1);
  return ID.test(id) ? id : FIRST;
}

/** Call opened(id) for each conversation that the person opens, and title(words) when the shown title changes. */
export function start(opened, titled) {
  if (!location.hash && history.state !== FIRST) {
    const last = localStorage.getItem("conversation") ?? FIRST;
    if (last === FIRST) history.replaceState(FIRST, ""); // a reload shows this conversation, even if another tab has opened a different one
    else history.replaceState(null, "", `#${last}`);
  }
  const open = () => {
    localStorage.setItem("conversation", current());
    if ($("side").matches(":popover-open")) $("side").hidePopover();
    seen();
    opened(current());
  };
  window.addEventListener("hashchange", open);
  window.addEventListener("storage", () => { unread = readUnread(); seen(); });
  document.addEventListener("visibilitychange", seen);
  shownTitle = titled;
  open();
}

export const isListed = (id) => rows.has(id);

/** Open a new conversation. The server creates it with its first message. */
export function openNew() {
  location.hash = newId();
}

// -- news ----------------------------------------------------------------------------------------------------

/** Process news of a conversation: a new message, running work, or another name. */
export function news(one) {
  if (one.role === "assistant" && (one.id !== current() || document.hidden)) {
    unread.add(one.id);
    keepUnread();
  }
  const row = rows.get(one.id);
  if (!row) {
    if (!$("find").value) load();
    return;
  }
  const moves = one.role === "user" && one.ts > row.ts && !$("find").value;
  Object.assign(row, one, { ts: one.role === "assistant" ? row.ts : one.ts ?? row.ts });
  if (moves) order = [one.id, ...order.filter((id) => id !== one.id)];
  show();
}

function readUnread() {
  try {
    return new Set(JSON.parse(localStorage.getItem("unread") ?? "[]"));
  } catch {
    return new Set();
  }
}

const keepUnread = () => localStorage.setItem("unread", JSON.stringify([...unread].slice(-200)));

/** Mark the shown conversation as read. */
function seen() {
  if (!document.hidden && unread.delete(current())) keepUnread();
  show();
}

// -- the list ------------------------------------------------------------------------------------------------

/** Load the first page of the list, or the page that follows the conversation `before`. */
export async function load(before = "") {
  asked += 1;
  const number = asked;
  const query = new URLSearchParams({ q: $("find").value.trim(), ...(before ? { before } : {}) });
  const { ok, told } = await request(`/api/conversations?${query}`);
  if (!ok || number !== asked) return;
  if (!before) order = [];
  for (const one of told.conversations) {
    rows.set(one.id, Object.assign(rows.get(one.id) ?? made(one.id), one));
    if (!order.includes(one.id)) order.push(one.id);
  }
  $("older").hidden = !told.more;
  $("found").textContent = order.length || !$("find").value ? "" : said.nothing_found;
  show();
}

/** Show the list from `rows`. Items stay in place, so that the focus is kept. */
function show() {
  const focused = document.activeElement;
  const items = order.map((id) => rows.get(id).item);
  const shown = [...$("conversations").children];
  if (items.length !== shown.length || items.some((item, at) => item !== shown[at])) {
    $("conversations").replaceChildren(...items);
    focused.focus();
  }
  for (const id of order) label(rows.get(id));
  shownTitle(rows.get(current())?.title ?? "");
}

function made(id) {
  const link = el("a", { href: `#${id}`, dir: "auto" });
  const mark = el("span", { className: "state" });
  const rename = el("button", { type: "button", className: "rename", title: said.rename }, "✎");
  rename.addEventListener("click", () => renaming(rows.get(id)));
  return { id, item: el("li", {}, link, mark, rename), link, mark, rename, title: "", ts: 0, working: false };
}

function label({ id, title, working, link, mark, rename }) {
  const words = title || said.untitled;
  if (link.textContent !== words) link.textContent = words;
  link.title = words;
  if (id === current()) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
  const told = working ? "working" : unread.has(id) ? "unread" : "";
  mark.dataset.state = told;
  mark.textContent = mark.title = { working: said.working, unread: said.unread }[told] ?? "";
  rename.setAttribute("aria-label", `${said.rename}: ${words}`);
}

/** Replace a title by a text field. Enter, or leaving the field, stores the new name; Esc keeps the old one. */
function renaming({ id, title, item, link, rename }) {
  const field = el("input", { value: title, maxLength: 80, "aria-label": said.rename });
  let ended = false;
  const end = async (keeps) => {
    if (ended) return; // removing the field makes it lose the focus
    ended = true;
    const focused = document.activeElement === field;
    field.replaceWith(link);
    item.classList.remove("renaming");
    if (focused) rename.focus();
    const name = field.value.trim();
    if (!keeps || name === title) return;
    const { ok, told } = await post(`/api/conversations/${id}`, { title: name });
    if (ok) news(told);
    else $("found").textContent = said.not_renamed;
  };
  field.addEventListener("blur", () => end(true));
  field.addEventListener("keydown", (event) => {
    if (composing(event) || !["Enter", "Escape"].includes(event.key)) return;
    event.preventDefault(); // Esc closes the field, not the drawer
    event.stopPropagation();
    end(event.key === "Enter");
  });
  link.replaceWith(field);
  item.classList.add("renaming");
  field.select();
}

// -- the sidebar ---------------------------------------------------------------------------------------------

let typed;
$("find").addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(load, 200); });
$("find").addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing || !$("find").value) return;
  event.preventDefault(); // Esc ends the search only: it closes no drawer and stops no answer
  $("find").value = "";
  load();
});
$("older").addEventListener("click", () => load(order.at(-1)));
$("side").addEventListener("toggle", (event) => {
  if (event.newState === "open") (rows.get(current())?.link ?? $("find")).focus();
});
window.matchMedia("(min-width: 900px)").addEventListener("change", () => {
  if ($("side").matches(":popover-open")) $("side").hidePopover();
});
