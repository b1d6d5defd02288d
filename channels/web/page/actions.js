// Actions on a message: decide a question, edit, ask for another answer, rate. No action appears as a message.

import { current, newId } from "/conversations.js";
import { $, button, composing, el, grow, post, wait } from "/dom.js";
import { words as said } from "/words.js";

const CHOICES = ["once", "deny", "chat", "always", "each", "afresh", "again", "renew"];
const LOOKS = { once: "primary", deny: "danger" };
const PATIENCE = 10; // seconds until pressed buttons are enabled again if the message does not change
const ratings = new Map(); // ratings of answers, by the id of the turn
const pressed = new Map(); // functions that receive the server's answer to a press, by the id of the press

/** Send a press. Return "", or a sentence that says why it failed. `answered` receives the sentence of a later answer. */
export async function press(choice, of = "", answered = () => {}) {
  const id = newId();
  pressed.set(id, answered);
  wait(60).then(() => pressed.delete(id));
  return send("/api/presses", { clientId: id, choice, of });
}

async function send(path, body) {
  const { ok, told } = await post(path, { conversation: current(), ...body });
  return ok ? "" : told.error ?? said.unreachable;
}

/** Pass the answer to a press to the tab in which the button was pressed. */
export function answer({ press: id, text }) {
  pressed.get(id)?.(text);
  pressed.delete(id);
}

// -- questions -----------------------------------------------------------------------------------------------

/** Show a question as a card. If the question is decided, it has no id, and its last line is the decision. */
export function ask(item, { id, approval, choices }) {
  if (choices.includes("again") || choices.includes("renew")) {
    item.append(row(approval, choices));
    return;
  }
  const card = item.querySelector(".bubble");
  item.classList.add(approval ? "question" : "decided");
  card.setAttribute("role", "group");
  const [heading] = card.children;
  if (heading) {
    heading.id = `asked ${id}`.replaceAll(" ", "-");
    heading.setAttribute("role", "heading");
    heading.setAttribute("aria-level", "2");
    card.setAttribute("aria-labelledby", heading.id);
  }
  for (const block of card.querySelectorAll("pre")) block.tabIndex = 0; // so that the arrow keys scroll the block
  if (approval) card.append(row(approval, choices));
}

function row(of, choices) {
  const buttons = CHOICES.filter((choice) => choices.includes(choice)).map((choice) => {
    const made = button(said[choice], `choice ${LOOKS[choice] ?? ""}`);
    made.dataset.choice = choice;
    return made;
  });
  return el("div", { className: "choices", dataset: { of } }, ...(choices.length ? buttons : [said.operators_only]));
}

/** Press a button below a message. The buttons are disabled until the server changes the message. */
export async function decide(button) {
  const row = button.closest(".choices, .meta");
  const enable = (enabled) => { for (const one of row.querySelectorAll("button")) one.disabled = !enabled; };
  const over = (sentence) => {
    const lost = document.activeElement === document.body;
    if (!button.isConnected) {
      if (lost) $("text").focus();
      return;
    }
    enable(true);
    tell(row, sentence);
    if (lost) button.focus();
  };
  enable(false);
  tell(row, "");
  // If the press counted, the server also changes the message, so its answer need not be shown.
  const failed = await press(button.dataset.choice, row.dataset.of, (sentence) => wait(0.5).then(() => over(sentence)));
  if (failed) over(failed);
  else wait(PATIENCE).then(() => { if (button.disabled) over(""); });
}

function tell(row, sentence) {
  const told = row.querySelector(".told") ?? row.appendChild(el("p", { className: "told", role: "status" }));
  told.textContent = sentence;
}

// -- answers and one's own messages --------------------------------------------------------------------------

/** Add the buttons below a message. The style sheet shows some buttons only below the last message. */
export function tools(item, { role, kind, text, turn }) {
  const meta = item.querySelector(".meta");
  if (role === "user" && !text.startsWith("/")) meta.append(button(said.edit, "edit"));
  if (kind !== "reply" || !turn) return;
  item.classList.add("reply");
  item.dataset.turn = meta.dataset.of = turn;
  const renew = button(said.renew, "renew");
  renew.dataset.choice = "again";
  meta.append(renew, thumb("good"), thumb("bad"));
  showRating(item);
}

const thumb = (rating) => el(
  "button",
  { type: "button", className: `rate ${rating}`, title: said[rating], "aria-label": said[`${rating}_label`], dataset: { rating } },
  $("thumb").content.cloneNode(true),
);

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
  const box = el("textarea", { dir: "auto", value: words, "aria-label": said.edited });
  const cancel = button(said.cancel, "cancel");
  const submit = el("button", { type: "submit", className: "primary" }, said.send);
  const form = el("form", { className: "rewrite" }, box, cancel, submit);
  const close = () => {
    form.remove();
    item.classList.remove("editing");
    $("text").focus();
  };
  cancel.addEventListener("click", close);
  box.addEventListener("input", () => grow(box));
  box.addEventListener("keydown", (event) => {
    if (composing(event) || event.shiftKey || !["Enter", "Escape"].includes(event.key)) return;
    event.preventDefault(); // otherwise Esc would also stop the running answer
    if (event.key === "Escape") close();
    else form.requestSubmit();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    const failed = await send(`/api/messages/${encodeURIComponent(item.dataset.id)}`, { clientId: newId(), text: box.value });
    submit.disabled = false;
    if (failed) tell(form, failed);
    else close();
  });
  item.classList.add("editing");
  item.append(form);
  grow(box);
  box.focus();
}
