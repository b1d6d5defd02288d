// The conversation that the page shows: its messages, the text box, and the event stream from the server.

import { answer, ask, decide, press, rate, rated, rewrite, tools } from "/actions.js";
import * as conversations from "/conversations.js";
import { current, newId } from "/conversations.js";
import { $, button, composing, el, grow, post, request, wait } from "/dom.js";
import { attached, nextFiles } from "/files.js";
import { showModel } from "/models.js";
import { build, goesOn, patch } from "/nodes.js";
import { watch } from "/waiting.js";
import { words as said } from "/words.js";

const list = $("messages");
const scroll = $("scroll");
const text = $("text");
const pending = new Map(); // messages of all conversations that are not yet confirmed, by id
const texts = new Map(); // texts of shown messages, by id
const announced = new Set(); // ids of answers that were read out
const filesOf = new Map(); // files of the next message of each conversation
let files;
let name = "";

// -- the messages --------------------------------------------------------------------------------------------

function bubble(message) {
  const when = new Date(message.ts);
  const body = el("div", { className: "bubble", dir: "auto" }, message.nodes ? build(message.nodes) : message.text);
  if (message.kind === "preview") goesOn(body);
  body.append(...(message.files ?? []).map(attached));
  const clock = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const time = el("time", { dateTime: when.toISOString(), title: when.toLocaleString() }, clock);
  const meta = el("div", { className: "meta" }, time);
  const who = el("span", { className: "unseen" }, message.role === "user" ? said.you : $("name").textContent);
  const item = el("li", {
    className: message.kind === "notice" ? "assistant notice" : message.role,
    dataset: { id: message.id, n: message.n ?? "", day: when.toDateString() },
  }, who, body, meta);
  if (finished(message) && !message.approval && navigator.clipboard) meta.append(button(said.copy, "copy"));
  tools(item, message);
  if ("approval" in message) ask(item, message);
  texts.set(message.id, message.text);
  return item;
}

/** Return true for a complete answer, which does not change any more. */
const finished = (message) => message.role === "assistant" && ["reply", "notice"].includes(message.kind);

async function copy(pressed) {
  const block = pressed.closest(".code");
  const whole = block ? block.querySelector("code").textContent : texts.get(pressed.closest("[data-id]").dataset.id);
  pressed.textContent = await navigator.clipboard.writeText(whole).then(() => said.copied, () => said.not_copied);
  $("announcer").textContent = pressed.textContent;
  await wait(2);
  pressed.textContent = said.copy;
}

function shown(id) {
  return list.querySelector(`[data-id="${CSS.escape(id)}"]`);
}

/** Insert or replace a message in the list. Messages are in the order of their numbers; unconfirmed messages are last. */
function place(message) {
  const item = bubble(message);
  const old = shown(message.id);
  if (old && !old.classList.contains("pending") && (message.changed || old.dataset.n === item.dataset.n)) {
    item.dataset.n = old.dataset.n;
    old.className = item.className;
    patch(old, item);
    return old;
  }
  if (old) old.remove();
  const others = [...list.querySelectorAll("[data-id]")];
  const after = message.n
    ? others.findLast((other) => other.dataset.n !== "" && Number(other.dataset.n) <= message.n)
    : others.at(-1);
  if (after) after.after(item);
  else list.prepend(item);
  $("empty").hidden = true;
  days();
  return item;
}

/** Show the date above the first message of each day. */
function days() {
  let before = "";
  for (const item of [...list.children]) {
    if (!item.dataset.id) item.remove();
    else {
      if (item.dataset.day !== before) item.before(dayOf(item.dataset.day));
      before = item.dataset.day;
    }
  }
}

function dayOf(name) {
  const day = new Date(name);
  const ago = Math.round((new Date(new Date().toDateString()) - day) / 86_400_000);
  const year = day.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" };
  const words = [said.today, said.yesterday][ago]
    ?? day.toLocaleDateString([], { weekday: "long", day: "numeric", month: "long", ...year });
  return el("li", { className: "day" }, words);
}

const isNear = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 120;

/** Change the list. Scroll to the end if the end was visible; otherwise show that there are newer messages. */
function follow(change) {
  const near = isNear();
  const count = list.childElementCount;
  change();
  if (near) toEnd();
  else if (list.childElementCount > count) $("newer").hidden = false;
}

function toEnd() {
  scroll.scrollTop = scroll.scrollHeight;
  $("newer").hidden = true;
}

/** Return a key of an answer. A second answer may replace the first one; it has the same id, but another turn. */
const spoken = (message) => `${message.id} ${message.turn ?? ""}`;

/** Let the screen reader read a finished answer once. Other changes of the conversation are not read. */
function announce(message) {
  if (!finished(message) || announced.has(spoken(message))) return;
  announced.add(spoken(message));
  $("announcer").textContent = shown(message.id).querySelector(".bubble").innerText;
}

/** Show a whole conversation. After a lost connection, the scroll position and an open edit stay. */
function showHistory(messages) {
  const again = list.childElementCount > 0;
  const { activeElement: focused } = document;
  const near = !again || isNear();
  const top = scroll.scrollTop;
  const edited = list.querySelector(".editing");
  texts.clear();
  list.replaceChildren(...messages.map((message) => {
    const item = bubble(message);
    return message.id === edited?.dataset.id ? edited : item;
  }));
  for (const message of pending.values()) if (message.conversation === current() && !shown(message.id)) mark(place(message), "pending");
  for (const message of messages) {
    confirm(message.id);
    if (again) announce(message);
    else if (finished(message)) announced.add(spoken(message)); // messages of an opened conversation are not read out
  }
  days();
  $("empty").hidden = list.childElementCount > 0;
  if (near) toEnd();
  else scroll.scrollTop = top;
  if (edited?.contains(focused)) focused.focus();
}

function mark(item, state, again) {
  item.classList.toggle("pending", state === "pending");
  const meta = item.querySelector(".meta");
  if (state === "pending") meta.textContent = said.sending;
  if (state !== "failed") return;
  const retry = button(said.send_again, "again");
  retry.addEventListener("click", again);
  meta.replaceChildren(`${said.not_sent} `, retry);
}

function connection(state, words) {
  $("connection").dataset.state = state;
  $("connection").textContent = words;
}

// -- sending -------------------------------------------------------------------------------------------------

const say = (words, came = []) => send({ id: newId(), conversation: current(), role: "user", kind: "message", text: words, files: came, ts: Date.now() });

/** Send a message until it is confirmed. A repeated message has the same id, so it counts only once. */
async function send(message) {
  pending.set(message.id, message);
  keepUnsent();
  if (message.conversation === current()) follow(() => mark(place(message), "pending"));
  let sentence = "";
  for (const pause of [0, 1, 2, 4, 8, 15]) {
    await wait(pause);
    const { ok, status, told } = await post("/api/messages", {
      text: message.text,
      clientId: message.id,
      conversation: message.conversation,
      zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
      files: message.files.map((file) => file.id),
    });
    if (ok) {
      confirm(message.id);
      const item = shown(message.id);
      if (item?.classList.contains("pending")) item.replaceWith(bubble(message));
      return;
    }
    sentence = told.error ?? "";
    if (status === 401) { logIn(); break; }
    if (status && status < 500) { message.refused = true; break; }
  }
  keepUnsent();
  const item = shown(message.id);
  if (!item || !pending.has(message.id)) return;
  mark(item, "failed", () => send(message));
  if (sentence) item.querySelector(".meta").prepend(`${sentence} `);
}

function confirm(id) {
  if (pending.delete(id)) keepUnsent();
}

/** Store the unsent messages, so that they survive a reload. */
function keepUnsent() {
  keep("unsent", JSON.stringify([...pending.values()].filter((message) => !message.refused)));
}

/** Store a text, so that it survives a reload of this tab. Do nothing if the browser has no room for it. */
function keep(place, words) {
  try {
    sessionStorage.setItem(place, words);
  } catch {
    sessionStorage.removeItem(place);
  }
}

/** Stop the running answer. */
async function stop() {
  $("stop").disabled = true;
  const failed = await press("stop");
  $("announcer").textContent = failed || said.stopped;
  if (failed) $("stop").disabled = false;
}

function typed() {
  grow(text);
  keep(`draft:${current()}`, text.value);
  $("send").disabled = !(text.value.trim() || files.any()) || !files.ready();
}

$("compose").addEventListener("submit", (event) => {
  event.preventDefault();
  if ($("send").disabled) return;
  const words = text.value;
  const came = files.take();
  text.value = "";
  typed();
  toEnd();
  say(words, came);
});
$("stop").addEventListener("click", () => { stop(); text.focus(); });
$("new").addEventListener("click", () => { conversations.openNew(); text.focus(); });
$("examples").addEventListener("click", (event) => { if (event.target.matches("button")) say(event.target.textContent); });
$("newer").addEventListener("click", () => { toEnd(); text.focus(); });
list.addEventListener("click", ({ target }) => {
  if (target.matches(".copy")) copy(target);
  if (target.matches("[data-choice]")) decide(target);
  if (target.matches(".rate")) rate(target);
  if (target.matches(".edit")) rewrite(target.closest("li"), texts.get(target.closest("li").dataset.id));
});
document.addEventListener("keydown", (event) => {
  const busy = $("working").hidden || event.defaultPrevented || document.querySelector("dialog[open], :popover-open");
  if (event.key !== "Escape" || composing(event) || busy) return;
  stop();
});
scroll.addEventListener("scroll", () => { if (isNear()) $("newer").hidden = true; });
text.addEventListener("input", typed);
text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || composing(event)) return;
  event.preventDefault();
  $("compose").requestSubmit();
});

// -- files of the next message -------------------------------------------------------------------------------

$("attach").addEventListener("click", () => $("chosen").click());
$("chosen").addEventListener("change", (event) => {
  files.add(event.target.files);
  event.target.value = ""; // so that the same file can be chosen again
  text.focus();
});
text.addEventListener("paste", (event) => {
  const { files: pasted, types } = event.clipboardData;
  if (!pasted.length || types.includes("text/plain")) return; // a copied table is pasted as text, not as its picture
  event.preventDefault();
  files.add(pasted);
});
const brings = (event) => event.dataTransfer?.types.includes("Files");
document.addEventListener("dragover", (event) => {
  if (!brings(event)) return;
  event.preventDefault();
  $("drop").hidden = false;
});
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").hidden = true; });
document.addEventListener("drop", (event) => {
  $("drop").hidden = true;
  if (!brings(event)) return;
  event.preventDefault();
  files.add(event.dataTransfer.files);
  text.focus();
});

// -- receiving -----------------------------------------------------------------------------------------------

let stream;

function listen() {
  stream?.close();
  const conversation = current();
  stream = new EventSource(`/api/events?conversation=${conversation}`);
  const on = (name, handle) => stream.addEventListener(name, ({ data }) => handle(data ? JSON.parse(data) : null));
  on("open", () => {
    connection("open", said.connected);
    conversations.load();
    for (const one of filesOf.values()) one.resume();
  });
  watch(stream);
  on("history", ({ messages }) => showHistory(messages));
  on("message", (message) => {
    confirm(message.id);
    follow(() => place(message));
    announce(message);
    if (message.role === "user" || finished(message)) conversations.news({ id: conversation, ts: message.ts, role: message.role });
  });
  on("conversation", conversations.news);
  on("removed", ({ id }) => shown(id)?.remove());
  on("answer", answer);
  on("ratings", (found) => rated(list, found));
  on("reload", listen); // the browser has become an operator's, so it needs other buttons
  on("model", showModel);
  on("working", ({ working }) => {
    $("stop").disabled = false;
    follow(() => { $("working").hidden = !working; });
    if (conversations.isListed(conversation)) conversations.news({ id: conversation, working });
  });
  on("error", () => {
    connection("lost", said.lost);
    $("working").hidden = true;
    // The browser reconnects by itself, except after an error response.
    if (stream.readyState === EventSource.CLOSED) wait(3).then(begin);
  });
}

async function begin() {
  const { ok, status, told } = await request("/api/info");
  if (status === 401) { logIn(); return; }
  if (!ok) {
    connection("lost", said.lost);
    await wait(3);
    begin();
    return;
  }
  name = told.name;
  $("name").textContent = name;
  entitle("");
  listen();
}

// -- conversations -------------------------------------------------------------------------------------------

function entitle(title) {
  document.title = title ? `${title} – ${name}` : name;
}

/** Show a conversation, with the text and the files that were not sent yet. */
function opened(id) {
  list.replaceChildren();
  texts.clear();
  for (const one of ["empty", "working", "newer"]) $(one).hidden = true;
  $("announcer").textContent = "";
  if (!filesOf.has(id)) {
    const shownFiles = $("files").cloneNode();
    filesOf.set(id, { list: shownFiles, ...nextFiles(shownFiles, () => typed(), () => logIn()) });
  }
  files = filesOf.get(id);
  $("files").replaceWith(files.list);
  text.value = sessionStorage.getItem(`draft:${id}`) ?? "";
  typed();
  text.focus();
  if (stream) listen();
}

// -- the token -----------------------------------------------------------------------------------------------

function logIn() {
  connection("waiting", said.logged_out);
  if (!$("login").open) $("login").showModal();
}

$("login").addEventListener("cancel", (event) => event.preventDefault());
$("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { ok, told } = await post("/login", { token: $("token").value });
  $("login-error").textContent = ok ? "" : told.error ?? said.unreachable;
  if (!ok) return;
  $("token").value = "";
  $("login").close();
  begin();
});

conversations.start(opened, entitle);
for (const message of JSON.parse(sessionStorage.getItem("unsent") ?? "[]")) send(message);
begin();
