// Files of the next message. Each file is sent to the server as soon as it is chosen, in pieces, one file after another.

import { words as said } from "/words.js";

const PIECE = 256 * 1024; // bytes of one request
const MOST = 10;
const PAUSES = [1, 2, 4, 8, 0];

const wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

/** Manage the files of the next message, shown in `list`. Calls changed() after each change, and loggedOut() if the server asks for a token. */
export function nextFiles(list, changed, loggedOut) {
  const items = [];
  let last = Promise.resolve();

  function add(files) {
    for (const file of files) {
      const item = { file, row: row(file), id: "", state: "waiting" };
      item.row.querySelector(".remove").addEventListener("click", () => remove(item));
      items.push(item);
      list.append(item.row);
      if (items.length > MOST) fail(item, said.too_many_files, false);
      else queue(item);
    }
    changed();
  }

  function queue(item) {
    item.state = "waiting";
    show(item, "");
    last = last.then(() => (item.state === "waiting" ? upload(item) : undefined));
  }

  function remove(item) {
    item.state = "gone";
    items.splice(items.indexOf(item), 1);
    item.row.remove();
    if (item.id) fetch(`/api/files/${item.id}`, { method: "DELETE" }).catch(() => null);
    changed();
  }

  function fail(item, sentence, again = true) {
    if (item.state === "gone") return;
    item.state = "failed";
    item.row.classList.add("failed");
    show(item, sentence || said.not_uploaded);
    if (again) {
      const retry = document.createElement("button");
      retry.type = "button";
      retry.className = "again";
      retry.textContent = said.again;
      item.again = () => { item.row.classList.remove("failed"); retry.remove(); queue(item); changed(); };
      retry.addEventListener("click", item.again);
      item.row.querySelector(".remove").before(retry);
    }
    changed();
  }

  function show(item, words) {
    item.row.querySelector(".state").textContent = words;
  }

  async function upload(item, anew = false) {
    const { file } = item;
    const [begun, sentence] = await asked("/api/files", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ name: file.name, type: file.type, size: file.size }),
    });
    if (!begun?.ok) { fail(item, sentence, begun?.status !== 413); return; }
    const { id } = begun.told;
    let at = 0;
    let kept;
    do {
      const piece = await file.slice(at, at + PIECE).arrayBuffer().catch(() => null);
      if (piece === null) { fail(item, said.file_unreadable); return; }
      if (item.state === "gone") { fetch(`/api/files/${id}`, { method: "DELETE" }).catch(() => null); return; }
      const [answer, why] = await asked(`/api/files/${id}?at=${at}`, {
        method: "POST",
        headers: { "Content-Type": "application/octet-stream" },
        body: piece,
      });
      if (answer?.status === 404 && !anew) { await upload(item, true); return; } // the server has restarted
      // Status 409: the piece arrived earlier but its response was lost. The server says how many bytes it has.
      if (answer?.status !== 409 && !answer?.ok) { fail(item, why); return; }
      if (answer.status === 409 && answer.told.have === at) await wait(1); // the server is still writing the piece
      kept = answer.told.file;
      at = answer.told.have ?? at + piece.byteLength;
      show(item, `${Math.floor((at / (file.size || 1)) * 100)} %`);
    } while (at < file.size);
    if (item.state === "gone") { fetch(`/api/files/${id}`, { method: "DELETE" }).catch(() => null); return; }
    item.id = id;
    item.state = "whole";
    item.kept = kept ?? { id, name: file.name, size: file.size };
    if (item.kept.width) item.row.prepend(thumbnail(id));
    show(item, size(file.size));
    changed();
  }

  /** Return the server's response with its JSON, and the sentence of a refusal. Retries while the server cannot be reached. */
  async function asked(path, how) {
    let sentence = ""; // sentence of the first refusal; a retry may only report that the upload was dropped
    for (const pause of PAUSES) {
      const answer = await fetch(path, how).catch(() => null);
      const told = (await answer?.json().catch(() => null)) ?? {};
      sentence ||= told.error ?? "";
      if (answer?.status === 401) loggedOut();
      if ((answer && answer.status < 500) || !pause) return [answer && { ok: answer.ok, status: answer.status, told }, sentence];
      await wait(pause);
    }
    return [null, ""];
  }

  return {
    add,
    /** Return true if all files are uploaded, so that the message can be sent. */
    ready: () => items.every((item) => item.state === "whole"),
    any: () => items.length > 0,
    /** Upload the files again whose upload has failed. */
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

function row(file) {
  const item = document.createElement("li");
  const name = document.createElement("span");
  name.className = "name";
  name.dir = "auto";
  name.textContent = file.name;
  name.title = file.name;
  const state = document.createElement("span");
  state.className = "state";
  state.role = "status";
  const remove = document.createElement("button");
  remove.type = "button";
  remove.className = "remove";
  remove.textContent = "✕";
  remove.title = said.remove;
  remove.setAttribute("aria-label", `${said.remove}: ${file.name}`);
  item.append(name, state, remove);
  return item;
}

function thumbnail(id) {
  const image = document.createElement("img");
  image.alt = ""; // the name stands beside it
  image.src = `/api/files/${id}`;
  image.addEventListener("error", () => image.remove());
  return image;
}

function size(bytes) {
  if (bytes < 1_000) return `${bytes} B`;
  return bytes < 1_000_000 ? `${Math.round(bytes / 1_000)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}
