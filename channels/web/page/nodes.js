// Builds DOM nodes of messages. The server has parsed the Markdown. Text only becomes a text node, and only the tags
// and links named here are created.

const BLOCKS = new Set(["p", "h3", "h4", "h5", "h6", "li", "blockquote", "th", "td"]);
const TAGS = new Set([...BLOCKS, "ul", "ol", "pre", "code", "hr", "br", "table", "thead", "tbody", "tr", "em", "strong", "s"]);

/** Return the DOM nodes of a message. Each given node is a text or [tag, facts, ...children]. */
export function build(nodes) {
  const out = document.createDocumentFragment();
  out.append(...nodes.map(made));
  return out;
}

function made(node) {
  if (typeof node === "string") return document.createTextNode(node);
  const [tag, facts, ...children] = node;
  if (tag === "a") return link(facts.href, children);
  if (!TAGS.has(tag)) return build(children);
  const element = document.createElement(tag);
  // The browser finds the direction of each block, since an Arabic paragraph may follow an English one.
  if (BLOCKS.has(tag)) element.dir = "auto";
  if (facts.title) element.title = facts.title;
  if (facts.side) element.className = facts.side;
  if (facts.start) element.start = facts.start;
  element.append(...children.map(made));
  if (tag !== "table") return element;
  const box = document.createElement("div");
  box.className = "table";
  box.append(element);
  return box;
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
