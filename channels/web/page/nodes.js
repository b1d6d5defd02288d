// Builds DOM nodes of messages. The server has parsed the Markdown. Texts become text nodes, and only the tags
// and links named here are created.

import { button, el } from "/dom.js";
import { words as said } from "/words.js";

const TAGS = new Set(["p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "span", "hr", "br",
  "table", "thead", "tbody", "tr", "th", "td", "em", "strong", "s"]);

/** Return the DOM nodes of a message. Each given node is a text or [tag, attributes, ...children]. */
export function build(nodes) {
  const out = document.createDocumentFragment();
  out.append(...nodes.map(made));
  // The browser chooses each block's direction, because an Arabic paragraph may follow an English one.
  for (const block of out.children) block.dir = "auto";
  return out;
}

/** Replace the mark at the end of an unfinished answer by an animated sign. */
export function goesOn(body) {
  let end = body;
  while (end.lastChild) end = end.lastChild;
  if (end.nodeType !== Node.TEXT_NODE || !end.data.endsWith("…")) return;
  end.data = end.data.slice(0, -1);
  end.after(el("span", { className: "goes-on" }, "…"));
}

function made(node) {
  if (typeof node === "string") return document.createTextNode(node);
  const [tag, facts, ...children] = node;
  if (tag === "a") return link(facts.href, children);
  if (!TAGS.has(tag)) return build(children);
  const element = el(tag, {}, ...children.map(made));
  if (tag === "code") element.dir = "ltr";
  if (facts.side) element.className = facts.side;
  if (facts.token) element.className = `token-${facts.token}`;
  if (facts.start !== undefined) element.start = facts.start;
  if (facts.task !== undefined) task(element, facts.task);
  if (tag === "pre") return el("div", { className: "code" }, bar(facts.language ?? ""), element);
  return tag === "table" ? el("div", { className: "table" }, element) : element;
}

/** Return the line above a block of code: its language, and the button that copies the block. */
function bar(language) {
  const line = el("div", { className: "bar" }, el("span", {}, language));
  if (!navigator.clipboard) return line;
  const press = button(said.copy, "copy");
  press.title = said.copy_code;
  line.append(press);
  return line;
}

function task(item, done) {
  const mark = el("input", { type: "checkbox", disabled: true, defaultChecked: done, "aria-label": item.textContent });
  item.className = "task";
  (item.firstElementChild?.localName === "p" ? item.firstElementChild : item).prepend(mark);
}

function link(address, children) {
  const node = el("a", {}, ...children.map(made));
  if (!/^https?:\/\//i.test(address) || !URL.canParse(address)) return node;
  node.href = address;
  node.title = address;
  node.target = "_blank";
  node.rel = "noopener noreferrer";
  return node;
}

/** Change an element to equal another one. Equal parts stay in place, so that a selection and the focus are kept. */
export function patch(old, fresh) {
  const before = [...old.childNodes];
  const after = [...fresh.childNodes];
  after.forEach((node, at) => {
    const known = before[at];
    if (!known) old.append(node);
    else if (known.nodeName !== node.nodeName) known.replaceWith(node);
    else if (node.nodeType === Node.TEXT_NODE) retype(known, node.data);
    else if (known.className === "copy" && node.className === "copy") return; // the button may just say that the code is copied
    else {
      for (const { name } of [...known.attributes]) if (!node.hasAttribute(name)) known.removeAttribute(name);
      for (const { name, value } of node.attributes) if (known.getAttribute(name) !== value) known.setAttribute(name, value);
      patch(known, node);
    }
  });
  for (const node of before.slice(after.length)) node.remove();
}

/** Change the text of a text node. A selection in the common beginning of both texts is kept. */
function retype(node, words) {
  let same = 0;
  while (same < words.length && words[same] === node.data[same]) same += 1;
  if (same < node.data.length || same < words.length) node.replaceData(same, node.data.length - same, words.slice(same));
}
