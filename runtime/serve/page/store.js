// Conversations in IndexedDB: {id, title, created, updated, messages}. A message is
//   {id, role: "user", content, attachments: [{name, text}]}
//   {id, role: "assistant", content, reasoning, calls: [{id, name, arguments}], state, error, stats, tokens}
//   {id, role: "tool", call, content}
// where state is "writing", "done", "stopped", "length", "cut" or "error".

const DATABASE = "moepack";
const STATES = new Set(["done", "stopped", "length", "cut", "error"]);
const TITLE_LENGTH = 40;

const store = {
  database: null,      // null: the browser keeps nothing, this page's memory does
  conversations: new Map(),
  channel: "BroadcastChannel" in self ? new BroadcastChannel("moepack") : null,

  async start() {
    try {
      this.database = await new Promise((resolve, reject) => {
        const opening = indexedDB.open(DATABASE, 1);
        opening.onupgradeneeded = () => opening.result.createObjectStore("conversations", { keyPath: "id" });
        opening.onsuccess = () => resolve(opening.result);
        opening.onerror = opening.onblocked = () => reject(opening.error);
      });
      await this.readAll();
    } catch {
      this.database = null;
      toast("This browser lets the page keep nothing: conversations end with this tab.");
    }
  },

  async readAll() {
    const all = await this.run("readonly", (objects) => objects.getAll());
    this.conversations = new Map(all.map((each) => [each.id, each]));
  },

  run(mode, work) {
    if (!this.database) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const transaction = this.database.transaction("conversations", mode);
      const request = work(transaction.objectStore("conversations"));
      transaction.oncomplete = () => resolve(request?.result);
      transaction.onerror = transaction.onabort = () => reject(transaction.error);
    });
  },

  async write(work, id) {
    try {
      await this.run("readwrite", work);
      this.channel?.postMessage({ id });
    } catch (error) {
      toast(`The browser could not keep the conversation: ${error?.message || "its storage is full"}`);
    }
  },

  // Kept as it is now, whatever changes while the browser writes.
  save(conversation) {
    this.conversations.set(conversation.id, conversation);
    const copy = structuredClone(conversation);
    return this.write((objects) => objects.put(copy), conversation.id);
  },

  remove(id) {
    this.conversations.delete(id);
    return this.write((objects) => objects.delete(id), id);
  },

  clear() {
    this.conversations.clear();
    return this.write((objects) => objects.clear(), null);
  },

  // Newest first; those whose title or messages have every word of `query`.
  list(query = "") {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const hasAll = (conversation) => {
      const text = [conversation.title, ...conversation.messages.map((each) => each.content)].join("\n").toLowerCase();
      return words.every((word) => text.includes(word));
    };
    return [...this.conversations.values()]
      .filter((each) => words.length === 0 || hasAll(each))
      .sort((one, other) => other.updated - one.updated);
  },
};

const newConversation = () => ({ id: makeId(), title: "", created: Date.now(), updated: Date.now(), messages: [] });

function titleOf(text) {
  const line = text.replace(/\s+/g, " ").trim();
  const characters = [...line];
  return characters.length > TITLE_LENGTH ? `${characters.slice(0, TITLE_LENGTH).join("").trimEnd()}…` : line;
}

// --- files ---

const asText = (value) => (typeof value === "string" ? value : "");

function importedMessage(value) {
  const id = makeId();
  if (value?.role === "user") {
    const attachments = (Array.isArray(value.attachments) ? value.attachments : [])
      .map((each) => ({ name: asText(each?.name), text: asText(each?.text) }));
    return { id, role: "user", content: asText(value.content), attachments };
  }
  if (value?.role === "tool") return { id, role: "tool", call: asText(value.call), content: asText(value.content) };
  if (value?.role !== "assistant") return null;
  const calls = (Array.isArray(value.calls) ? value.calls : [])
    .map((each) => ({ id: asText(each?.id), name: asText(each?.name), arguments: asText(each?.arguments) }));
  return {
    id, role: "assistant", content: asText(value.content), reasoning: asText(value.reasoning), calls,
    state: STATES.has(value.state) ? value.state : "done", error: asText(value.error),
  };
}

// The conversations of a file's text, only with members that this page knows; throws with a sentence.
function importedConversations(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON.");
  }
  if (file?.format !== "moepack-conversations" || !Array.isArray(file.conversations)) {
    throw new Error("The file holds no conversations of this page.");
  }
  return file.conversations.map((value) => {
    const time = (number) => (Number.isFinite(number) ? number : Date.now());
    const messages = (Array.isArray(value?.messages) ? value.messages : []).map(importedMessage).filter(Boolean);
    const { title, created, updated } = value || {};
    return { id: makeId(), title: asText(title), created: time(created), updated: time(updated), messages };
  });
}

const exportedFile = (conversations) => ({ format: "moepack-conversations", version: 1, conversations });
