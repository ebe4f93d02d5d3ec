// Start, the loading screen, panels, shortcuts.

const NARROW = matchMedia("(max-width: 820px)");     // conversations lie over the page
const MEDIUM = matchMedia("(max-width: 1180px)");    // the experts do
const panels = {
  sidebar: { query: NARROW, isOver: false },
  engine: { query: MEDIUM, isOver: false },
};

function showPanels() {
  let hasOverlay = false;
  for (const [name, panel] of Object.entries(panels)) {
    const isNarrow = panel.query.matches;
    const isOpen = isNarrow ? panel.isOver : settings[name];
    byId(name).hidden = !isOpen;
    byId(name).classList.toggle("over", isNarrow);
    byId(`toggle-${name}`).setAttribute("aria-expanded", String(isOpen));
    hasOverlay ||= isNarrow && isOpen;
  }
  byId("scrim").hidden = !hasOverlay;
  document.querySelector("main").inert = hasOverlay;
  experts.draw();
}

function togglePanel(name) {
  const panel = panels[name];
  if (panel.query.matches) panel.isOver = !panel.isOver;
  else changeSetting(name, !settings[name]);
  showPanels();
  if (panel.query.matches && panel.isOver) byId(name).querySelector("button:not([hidden])").focus();
}

function closeOverlays() {
  const wasOver = Object.values(panels).some((panel) => panel.isOver);
  for (const panel of Object.values(panels)) panel.isOver = false;
  if (wasOver) showPanels();
  return wasOver;
}

function onChange(conversation, message) {
  if (message) {
    if (conversation === chat.current) thread.touch(message);
    return;
  }
  if (conversation === chat.current) {
    const isEmpty = conversation.messages.length === 0;
    byId("title").textContent = conversation.title || "New chat";
    document.title = conversation.title ? `${conversation.title} – moepack` : "moepack";
    byId("welcome").hidden = !isEmpty;
    thread.show(conversation);
    showComposer();
    if (isEmpty) {
      showWelcome();
      experts.draw();
    }
    try {
      sessionStorage.setItem("moepack.open", conversation.id);
    } catch {
      // The page then starts with a new chat.
    }
  }
  showConversations();
  showNumbers();
  experts.follow();
}

// --- the loading screen ---

async function waitForModel() {
  const started = Date.now();
  for (;;) {
    const detail = await healthProblem();
    if (detail === null) break;
    byId("loading").hidden = false;
    byId("app").inert = true;
    byId("loading-text").textContent = detail;
    const seconds = Math.round((Date.now() - started) / 1000);
    byId("loading-detail").textContent = seconds >= 3 ? `${asDuration(seconds)} so far` : "";
    await new Promise((resolve) => setTimeout(resolve, 700));
  }
  if (byId("loading").hidden) return;
  byId("loading").hidden = true;
  byId("app").inert = false;
  focusEntry();
}

// Where the keyboard is on the screen, it would cover half of the page at once.
function focusEntry() {
  if (matchMedia("(hover: hover)").matches) byId("entry").focus();
}

// What keeps the server from answering, or null.
async function healthProblem() {
  try {
    await send("health", { method: "GET" });
    return null;
  } catch (error) {
    if (error.status === 503) return "Loading the model";
    return error.status === 0 ? "Waiting for the server" : null;  // servers without /health answer all the same
  }
}

async function readModel() {
  try {
    const model = (await getJson("v1/models")).data?.[0];
    if (!model) return;
    chat.model = { id: model.id, context: model.context_length || model.max_model_len || model.meta?.n_ctx || 0 };
    byId("model-name").textContent = model.id;
    chat.canAnswer = model.meta?.has_chat_template !== false;
    showComposer();
  } catch (error) {
    if (error.status === 401) askForKey(readModel);
  }
}

function askForKey(then) {
  const dialog = byId("key-dialog");
  byId("key-entry").value = "";
  dialog.then = then;
  if (!dialog.open) dialog.showModal();
}

function saveKey() {
  changeSetting("key", byId("key-entry").value.trim());
  const { then } = byId("key-dialog");
  byId("key-dialog").close();
  if (!chat.model.id) readModel();
  experts.poll();
  then?.();
}

// --- shortcuts ---

function onKey(event) {
  if (document.querySelector("dialog[open]")) return;
  const command = event.ctrlKey || event.metaKey;
  const key = event.key.toLowerCase();
  let taken = true;
  if (command && key === "k") startNewChat();
  else if (command && event.shiftKey && key === "f") openSearch();
  else if (command && key === ",") openSettings();
  else if (command && key === "/") byId("help").showModal();
  else if (event.altKey && event.key === "ArrowDown") openNeighbour(1);
  else if (event.altKey && event.key === "ArrowUp") openNeighbour(-1);
  else if (event.key === "Escape") taken = closeOverlays() || stopByKey();
  else taken = false;
  if (taken) event.preventDefault();
}

function stopByKey() {
  if (!chat.run()) return false;
  chat.stop();
  byId("entry").focus();
  return true;
}

function openSearch() {
  if (byId("sidebar").hidden) togglePanel("sidebar");
  byId("search").focus();
  byId("search").select();
}

function startDialogs() {
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
    });
  }
  byId("open-help").addEventListener("click", () => byId("help").showModal());
  byId("key-save").addEventListener("click", saveKey);
  byId("key-entry").addEventListener("keydown", (event) => event.key === "Enter" && saveKey());
}

function startPanels() {
  for (const name of Object.keys(panels)) {
    byId(`toggle-${name}`).addEventListener("click", () => togglePanel(name));
    panels[name].query.addEventListener("change", () => {
      panels[name].isOver = false;
      showPanels();
    });
  }
  byId("close-engine").addEventListener("click", closeOverlays);
  byId("scrim").addEventListener("click", closeOverlays);
  byId("to-end").addEventListener("click", scrollToEnd);
  scroller().addEventListener("scroll", showEndButton, { passive: true });
}

// An answer that a reload cut off says so.
function mendConversations() {
  for (const conversation of store.conversations.values()) {
    for (const message of conversation.messages) if (message.state === "writing") message.state = "cut";
  }
}

function openedBefore() {
  try {
    return store.conversations.get(sessionStorage.getItem("moepack.open"));
  } catch {
    return undefined;
  }
}

async function start() {
  placeIcons();
  if (/Mac|iP(hone|ad)/.test(navigator.platform)) {
    for (const keys of document.querySelectorAll("kbd")) keys.textContent = keys.textContent.replace("Ctrl", "⌘");
  }
  byId("loading").firstElementChild.append(...Array.from({ length: 48 }, () => h("i")));
  chat.changed = onChange;
  chat.failed = (error, retry) => {
    if (error.status === 401) askForKey(retry);
    if (error.status === 503) waitForModel();
  };
  startSettings();
  startDialogs();
  startPanels();
  startComposer();
  startSidebar();
  startExperts();
  document.addEventListener("keydown", onKey);
  await store.start();
  mendConversations();
  chat.open(openedBefore() || newConversation());
  showPanels();
  focusEntry();
  await waitForModel();
  await readModel();
  await experts.poll();
  showWelcome();
}

start();
