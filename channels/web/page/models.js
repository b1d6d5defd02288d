// Shows the model and its reasoning effort in this conversation. An operator can choose both; others only see the name.

import { press } from "/actions.js";
import { $, button, composing } from "/dom.js";
import { words as said } from "/words.js";

const OTHER = "other";
const EFFORTS = { low: said.low, medium: said.medium, high: said.high };
let latest;

/** Show the model's name. Also fill the list of example messages; the demo model has its own examples. */
export function showModel(answering) {
  const { model, demo, models } = latest = answering;
  Object.assign($("model"), { textContent: demo ? said.demo : model, title: model, hidden: !model, disabled: !models.length });
  $("examples").classList.toggle("demo", demo);
  $("examples").replaceChildren(...(demo ? said.examples.split("|") : said.starters).map((words) => button(words, "")));
  showMenus();
}

function showMenus() {
  const { model, effort, models, efforts } = latest;
  const names = [...new Set([model, ...models])].map((name) => [name, name]);
  fill($("model-name"), [["default", said.default_model], ...names, [OTHER, said.other_model]], model);
  fill($("model-effort"), [["default", said.default_effort], ...efforts.map((name) => [name, EFFORTS[name] ?? name])], effort || "default");
  $("model-effort").parentElement.hidden = !efforts.length;
  $("model-other").hidden = true;
}

function fill(menu, choices, chosen) {
  menu.replaceChildren(...choices.map(([value, words]) => new Option(words, value, false, value === chosen)));
}

async function choose(choice, value) {
  const tell = (sentence) => {
    $("model-told").textContent = sentence;
    showMenus(); // after a refusal, show the current choice again
  };
  $("model-told").textContent = "";
  const failed = await press(choice, value, tell);
  if (failed) tell(failed);
}

$("model").addEventListener("click", () => {
  $("model-told").textContent = "";
  $("models").showModal();
});
$("model-name").addEventListener("change", ({ target }) => {
  $("model-other").hidden = target.value !== OTHER;
  if (target.value === OTHER) $("model-other").querySelector("input").focus();
  else choose("model", target.value);
});
$("model-effort").addEventListener("change", ({ target }) => choose("effort", target.value));
$("model-other").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || composing(event)) return;
  event.preventDefault(); // otherwise Enter would close the dialog
  if (event.target.value.trim()) choose("model", event.target.value.trim());
});
