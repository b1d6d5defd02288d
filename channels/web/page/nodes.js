// Builds DOM nodes of messages. The server has parsed the Markdown. Texts become text nodes, and only the tags
// and links named here are created.

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
  const sign = document.createElement("span");
  sign.className = "goes-on";
  end.splitText(end.length - 1);
  sign.append(end.nextSibling);
  end.after(sign);
}

function made(node) {
  if (typeof node === "string") return document.createTextNode(node);
  const [tag, facts, ...children] = node;
  if (tag === "a") return link(facts.href, children);
  if (!TAGS.has(tag)) return build(children);
  const element = document.createElement(tag);
  if (tag === "code") element.dir = "ltr";
  if (facts.side) element.className = facts.side;
  if (facts.token) element.className = `token-${facts.token}`;
  if (facts.start !== undefined) element.start = facts.start;
  element.append(...children.map(made));
  if (facts.task !== undefined) task(element, facts.task);
  if (tag === "pre") return box("code", bar(facts.language ?? ""), element);
  return tag === "table" ? box("table", element) : element;
}

function box(name, ...children) {
  const made = document.createElement("div");
  made.className = name;
  made.append(...children);
  return made;
}

/** Return the line above a block of code: its language, and the button that copies the block. */
function bar(language) {
  const name = document.createElement("span");
  name.textContent = language;
  if (!navigator.clipboard) return box("bar", name);
  const press = document.createElement("button");
  press.type = "button";
  press.className = "copy";
  press.title = said.copy_code;
  press.textContent = said.copy;
  return box("bar", name, press);
}

function task(item, done) {
  const mark = document.createElement("input");
  mark.type = "checkbox";
  mark.disabled = true;
  mark.defaultChecked = done;
  mark.setAttribute("aria-label", item.textContent);
  item.className = "task";
  (item.firstElementChild?.localName === "p" ? item.firstElementChild : item).prepend(mark);
}

function link(address, children) {
  const node = document.createElement("a");
  node.append(...children.map(made));
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
