// Files of messages: a picture, or a link to open or save the file.

import { words as said } from "/words.js";

const WIDE = 480, HIGH = 320; // max size in pixels of a picture in the list

const large = document.createElement("dialog");
const whole = document.createElement("img");
const save = document.createElement("a");
large.className = "large";
save.textContent = said.download;
const close = document.createElement("button");
close.type = "button";
close.textContent = said.close;
large.append(whole, save, close);
large.addEventListener("click", (event) => { if (event.target !== save) large.close(); });
document.body.append(large);

/** Return the row of a file; only the file's name if the file is no longer kept. */
export function attached(file) {
  const row = document.createElement("div");
  row.className = "attached";
  if (file.width) row.append(picture(file));
  else if (file.type) row.append(opens(file), saves(file, said.download));
  else row.append(saves(file, `📎 ${file.name}`));
  return row;
}

const address = (file) => `/api/files/${encodeURIComponent(file.id)}`;

function saves(file, words) {
  const link = document.createElement(file.id ? "a" : "span");
  link.className = "file";
  link.textContent = words;
  if (!file.id) return link;
  link.href = address(file);
  link.download = file.name;
  link.title = `${said.download}: ${file.name}`;
  return link;
}

function opens(file) {
  const link = document.createElement("a");
  link.className = "file";
  link.textContent = `📄 ${file.name}`;
  link.href = address(file);
  link.target = "_blank";
  link.rel = "noopener";
  return link;
}

/** Return a picture whose place has its final size before it is loaded. A click shows it large. */
function picture(file) {
  const image = document.createElement("img");
  const scale = Math.min(1, WIDE / file.width, HIGH / file.height);
  image.loading = "lazy";
  image.alt = file.name;
  image.width = Math.ceil(file.width * scale);
  image.style.aspectRatio = `${file.width} / ${file.height}`;
  image.src = address(file);
  const press = document.createElement("button");
  press.type = "button";
  press.className = "picture";
  press.title = file.name;
  press.append(image);
  press.addEventListener("click", () => {
    large.setAttribute("aria-label", file.name);
    whole.alt = file.name;
    whole.src = save.href = image.src;
    save.download = file.name;
    large.showModal();
    close.focus();
  });
  image.addEventListener("error", () => press.replaceWith(saves(file, `📎 ${file.name}`)));
  return press;
}
