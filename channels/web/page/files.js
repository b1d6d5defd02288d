// Files of the next message are sent to the server in pieces as soon as they are chosen. Files of shown messages
// appear as a picture, or as a link that opens or saves the file.

import { $, button, el, request, wait } from "/dom.js";
import { words as said } from "/words.js";

const PIECE = 256 * 1024; // bytes of one request
const MOST = 10;
const PAUSES = [1, 2, 4, 8, 0]; // seconds between the attempts of a request; 0: no further attempt
const WIDE = 480, HIGH = 320; // max size in pixels of a picture in the list

const address = (file) => `/api/files/${encodeURIComponent(file.id)}`;

// -- files of the next message -------------------------------------------------------------------------------

/** Manage the files of the next message, shown in `list`. Calls changed() after each change, and loggedOut() if the server asks for a token. */
export function nextFiles(list, changed, loggedOut) {
  const items = [];
  let last = Promise.resolve();
  const drop = (id) => request(address({ id }), { method: "DELETE" });

  function add(files) {
    for (const file of files) {
      const state = el("span", { className: "state", role: "status" });
      const remove = button("✕", "remove");
      remove.title = said.remove;
      remove.setAttribute("aria-label", `${said.remove}: ${file.name}`);
      const name = el("span", { className: "name", dir: "auto", title: file.name }, file.name);
      const item = { file, row: el("li", {}, name, state, remove), id: "", state: "waiting", show: (words) => { state.textContent = words; } };
      remove.addEventListener("click", () => {
        item.state = "gone";
        items.splice(items.indexOf(item), 1);
        item.row.remove();
        if (item.id) drop(item.id);
        changed();
      });
      items.push(item);
      list.append(item.row);
      if (items.length > MOST) fail(item, said.too_many_files, false);
      else queue(item);
    }
    changed();
  }

  function queue(item) {
    item.state = "waiting";
    item.show("");
    last = last.then(() => (item.state === "waiting" ? upload(item) : undefined));
  }

  function fail(item, sentence, again = true) {
    if (item.state === "gone") return;
    item.state = "failed";
    item.row.classList.add("failed");
    item.show(sentence || said.not_uploaded);
    if (again) {
      const retry = button(said.again, "again");
      item.again = () => { item.row.classList.remove("failed"); retry.remove(); queue(item); changed(); };
      retry.addEventListener("click", item.again);
      item.row.lastElementChild.before(retry);
    }
    changed();
  }

  async function upload(item, anew = false) {
    const { file } = item;
    const [begun, sentence] = await asked("/api/files", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ name: file.name, type: file.type, size: file.size }),
    });
    if (!begun.ok) { fail(item, sentence, begun.status !== 413); return; }
    const { id } = begun.told;
    let at = 0;
    let kept;
    do {
      const piece = await file.slice(at, at + PIECE).arrayBuffer().catch(() => null);
      if (piece === null) { fail(item, said.file_unreadable); return; }
      if (item.state === "gone") { drop(id); return; }
      const [answer, why] = await asked(`${address({ id })}?at=${at}`, {
        method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: piece,
      });
      if (answer.status === 404 && !anew) { await upload(item, true); return; } // the server has restarted
      // Status 409: the piece arrived earlier but its response was lost. The server says how many bytes it has.
      if (answer.status !== 409 && !answer.ok) { fail(item, why); return; }
      if (answer.status === 409 && answer.told.have === at) await wait(1); // the server is still writing the piece
      kept = answer.told.file;
      at = answer.told.have ?? at + piece.byteLength;
      item.show(`${Math.floor((at / (file.size || 1)) * 100)} %`);
    } while (at < file.size);
    if (item.state === "gone") { drop(id); return; }
    Object.assign(item, { id, state: "whole", kept: kept ?? { id, name: file.name, size: file.size } });
    if (item.kept.width) {
      const image = el("img", { alt: "", src: address({ id }) }); // no text, because the name stands beside the picture
      image.addEventListener("error", () => image.remove());
      item.row.prepend(image);
    }
    item.show(size(file.size));
    changed();
  }

  /** Return the server's response, and the sentence of its first refusal. Retries while the server cannot be reached. */
  async function asked(path, how) {
    let sentence = ""; // text of the first refusal, because a retry may only report that the upload was dropped
    for (const pause of PAUSES) {
      const answer = await request(path, how);
      sentence ||= answer.told.error ?? "";
      if (answer.status === 401) loggedOut();
      if ((answer.status && answer.status < 500) || !pause) return [answer, sentence];
      await wait(pause);
    }
  }

  return {
    add,
    /** Return true if all files are uploaded, so that the message can be sent. */
    ready: () => items.every((item) => item.state === "whole"),
    any: () => items.length > 0,
    /** Repeat the failed uploads. */
    resume() {
      for (const item of items) if (item.state === "failed") item.again?.();
    },
    /** Return the files for the message that is sent now, and clear the list. */
    take() {
      const taken = items.map((item) => item.kept);
      items.length = 0;
      list.replaceChildren();
      return taken;
    },
  };
}

function size(bytes) {
  if (bytes < 1_000) return `${bytes} B`;
  return bytes < 1_000_000 ? `${Math.round(bytes / 1_000)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

// -- files of shown messages ---------------------------------------------------------------------------------

/** Return the row of a file; only the file's name if the file is no longer kept. */
export function attached(file) {
  const row = el("div", { className: "attached" });
  if (file.width) row.append(picture(file));
  else if (file.type) row.append(el("a", { className: "file", href: address(file), target: "_blank", rel: "noopener" }, `📄 ${file.name}`), saves(file, said.download));
  else row.append(saves(file, `📎 ${file.name}`));
  return row;
}

function saves(file, words) {
  if (!file.id) return el("span", { className: "file" }, words);
  return el("a", { className: "file", href: address(file), download: file.name, title: `${said.download}: ${file.name}` }, words);
}

/** Return a picture whose place has its final size before it is loaded. A click shows it large. */
function picture(file) {
  const scale = Math.min(1, WIDE / file.width, HIGH / file.height);
  const image = el("img", { loading: "lazy", alt: file.name, width: Math.ceil(file.width * scale) });
  image.style.aspectRatio = `${file.width} / ${file.height}`;
  image.src = address(file);
  const press = el("button", { type: "button", className: "picture", title: file.name }, image);
  press.addEventListener("click", () => {
    const [whole, save, close] = $("large").children;
    $("large").setAttribute("aria-label", file.name);
    whole.alt = file.name;
    whole.src = save.href = image.src;
    save.download = file.name;
    $("large").showModal();
    close.focus();
  });
  image.addEventListener("error", () => press.replaceWith(saves(file, `📎 ${file.name}`)));
  return press;
}

$("large").addEventListener("click", ({ target }) => { if (target.localName !== "a") $("large").close(); });
