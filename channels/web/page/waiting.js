// The board of what waits for the person: a panel, and the number on its button.

import { button, press } from "/actions.js";
import { words as said } from "/words.js";

const $ = (id) => document.getElementById(id);
// Return true for an entry that needs this person: a request to decide, or the person's own question or promise.
const isMine = (one) => (["person", "approval"].includes(one.kind) ? one.acts.length > 0 : ["question", "promise"].includes(one.kind) && !one.who);

/** Load the board from the server. Show the number, and the panel if it is open. */
async function refresh() {
  const answer = await fetch("/api/waiting").then((one) => (one.ok ? one.json() : null), () => null);
  if (!answer) {
    $("board-told").textContent = $("board").open ? said.unreachable : "";
    return;
  }
  const count = answer.loops.filter(isMine).length;
  $("waits").textContent = count || "";
  $("board-button").ariaLabel = count ? `${said.board} (${count})` : said.board;
  if (!answer.loops.length) $("board-told").textContent = said.board_nothing;
  $("loops").replaceChildren(...answer.loops.map(row));
  // The button with the focus was removed, so the close button gets it.
  if ($("board").open && document.activeElement === document.body) $("board-close").focus();
}

function row(loop) {
  const item = document.createElement("li");
  item.className = isMine(loop) ? "mine" : "";
  const at = new Date((loop.due || loop.since) * 1000);
  const day = at.toDateString() === new Date().toDateString() ? {} : { dateStyle: "medium" };
  const moment = at.toLocaleString([], { ...day, timeStyle: "short" });
  const time = loop.kind === "job" ? loop.state || moment : loop.due ? `${said.board_until} ${moment}` : moment;
  item.append(
    line("kind", `${loop.label} · ${time}`),
    line("what", loop.what),
    ...(loop.detail && loop.detail !== loop.what ? [line("detail", loop.detail, "pre")] : []),
    ...(loop.why ? [line("why", loop.why)] : []),
    ...(loop.who ? [line("why", loop.who)] : []),
    ...loop.acts.map((one) => decides(loop, one)),
  );
  if (loop.conversation) {
    const link = line("", said.board_open, "a");
    link.href = `#${loop.conversation}`;
    link.addEventListener("click", () => $("board").close());
    item.append(link);
  }
  return item;
}

function decides(loop, { act, label }) {
  const made = button(label, act);
  made.addEventListener("click", async () => {
    for (const one of made.parentElement.querySelectorAll("button")) one.disabled = true;
    $("board-told").textContent = await press(act, loop.id, (sentence) => { $("board-told").textContent = sentence; });
    soon();
  });
  return made;
}

function line(name, words, tag = "p") {
  const made = document.createElement(tag);
  made.className = name;
  made.dir = "auto";
  made.textContent = words;
  if (tag === "pre") made.tabIndex = 0; // so that the keyboard can scroll it
  return made;
}

/** Load the board again a second after the last news, because a turn ends shortly after its answer. */
export function watch(stream) {
  for (const name of ["open", "message", "working"]) stream.addEventListener(name, soon);
}

let timer;

function soon() {
  clearTimeout(timer);
  timer = setTimeout(refresh, 1000);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(); });
$("board-button").addEventListener("click", () => {
  $("board-told").textContent = "";
  $("board").showModal();
  refresh();
});
$("board-close").addEventListener("click", () => $("board").close());
$("board").addEventListener("click", (event) => { if (event.target === $("board")) $("board").close(); });
