// Markdown as DOM nodes. Text only ever becomes a text node, so nothing in it can become markup; there are no
// images, and links lead to http and https alone.

const DEEPEST = 12;
const INLINE = /\\([!-/:-@[-`{-~])|(`+)|(\*{1,3}|__|~~|_)|(!?\[)|(https?:\/\/[^\s<>"'`]+)/g;
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s(.*)$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^(\s*)([-*+•]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}>\s?/;
const DIVIDER = /^(?:\|\s*)?:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$/;
const MARKS = { "**": "strong", "__": "strong", "*": "em", "_": "em", "~~": "s" };

function make(tag, ...children) {
  const node = document.createElement(tag);
  node.append(...children);
  return node;
}

/** The text as a fragment of paragraphs, lists, tables and so on. */
export function render(text) {
  return blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

function blocks(lines, depth) {
  const out = document.createDocumentFragment();
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    if (!line.trim()) { at += 1; continue; }
    const parse = [fence, heading, rule, quote, table, list].find((one) => one.begins(lines, at, depth)) ?? paragraph;
    const [node, next] = parse(lines, at, depth);
    out.append(node);
    at = next;
  }
  return out;
}

function fence(lines, at) {
  const [, mark, info] = lines[at].match(FENCE);
  let end = at + 1;
  while (end < lines.length && !closes(lines[end], mark)) end += 1;
  const code = make("code", lines.slice(at + 1, end).join("\n"));
  const [language] = info.trim().split(/\s/, 1);
  if (language) code.title = language;
  return [make("pre", code), end + 1];
}
fence.begins = (lines, at) => FENCE.test(lines[at]);
const closes = (line, mark) => line.trim().startsWith(mark) && !line.trim().replaceAll(mark[0], "");

function heading(lines, at) {
  const [, marks, words] = lines[at].match(HEADING);
  // The page's own headings are h1 and h2.
  return [directed(make(`h${Math.min(6, marks.length + 2)}`, inline(words.trim().replace(/ #+$/, ""), 0))), at + 1];
}
heading.begins = (lines, at) => HEADING.test(lines[at]);

const rule = (_, at) => [make("hr"), at + 1];
rule.begins = (lines, at) => RULE.test(lines[at]);

function quote(lines, at, depth) {
  let end = at;
  const inner = [];
  while (end < lines.length && QUOTE.test(lines[end])) inner.push(lines[end++].replace(QUOTE, ""));
  return [directed(make("blockquote", blocks(inner, depth + 1))), end];
}
quote.begins = (lines, at, depth) => depth < DEEPEST && QUOTE.test(lines[at]);

function table(lines, at) {
  const sides = cells(lines[at + 1]).map((cell) =>
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "");
  const row = (line, tag) => make("tr", ...cells(line).slice(0, sides.length).map((words_, column) => {
    const cell = directed(make(tag, inline(words_, 0)));
    if (sides[column]) cell.className = sides[column];
    return cell;
  }));
  const body = make("tbody");
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim()) body.append(row(lines[end++], "td"));
  const box = make("div", make("table", make("thead", row(lines[at], "th")), body));
  box.className = "table";
  return [box, end];
}
table.begins = (lines, at) => lines[at].includes("|") && at + 1 < lines.length
  && lines[at + 1].includes("-") && DIVIDER.test(lines[at + 1].trim())
  && cells(lines[at]).length === cells(lines[at + 1]).length;
const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/)
  .map((cell) => cell.trim().replaceAll("\\|", "|"));

function list(lines, at, depth) {
  const [, indent, first] = lines[at].match(ITEM);
  const ordered = /\d/.test(first);
  const node = make(ordered ? "ol" : "ul");
  if (ordered) node.start = parseInt(first, 10);
  let end = at;
  while (end < lines.length) {
    const item = lines[end].match(ITEM);
    if (!item || item[1].length !== indent.length || /\d/.test(item[2]) !== ordered) break;
    const inner = [item[3]];
    for (end += 1; end < lines.length; end += 1) {
      const line = lines[end];
      const deeper = line.match(/^\s*/)[0].length > indent.length;
      if (line.trim() && !deeper) break;
      if (!line.trim() && !(lines[end + 1] ?? "").startsWith(`${indent} `)) break;
      inner.push(line.slice(Math.min(line.match(/^\s*/)[0].length, indent.length + 2)));
    }
    node.append(directed(make("li", ...tight(inner, depth))));
    while (end < lines.length && !lines[end].trim() && ITEM.test(lines[end + 1] ?? "")) end += 1;
  }
  return [node, end];
}
list.begins = (lines, at, depth) => depth < DEEPEST && ITEM.test(lines[at]);

/** The children of a list item: its first paragraph stands without a `p`. */
function tight(lines, depth) {
  const children = [...blocks(lines, depth + 1).childNodes];
  return children[0]?.tagName === "P" ? [...children[0].childNodes, ...children.slice(1)] : children;
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim()
    && ![fence, heading, rule, quote, list, table].some((one) => one.begins(lines, end, depth))) end += 1;
  return [directed(make("p", inline(lines.slice(at, end).join("\n").trim(), 0))), end];
}

/** Each block finds its own direction: an Arabic paragraph may follow an English one. */
function directed(node) {
  node.dir = "auto";
  return node;
}

function inline(text, depth) {
  const out = document.createDocumentFragment();
  const missing = new Set(); // marks that are not closed in the rest of the text: looked for once only
  const search = new RegExp(INLINE);
  let from = 0;
  let match;
  while ((match = search.exec(text))) {
    const found = token(text, match, depth, missing);
    if (!found) continue;
    words(out, text.slice(from, match.index));
    out.append(found.node);
    from = search.lastIndex = found.end;
  }
  words(out, text.slice(from));
  return out;
}

function token(text, match, depth, missing) {
  const [whole, escaped, ticks, mark, bracket, url] = match;
  if (escaped) return { node: document.createTextNode(escaped), end: match.index + 2 };
  if (ticks) return code(text, match.index, ticks, missing);
  if (depth >= DEEPEST) return null;
  if (url) return bare(whole, match.index);
  return mark ? emphasis(text, match.index, mark, depth, missing) : named(text, match.index, bracket, depth);
}

function code(text, at, ticks, missing) {
  if (missing.has(ticks)) return null;
  const start = at + ticks.length;
  const close = new RegExp(`(?<!\`)${ticks}(?!\`)`, "g");
  close.lastIndex = start;
  const end = close.exec(text)?.index;
  if (end === undefined) { missing.add(ticks); return null; }
  const inner = text.slice(start, end).replaceAll("\n", " ");
  return { node: make("code", /^ .*[^ ].* $/.test(inner) ? inner.slice(1, -1) : inner), end: end + ticks.length };
}

function emphasis(text, at, mark, depth, missing) {
  const start = at + mark.length;
  const inWord = mark[0] === "_" && /[\p{L}\p{N}]/u.test(text[at - 1] ?? "");
  if (missing.has(mark) || inWord || !/\S/.test(text[start] ?? "")) return null;
  for (let end = text.indexOf(mark, start + 1); end > 0; end = text.indexOf(mark, end + 1)) {
    const after = text[end + mark.length] ?? "";
    const longer = mark.length === 1 && (after === mark || text[end - 1] === mark);
    if (longer) { end += after === mark ? 1 : 0; continue; }
    if (/\s/.test(text[end - 1]) || (mark[0] === "_" && /[\p{L}\p{N}]/u.test(after))) continue;
    const inner = inline(text.slice(start, end), depth + 1);
    const node = mark === "***" ? make("strong", make("em", inner)) : make(MARKS[mark], inner);
    return { node, end: end + mark.length };
  }
  missing.add(mark);
  return null;
}

function named(text, at, bracket, depth) {
  const part = text.slice(at + bracket.length, at + bracket.length + 4000);
  const match = part.match(/^([^[\]\n]{1,1000})\]\(\s*<?((?:[^\s()<>]|\([^\s()<>]*\)){1,2000})>?(?:\s+"[^"\n]*")?\s*\)/);
  const address = match && safe(match[2]);
  if (!address) return null;
  // A label that claims to be an address must not hide another one.
  const words = match[1].replace(TURNS, "");
  const label = /^\s*https?:/i.test(words) ? match[2] : inline(words, DEEPEST);
  return { node: link(address, label), end: at + bracket.length + match[0].length };
}

function bare(whole, at) {
  let end = whole.length;
  let open = whole.split("(").length - whole.split(")").length;
  for (; end > 0; end -= 1) {
    if (whole[end - 1] === ")" && open < 0) open += 1;
    else if (!".,;:!?*_~。，、；：！？".includes(whole[end - 1])) break;
  }
  const url = whole.slice(0, end);
  const address = safe(url);
  return address && { node: link(address, url), end: at + url.length };
}

function safe(address) {
  try {
    const url = new URL(address);
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : null;
  } catch {
    return null;
  }
}

const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const HOST = /(?:[\p{L}\p{N}_-]{1,63}[.\u3002\uff0e\uff61]){1,10}(\p{L}[\p{L}\p{N}-]{1,62})(?![\p{L}\p{N}_-])|(?<![\p{L}\p{N}._-])(?:localhost|(?:\p{N}{1,3}\.){3}\p{N}{1,3})(?![\p{L}\p{N}_-]|\.\p{N})/gu;
const FILES = /^(?:c|cfg|conf|css|csv|cpp|exe|gif|go|h|html?|ini|java|jpe?g|jsx?|json|lock|log|pdf|php|png|tsx?|txt|toml|tmp|svg|sql|xml|ya?ml)$/;

/** The host to show beside a link whose words look like one elsewhere, or that is easily taken for another one. */
function realHost(address, label) {
  const url = new URL(address);
  if (url.username || url.password) return url.hostname;
  const seen = label.normalize("NFKC").replace(/\p{Cf}/gu, "").toLowerCase();
  if (new Set([address, address.replace(/\/$/, "")]).has(seen.trim())) return null;
  const elsewhere = [...seen.matchAll(HOST)].filter(([, top]) => !FILES.test(top)).some(([one]) => {
    let host = one;
    try { host = new URL(`http://${one}`).hostname; } catch { /* it is none */ }
    host = host.replace(/^www\./, "");
    return url.hostname !== host && !url.hostname.endsWith(`.${host}`);
  });
  return elsewhere || /(?:^|\.)xn--/.test(url.hostname) ? url.hostname : null;
}

function link(address, content) {
  const node = anchor(address, content);
  const host = realHost(address, node.textContent);
  if (!host) return node;
  const out = document.createDocumentFragment();
  out.append(node, ` (${host})`);
  return out;
}

function anchor(address, content) {
  const node = make("a", content);
  node.href = address;
  node.title = address;
  node.target = "_blank";
  node.rel = "noopener noreferrer";
  return node;
}

function words(out, text) {
  text.split("\n").forEach((line, number) => {
    if (number) out.append(make("br"));
    if (line) out.append(line);
  });
}
