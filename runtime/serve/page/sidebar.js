// The list of conversations: by day, searched, renamed, deleted.

const AGES = [["Today", 0], ["Yesterday", 1], ["Last seven days", 7], ["Last thirty days", 30], ["Earlier", Infinity]];

function ageOf(time) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const days = Math.ceil((midnight - time) / 86400000);
  return AGES.find(([, most]) => days <= most)[0];
}

let isRenaming = false;  // the list stays as it is meanwhile

function showConversations() {
  if (isRenaming) return;
  const query = byId("search").value;
  const found = store.list(query);
  const groups = new Map();
  for (const conversation of found) {
    const age = ageOf(conversation.updated);
    if (!groups.has(age)) groups.set(age, []);
    groups.get(age).push(conversation);
  }
  const sections = [...groups].map(([age, list]) =>
    h("section", {}, h("h2", {}, age), h("ul", {}, ...list.map(conversationRow))));
  const empty = query ? "Nothing found." : "Conversations appear here.";
  if (found.length === 0) sections.push(h("p", { class: "quiet" }, empty));
  byId("conversations").replaceChildren(...sections);
}

function conversationRow(conversation) {
  const isCurrent = conversation.id === chat.current.id;
  const open = h("button", {
    type: "button", class: "open", "aria-current": isCurrent ? "true" : undefined, title: conversation.title,
    onclick: () => openConversation(conversation), ondblclick: () => rename(),
  }, h("span", {}, conversation.title || "Untitled"),
  chat.runs.has(conversation.id) && h("span", { class: "live-dot", role: "img", "aria-label": "answers" }));
  const row = h("li", { class: isCurrent ? "current" : "", "data-id": conversation.id }, open,
    h("div", { class: "row-actions" },
      iconButton("pencil", `Rename ${conversation.title}`, () => rename()),
      iconButton("trash", `Delete ${conversation.title}`, () => deleteConversation(conversation))));
  const rename = () => renameConversation(conversation, row);
  return row;
}

function openConversation(conversation) {
  chat.open(conversation);
  closeOverlays();
  focusEntry();
}

function renameConversation(conversation, row) {
  const field = h("input", { class: "rename", "aria-label": "New name", maxlength: "200" });
  field.value = conversation.title;
  isRenaming = true;
  const close = (keeps) => {
    if (!isRenaming) return;
    isRenaming = false;
    if (keeps && field.value.trim()) conversation.title = field.value.trim();
    store.save(conversation);
    chat.changed(conversation, null);
    document.querySelector(`#conversations [data-id="${conversation.id}"] .open`)?.focus();
  };
  field.addEventListener("blur", () => close(true));
  field.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") close(true);
    if (event.key === "Escape") close(false);
  });
  row.replaceChildren(field);
  field.focus();
  field.select();
}

async function deleteConversation(conversation) {
  chat.runs.get(conversation.id)?.controller.abort();
  const copy = structuredClone(conversation);
  await store.remove(conversation.id);
  if (chat.current.id === conversation.id) chat.open(newConversation());
  else showConversations();
  toast("Conversation deleted.", {
    label: "Undo",
    run: async () => {
      await store.save(copy);
      chat.open(copy);
    },
  });
  (document.querySelector("#conversations .open") || byId("new-chat")).focus();
}

// The conversation `step` places below the open one in the list.
function openNeighbour(step) {
  const list = store.list(byId("search").value);
  const at = list.findIndex((each) => each.id === chat.current.id);
  const next = list[at < 0 ? 0 : at + step];
  if (next) openConversation(next);
}

function startNewChat() {
  chat.open(newConversation());
  closeOverlays();
  byId("entry").focus();
}

async function importFile(file) {
  try {
    const conversations = importedConversations(await file.text());
    for (const conversation of conversations) await store.save(conversation);
    showConversations();
    toast(`${conversations.length} ${conversations.length === 1 ? "conversation" : "conversations"} imported.`);
  } catch (error) {
    toast(error.message);
  }
}

async function deleteAll() {
  const all = store.list();
  if (all.length === 0) return;
  for (const run of chat.runs.values()) run.controller.abort();
  await store.clear();
  chat.open(newConversation());
  toast(`${all.length} ${all.length === 1 ? "conversation" : "conversations"} deleted.`, {
    label: "Undo",
    run: async () => {
      for (const conversation of all) await store.save(conversation);
      showConversations();
    },
  });
}

function startSidebar() {
  const day = () => new Date().toISOString().slice(0, 10);
  byId("new-chat").addEventListener("click", startNewChat);
  byId("search").addEventListener("input", showConversations);
  byId("export-all").addEventListener("click", () => downloadJson(`moepack-${day()}.json`, exportedFile(store.list())));
  byId("export-one").addEventListener("click", () =>
    downloadJson(`moepack-conversation-${day()}.json`, exportedFile([chat.current])));
  byId("import").addEventListener("click", () => byId("import-file").click());
  byId("import-file").addEventListener("change", async (event) => {
    for (const file of event.target.files) await importFile(file);
    event.target.value = "";
  });
  byId("delete-all").addEventListener("click", () => {
    byId("settings").close();
    deleteAll();
  });
  store.channel?.addEventListener("message", async ({ data }) => {
    if (chat.runs.size > 0) return;  // what runs here is newer
    await store.readAll().catch(() => {});
    const current = store.conversations.get(chat.current.id);
    if (current && data.id === current.id) chat.open(current);
    else showConversations();
  });
}
