// Elements of the page, timers, and requests to the server.

export const $ = (id) => document.getElementById(id);

export const wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

/** Create an element. `facts` are its properties; a name with a hyphen becomes an attribute. */
export function el(tag, { dataset, ...facts } = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(facts)) {
    if (name.includes("-")) made.setAttribute(name, value);
    else made[name] = value;
  }
  Object.assign(made.dataset, dataset);
  made.append(...children);
  return made;
}

export const button = (words, name) => el("button", { type: "button", className: name }, words);

/** Return true while an input method is choosing characters. Then Enter and Esc belong to the input method. */
export const composing = (event) => event.isComposing || event.keyCode === 229;

/** Give a text box the height of its text. */
export function grow(box) {
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight + 2}px`;
}

/** Return the server's status and JSON. The status is 0 if the server cannot be reached. */
export async function request(path, how = {}) {
  const answer = await fetch(path, how).catch(() => null);
  const told = (await answer?.json().catch(() => null)) ?? {};
  return { ok: answer?.ok ?? false, status: answer?.status ?? 0, told };
}

export const post = (path, body) => request(path, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
});
