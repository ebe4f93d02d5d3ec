// What the user chose, kept in localStorage, and the part of a request that follows from it.

const DEFAULTS = {
  system: "", thinking: "auto", temperature: "", top_p: "", top_k: "", min_p: "", max_tokens: "",
  tools: "", extra: "", probabilities: false, key: "", theme: "system", sidebar: true, engine: true, sorted: false,
};
const SAMPLING = ["temperature", "top_p", "top_k", "min_p", "max_tokens"];
const KEPT_BY_RESET = ["key", "theme", "sidebar", "engine", "sorted"];

const settings = { ...DEFAULTS, ...readSettings() };

function readSettings() {
  try {
    const kept = JSON.parse(localStorage.getItem("moepack.settings") || "{}");
    return Object.fromEntries(Object.entries(kept).filter(([key, value]) => typeof value === typeof DEFAULTS[key]));
  } catch {
    return {};
  }
}

function changeSetting(key, value) {
  settings[key] = value;
  try {
    localStorage.setItem("moepack.settings", JSON.stringify(settings));
  } catch {
    // Without storage the choice holds until the tab closes.
  }
}

// Both throw an Error whose message is a sentence.
function parsedTools(text) {
  if (!text.trim()) return [];
  const tools = parsedJson(text);
  if (!Array.isArray(tools)) throw new Error("Tools are a list: [ … ].");
  return tools.map((tool, at) => {
    const wrapped = tool?.type === "function" ? tool : { type: "function", function: tool };
    if (typeof wrapped.function?.name !== "string") throw new Error(`Tool ${at + 1} has no name.`);
    return wrapped;
  });
}

function parsedExtra(text) {
  if (!text.trim()) return {};
  const extra = parsedJson(text);
  if (extra === null || typeof extra !== "object" || Array.isArray(extra)) {
    throw new Error("More parameters are an object: { … }.");
  }
  return extra;
}

function parsedJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${error.message}`);
  }
}

function requestParameters() {
  const parameters = {};
  for (const name of SAMPLING) {
    const number = parseFloat(settings[name]);
    if (Number.isFinite(number)) parameters[name] = number;
  }
  if (settings.thinking !== "auto") parameters.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  const tools = parsedTools(settings.tools);
  if (tools.length > 0) parameters.tools = tools;
  if (settings.probabilities) Object.assign(parameters, { logprobs: true, top_logprobs: 5 });
  return { ...parameters, ...parsedExtra(settings.extra) };
}

// --- appearance ---

const THEMES = ["system", "light", "dark"];
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (settings.theme === "system" ? systemIsDark.matches : settings.theme === "dark");

function showTheme() {
  if (settings.theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = settings.theme;
  const button = byId("theme");
  const names = { system: "as the system", light: "light", dark: "dark" };
  button.replaceChildren(icon({ system: "system", light: "sun", dark: "moon" }[settings.theme]));
  button.setAttribute("aria-label", `Appearance: ${names[settings.theme]}`);
  button.title = `Appearance: ${names[settings.theme]}`;
  for (const radio of document.querySelectorAll("[name=theme]")) radio.checked = radio.value === settings.theme;
  document.dispatchEvent(new Event("themechange"));
}

function chooseTheme(theme) {
  changeSetting("theme", theme);
  showTheme();
}

// --- the dialog ---

function checkField(field) {
  const check = { tools: parsedTools, extra: parsedExtra }[field.dataset.setting];
  if (!check) return;
  let problem = "";
  try {
    check(field.value);
  } catch (error) {
    problem = error.message;
  }
  field.setAttribute("aria-invalid", String(problem !== ""));
  field.parentElement.querySelector(".field-error").textContent = problem;
}

function showSettings() {
  for (const field of document.querySelectorAll("[data-setting]")) {
    if (field.type === "checkbox") field.checked = settings[field.dataset.setting];
    else field.value = settings[field.dataset.setting];
    checkField(field);
  }
  byId("thinking").value = settings.thinking;
}

async function openSettings(field) {
  showSettings();
  if (!byId("settings").open) byId("settings").showModal();
  if (field) document.querySelector(`[data-setting=${field}]`).focus();
  const estimate = await navigator.storage?.estimate?.().catch(() => null);
  const isKept = await navigator.storage?.persisted?.().catch(() => false);
  byId("storage-note").textContent = store.database
    ? `Kept in this browser only${estimate?.usage ? `, ${asBytes(estimate.usage)}` : ""}` +
      `${isKept ? ", for good." : "; the browser may drop them when its disk is full."}`
    : "This browser keeps nothing.";
}

function startSettings() {
  byId("settings").addEventListener("input", (event) => {
    const field = event.target.closest("[data-setting]");
    if (field) {
      changeSetting(field.dataset.setting, field.type === "checkbox" ? field.checked : field.value);
      checkField(field);
      byId("thinking").value = settings.thinking;
    } else if (event.target.name === "theme") {
      chooseTheme(event.target.value);
    }
  });
  byId("thinking").addEventListener("change", (event) => changeSetting("thinking", event.target.value));
  byId("open-settings").addEventListener("click", () => openSettings());
  byId("reset-settings").addEventListener("click", () => {
    for (const key of Object.keys(DEFAULTS)) if (!KEPT_BY_RESET.includes(key)) changeSetting(key, DEFAULTS[key]);
    showSettings();
  });
  byId("theme").addEventListener("click", () => chooseTheme(THEMES[(THEMES.indexOf(settings.theme) + 1) % 3]));
  systemIsDark.addEventListener("change", showTheme);
  showTheme();
  showSettings();
}
