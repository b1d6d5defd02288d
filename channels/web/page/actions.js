// Actions on a message: decide a question, edit, ask for another answer, rate. None of them appears as a message.

import { current, newId } from "/conversations.js";
import { words as said } from "/words.js";

const CHOICES = ["once", "deny", "chat", "always", "each", "afresh", "again", "renew"];
const LOOKS = { once: "primary", deny: "danger" };
const THUMB = "M3.5 10.5h3.5v9.5H3.5zM7 10.5l3.8-7a2.2 2.2 0 0 1 2.4 2.9l-.9 3.3h6a2 2 0 0 1 2 2.4l-1.3 6.3a2 2 0 0 1-2 1.6H7";
const PATIENCE = 10; // seconds until pressed buttons are enabled again if the message does not change
const ratings = new Map(); // ratings of answers, by the id of the turn
const pressed = new Map(); // functions that receive the server's answer to a press, by the id of the press

export const wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

export function post(path, body) {
  return fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

export function button(words, name) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = name;
  made.textContent = words;
  return made;
}

/** Send a press. Return "", or a sentence that says why it failed. `answered` receives the sentence of a later answer. */
export async function press(choice, of = "", answered = () => {}) {
  const id = newId();
  pressed.set(id, answered);
  wait(60).then(() => pressed.delete(id));
  return request("/api/presses", { clientId: id, choice, of });
}

async function request(path, body) {
  const answer = await post(path, { conversation: current(), ...body }).catch(() => null);
  if (answer?.ok) return "";
  return (await answer?.json().catch(() => null))?.error ?? said.unreachable;
}

/** Pass the answer to a press to the tab in which the button was pressed. */
export function answer({ press: id, text }) {
  pressed.get(id)?.(text);
  pressed.delete(id);
}

// -- questions -----------------------------------------------------------------------------------------------

/** Show a question as a card. If the question is decided, it has no id, and its last line is the decision. */
export function ask(item, message) {
  const { approval: name, choices } = message;
  const card = item.querySelector(".bubble");
  if (choices.includes("again") || choices.includes("renew")) {
    item.append(row(name, choices));
    return;
  }
  item.classList.add(name ? "question" : "decided");
  card.setAttribute("role", "group");
  const [heading] = card.children;
  if (heading) {
    heading.id = `asked ${message.id}`.replaceAll(" ", "-");
    heading.setAttribute("role", "heading");
    heading.setAttribute("aria-level", "2");
    card.setAttribute("aria-labelledby", heading.id);
  }
  for (const block of card.querySelectorAll("pre")) block.tabIndex = 0; // so that the arrow keys scroll it
  if (name) card.append(row(name, choices));
}

function row(name, choices) {
  const row = document.createElement("div");
  row.className = "choices";
  row.dataset.of = name;
  if (!choices.length) row.textContent = said.operators_only;
  for (const choice of CHOICES.filter((one) => choices.includes(one))) {
    const made = button(said[choice], `choice ${LOOKS[choice] ?? ""}`);
    made.dataset.choice = choice;
    row.append(made);
  }
  return row;
}

/** Press a button below a message. The buttons are disabled until the server changes the message. */
export async function decide(button) {
  const row = button.closest(".choices, .meta");
  const over = (sentence) => {
    const lost = document.activeElement === document.body;
    if (!button.isConnected) {
      if (lost) document.getElementById("text").focus();
      return;
    }
    for (const one of row.querySelectorAll("button")) one.disabled = false;
    tell(row, sentence);
    if (lost) button.focus();
  };
  for (const one of row.querySelectorAll("button")) one.disabled = true;
  tell(row, "");
  // If the press counted, the server also changes the message, so its answer need not be shown.
  const failed = await press(button.dataset.choice, row.dataset.of, (sentence) => wait(0.5).then(() => over(sentence)));
  if (failed) over(failed);
  else wait(PATIENCE).then(() => { if (button.disabled) over(""); });
}

function tell(row, sentence) {
  const told = row.querySelector(".told") ?? row.appendChild(document.createElement("p"));
  told.className = "told";
  told.setAttribute("role", "status");
  told.textContent = sentence;
}

// -- answers and one's own messages --------------------------------------------------------------------------

/** Add the buttons below a message. The style shows some of them only below the last one. */
export function tools(item, message) {
  const meta = item.querySelector(".meta");
  if (message.role === "user" && !message.text.startsWith("/")) meta.append(button(said.edit, "edit"));
  if (message.kind !== "reply" || !message.turn) return;
  item.classList.add("reply");
  item.dataset.turn = meta.dataset.of = message.turn;
  const renew = button(said.renew, "renew");
  renew.dataset.choice = "again";
  meta.append(renew, thumb("good"), thumb("bad"));
  showRating(item);
}

function thumb(rating) {
  const made = button("", `rate ${rating}`);
  const sign = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  sign.setAttribute("viewBox", "0 0 24 24");
  sign.setAttribute("aria-hidden", "true");
  path.setAttribute("d", THUMB);
  sign.append(path);
  made.append(sign);
  made.dataset.rating = rating;
  made.title = said[rating];
  made.setAttribute("aria-label", said[`${rating}_label`]);
  return made;
}

function showRating(item) {
  for (const one of item.querySelectorAll(".rate")) {
    one.setAttribute("aria-pressed", ratings.get(item.dataset.turn) === one.dataset.rating);
  }
}

/** Rate an answer. A second press removes the rating. */
export async function rate(thumb) {
  const rating = thumb.getAttribute("aria-pressed") === "true" ? "none" : thumb.dataset.rating;
  tell(thumb.closest(".meta"), await press(rating, thumb.closest("[data-id]").dataset.id));
}

/** Show ratings. The keys of `found` are ids of turns, or ids of answers in the list. */
export function rated(list, found) {
  for (const [key, rating] of Object.entries(found)) {
    const turn = list.querySelector(`[data-id="${CSS.escape(key)}"]`)?.dataset.turn ?? key;
    ratings.set(turn, rating);
    for (const item of list.querySelectorAll(`[data-turn="${CSS.escape(turn)}"]`)) showRating(item);
  }
}

/** Replace the person's own message by a text box. Sending changes the message, Esc keeps it. */
export function rewrite(item, words) {
  const form = document.createElement("form");
  form.className = "rewrite";
  const box = document.createElement("textarea");
  box.dir = "auto";
  box.value = words;
  box.setAttribute("aria-label", said.edited);
  const cancel = button(said.cancel, "cancel");
  const send = button(said.send, "primary");
  send.type = "submit";
  form.append(box, cancel, send);
  const grow = () => {
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight + 2}px`;
  };
  const close = () => {
    form.remove();
    item.classList.remove("editing");
    document.getElementById("text").focus();
  };
  cancel.addEventListener("click", close);
  box.addEventListener("input", grow);
  box.addEventListener("keydown", (event) => {
    if (event.isComposing || event.keyCode === 229 || event.shiftKey || !["Enter", "Escape"].includes(event.key)) return;
    event.preventDefault(); // otherwise Esc would also stop the running answer
    if (event.key === "Escape") close();
    else form.requestSubmit();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    const failed = await request(`/api/messages/${encodeURIComponent(item.dataset.id)}`, { clientId: newId(), text: box.value });
    send.disabled = false;
    if (failed) tell(form, failed);
    else close();
  });
  item.classList.add("editing");
  item.append(form);
  grow();
  box.focus();
}
