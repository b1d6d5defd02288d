// The board: a panel that lists what is open, and a button that shows how many entries wait for this person.

import { press } from "/actions.js";
import { $, button, el, request } from "/dom.js";
import { words as said } from "/words.js";

/** Return true for an entry that needs this person: a request to decide, or the person's own question or promise. */
const isMine = (one) => (["person", "approval"].includes(one.kind) ? one.acts.length > 0 : ["question", "promise"].includes(one.kind) && !one.who);

/** Load the board from the server. Show the number, and the panel if it is open. */
async function refresh() {
  const { ok, told: { loops } } = await request("/api/waiting");
  if (!ok) {
    $("board-told").textContent = $("board").open ? said.unreachable : "";
    return;
  }
  const count = loops.filter(isMine).length;
  $("waits").textContent = count || "";
  $("board-button").ariaLabel = count ? `${said.board} (${count})` : said.board;
  if (!loops.length) $("board-told").textContent = said.board_nothing;
  $("loops").replaceChildren(...loops.map(row));
  // The button with the focus was removed, so the close button gets it.
  if ($("board").open && document.activeElement === document.body) $("board-close").focus();
}

function row(loop) {
  const at = new Date((loop.due || loop.since) * 1000);
  const day = at.toDateString() === new Date().toDateString() ? {} : { dateStyle: "medium" };
  const moment = at.toLocaleString([], { ...day, timeStyle: "short" });
  const time = loop.kind === "job" ? loop.state || moment : loop.due ? `${said.board_until} ${moment}` : moment;
  const item = el("li", { className: isMine(loop) ? "mine" : "" });
  for (const [className, words] of [["kind", `${loop.label} · ${time}`], ["what", loop.what], ["detail", loop.detail], ["why", loop.why], ["why", loop.who]]) {
    if (!words || (className === "detail" && words === loop.what)) continue;
    const facts = { className, dir: "auto", textContent: words };
    item.append(className === "detail" ? el("pre", { ...facts, tabIndex: 0 }) : el("p", facts)); // the keyboard can scroll a detail
  }
  item.append(...loop.acts.map((one) => decides(loop, one)));
  if (loop.conversation) {
    const link = el("a", { href: `#${loop.conversation}`, dir: "auto" }, said.board_open);
    link.addEventListener("click", () => $("board").close());
    item.append(link);
  }
  return item;
}

function decides(loop, { act, label }) {
  const made = button(label, act);
  const tell = (sentence) => { $("board-told").textContent = sentence; };
  made.addEventListener("click", async () => {
    for (const one of made.parentElement.querySelectorAll("button")) one.disabled = true;
    tell("");
    const failed = await press(act, loop.id, tell);
    if (failed) tell(failed);
    soon();
  });
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
