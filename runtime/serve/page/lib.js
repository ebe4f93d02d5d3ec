// Elements, icons, numbers as text, notices: what every other part uses.

const byId = (id) => document.getElementById(id);

// h("button", {class: "x", onclick: f}, "text", child): an element. Strings become text, never HTML.
function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const ICON_PATHS = {
  menu: "M4 7h16M4 12h16M4 17h10",
  plus: "M12 5v14M5 12h14",
  search: "M11 4a7 7 0 1 0 0 14a7 7 0 1 0 0-14M20 20l-4-4",
  pencil: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 13l4 4L19 7",
  again: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  stop: "M7 7h10v10H7z",
  up: "M12 19V5M6 11l6-6l6 6",
  down: "M12 5v14M6 13l6 6l6-6",
  clip: "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.4 3.4 0 0 1 5 5l-8.5 8.5a1.7 1.7 0 0 1-2.5-2.5L14.5 7.5",
  sliders: "M4 7h10M18 7h2M16 5v4M4 17h4M12 17h8M10 15v4",
  close: "M6 6l12 12M18 6L6 18",
  grid: "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h6v6h-6z",
  sun: "M12 8a4 4 0 1 0 0 8a4 4 0 1 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1 1M18 18l1 1M5 19l1-1M18 6l1-1",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  system: "M3 5h18v11H3zM9 20h6M12 16v4",
  keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M7 14h10",
  expand: "M14 4h6v6M20 4l-7 7M10 20H4v-6M4 20l7-7",
  tool: "M8 4c-2 0-3 1-3 3v2c0 2-1 3-2 3c1 0 2 1 2 3v2c0 2 1 3 3 3" +
    "M16 4c2 0 3 1 3 3v2c0 2 1 3 2 3c-1 0-2 1-2 3v2c0 2-1 3-3 3",
  order: "M4 6h16M4 12h11M4 18h6",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  tokens: "M4 7h6M13 7h7M4 12h9M16 12h4M4 17h4M11 17h9",
};

function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICON_PATHS[name]);
  svg.append(path);
  return svg;
}

function iconButton(name, label, onclick, extra = "") {
  return h("button", { type: "button", class: `icon-button ${extra}`, "aria-label": label, title: label, onclick },
    icon(name));
}

// Fills the places that the HTML marks with data-icon.
function placeIcons() {
  for (const place of document.querySelectorAll("[data-icon]")) place.append(icon(place.dataset.icon));
}

const makeId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");

const asCount = (number) => Math.round(number).toLocaleString("en");
const asRate = (number) => (number >= 100 ? number.toFixed(0) : number.toFixed(1));
const asPercent = (part, whole) => {
  const percent = whole > 0 ? (100 * part) / whole : 0;
  return `${percent >= 99.95 || percent < 0.05 ? percent.toFixed(0) : percent.toFixed(percent < 10 ? 1 : 0)} %`;
};
const asBytes = (number) =>
  number >= 1e9 ? `${(number / 1e9).toFixed(1)} GB`
    : number >= 1e6 ? `${(number / 1e6).toFixed(1)} MB`
      : number >= 1e3 ? `${(number / 1e3).toFixed(1)} kB` : `${number} B`;
function asDuration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

// Told to screen readers only.
function announce(text) {
  byId("announcer").textContent = text;
}

// A short notice; `action` is {label, run} or absent.
function toast(text, action) {
  const node = h("div", { class: "toast" }, h("span", {}, text));
  const close = () => node.remove();
  if (action) {
    node.append(h("button", { type: "button", onclick: () => { close(); action.run(); } }, action.label));
  }
  byId("toasts").append(node);
  setTimeout(close, action ? 9000 : 5000);
}

// The clipboard's API is missing where the page does not come from localhost or over https.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    (document.querySelector("dialog[open]") || document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function copyButton(label, textOf) {
  const button = iconButton("copy", label, async () => {
    const done = await copyText(textOf());
    button.replaceChildren(icon(done ? "check" : "close"));
    announce(done ? "Copied" : "The browser does not let the page copy");
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}

function downloadJson(name, value) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(value, null, 1)], { type: "application/json" }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
