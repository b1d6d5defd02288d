// Messages as DOM nodes. The server has parsed the Markdown; text only ever becomes a text node, tags and links are
// those named here.

const BLOCKS = new Set(["p", "h3", "h4", "h5", "h6", "li", "blockquote", "th", "td"]);
const TAGS = new Set([...BLOCKS, "ul", "ol", "pre", "code", "hr", "br", "table", "thead", "tbody", "tr", "em", "strong", "s"]);

/** The nodes of a message, each a text or [tag, facts, ...children]. */
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
  // Each block finds its own direction: an Arabic paragraph may follow an English one.
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

/** Make one element like another of its kind and leave in place what is the same: with it a selection and the focus stay. */
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

/** Give a text node another text; what is selected in the part that both begin with stays selected. */
function retype(node, words) {
  let same = 0;
  while (same < words.length && words[same] === node.data[same]) same += 1;
  if (same < node.data.length || same < words.length) node.replaceData(same, node.data.length - same, words.slice(same));
}
