import { render } from "/markdown.js";

const $ = (id) => document.getElementById(id);
const list = $("messages");
const scroll = $("scroll");
const text = $("text");
const pending = new Map(); // messages not yet confirmed, by id

// -- what is shown -------------------------------------------------------------------------------------------

function bubble(message) {
  const item = document.createElement("li");
  item.className = message.kind === "notice" ? "assistant notice" : message.role;
  item.dataset.id = message.id;
  item.dataset.n = message.n ?? "";
  const body = document.createElement("div");
  body.className = "bubble";
  body.dir = "auto";
  if (message.role === "user") body.textContent = message.text;
  else body.append(render(message.text));
  const meta = document.createElement("div");
  meta.className = "meta";
  const when = new Date(message.ts);
  meta.title = when.toLocaleString();
  meta.textContent = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  item.append(body, meta);
  if (message.approval) item.append(choices(message.approval, message.choices));
  return item;
}

/** Buttons for what waits for an approval; each says a command, so that whoever presses is judged like whoever writes. */
function choices(name, allowed) {
  const row = document.createElement("div");
  row.className = "choices";
  if (!allowed.length) row.textContent = "Only an operator can decide this. The link that Shipmate prints makes this browser an operator's.";
  for (const [choice, label, command] of [
    ["once", "Allow once", `/approve ${name} once`],
    ["deny", "Deny", `/deny ${name}`],
    ["chat", "Allow in this chat", `/approve ${name} chat`],
    ["always", "Always", `/approve ${name} always`],
    ["again", "Try again", `/retry ${name}`],
  ]) {
    if (!allowed.includes(choice)) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => {
      row.remove();
      send({ id: newId(), role: "user", kind: "message", text: command, ts: Date.now() });
    });
    row.append(button);
  }
  return row;
}

function shown(id) {
  return list.querySelector(`[data-id="${CSS.escape(id)}"]`);
}

/** Put a message in its place: messages have numbers, those not yet confirmed stand last. */
function place(message) {
  const item = bubble(message);
  const old = shown(message.id);
  if (old && !old.classList.contains("pending") && old.dataset.n === item.dataset.n) {
    old.replaceWith(item);
    return item;
  }
  if (old) old.remove();
  const after = message.n
    ? [...list.children].findLast((other) => other.dataset.n !== "" && Number(other.dataset.n) <= message.n)
    : list.lastElementChild;
  if (after) after.after(item);
  else list.prepend(item);
  $("empty").hidden = true;
  return item;
}

function follow(change) {
  const near = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 120;
  change();
  if (near) scroll.scrollTop = scroll.scrollHeight;
}

function showHistory(messages) {
  list.setAttribute("aria-busy", "true"); // an old conversation is not read out
  list.replaceChildren(...messages.map(bubble));
  for (const message of pending.values()) if (!shown(message.id)) mark(place(message), "pending");
  for (const message of messages) pending.delete(message.id);
  $("empty").hidden = list.childElementCount > 0;
  scroll.scrollTop = scroll.scrollHeight;
  list.removeAttribute("aria-busy");
}

function mark(item, state, again) {
  item.classList.toggle("pending", state === "pending");
  const meta = item.querySelector(".meta");
  if (state === "pending") meta.textContent = "sending…";
  if (state !== "failed") return;
  const retry = document.createElement("button");
  retry.type = "button";
  retry.textContent = "Send again";
  retry.addEventListener("click", again);
  meta.replaceChildren("Not sent. ", retry);
}

function connection(state, words) {
  $("connection").dataset.state = state;
  $("connection").textContent = words;
}

// -- what is said --------------------------------------------------------------------------------------------

function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

function post(path, body) {
  return fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** Send a message until it is confirmed; the same id makes a repeated one count once. */
async function send(message) {
  pending.set(message.id, message);
  follow(() => mark(place(message), "pending"));
  let sentence = "";
  for (const pause of [0, 1, 2, 4, 8, 15]) {
    await wait(pause);
    const answer = await post("/api/messages", { text: message.text, clientId: message.id }).catch(() => null);
    if (answer?.ok) return confirmed(message);
    sentence = (await answer?.json().catch(() => null))?.error ?? "";
    if (answer?.status === 401) { logIn(); break; }
    if (answer && answer.status < 500) break;
  }
  const item = shown(message.id);
  if (!item || !pending.has(message.id)) return undefined;
  mark(item, "failed", () => send(message));
  if (sentence) item.querySelector(".meta").prepend(`${sentence} `);
  return undefined;
}

function confirmed(message) {
  pending.delete(message.id);
  const item = shown(message.id);
  if (item?.classList.contains("pending")) item.replaceWith(bubble(message));
}

function grow() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight + 2}px`;
  $("send").disabled = !text.value.trim();
}

$("compose").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = text.value;
  if (!words.trim()) return;
  text.value = "";
  grow();
  scroll.scrollTop = scroll.scrollHeight;
  send({ id: newId(), role: "user", kind: "message", text: words, ts: Date.now() });
});
text.addEventListener("input", grow);
text.addEventListener("keydown", (event) => {
  // While an input method is choosing characters, Enter belongs to it.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  $("compose").requestSubmit();
});

// -- what is heard -------------------------------------------------------------------------------------------

let stream;

function listen() {
  stream?.close();
  stream = new EventSource("/api/events");
  stream.addEventListener("open", () => connection("open", "Connected"));
  stream.addEventListener("history", (event) => showHistory(JSON.parse(event.data).messages));
  stream.addEventListener("message", (event) => {
    const message = JSON.parse(event.data);
    pending.delete(message.id);
    follow(() => place(message));
  });
  stream.addEventListener("reload", listen); // who has become an operator sees other buttons
  stream.addEventListener("working", (event) => {
    follow(() => { $("working").hidden = !JSON.parse(event.data).working; });
  });
  stream.addEventListener("error", () => {
    connection("lost", "Connection lost. Trying again…");
    $("working").hidden = true;
    // A browser tries again by itself unless the server answered with an error.
    if (stream.readyState === EventSource.CLOSED) wait(3).then(begin);
  });
}

async function begin() {
  const answer = await fetch("/api/info").catch(() => null);
  if (answer?.status === 401) { logIn(); return; }
  if (!answer?.ok) {
    connection("lost", "Connection lost. Trying again…");
    await wait(3);
    begin();
    return;
  }
  const info = await answer.json();
  document.title = info.name;
  $("name").textContent = info.name;
  $("model").textContent = info.model;
  $("model").hidden = !info.model;
  listen();
}

// -- the token -----------------------------------------------------------------------------------------------

function logIn() {
  connection("waiting", "Not logged in");
  if (!$("login").open) $("login").showModal();
}

$("login").addEventListener("cancel", (event) => event.preventDefault());
$("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await post("/login", { token: $("token").value }).catch(() => null);
  if (answer?.ok) {
    $("token").value = "";
    $("login-error").textContent = "";
    $("login").close();
    begin();
    return;
  }
  const said = await answer?.json().catch(() => null);
  $("login-error").textContent = said?.error ?? "Shipmate cannot be reached.";
});

grow();
text.focus();
begin();
