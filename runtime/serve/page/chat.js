// Conversations and their answers: what is sent, what comes back, stop, edit, regenerate, tool results.
// Views listen to `chat.changed(conversation, message)`; message null means that the list changed.

const NO_RESULT = "(The user gave no result.)";
const SAVE_EVERY_MS = 2000;

const chat = {
  current: newConversation(),
  model: { id: "", context: 0 },
  canAnswer: true,        // the model has a chat template
  runs: new Map(),        // by conversation id, see newRun; one answer a conversation
  changed: () => {},
  failed: () => {},       // (error, retry)

  run() {
    return this.runs.get(this.current.id);
  },

  touch(conversation) {
    conversation.updated = Date.now();
    return store.save(conversation);
  },

  open(conversation) {
    this.current = conversation;
    this.changed(conversation, null);
  },

  async ask(text, attachments) {
    const conversation = this.current;
    if (this.runs.has(conversation.id)) return;
    if (conversation.messages.length === 0) {
      conversation.title = titleOf(text || attachments[0]?.name || "");
      navigator.storage?.persist?.().catch(() => {});
    }
    conversation.messages.push({ id: makeId(), role: "user", content: text, attachments });
    await this.answer(conversation);
  },

  // Everything after the message is dropped; `undo` puts it back.
  async truncate(conversation, message, keep) {
    const before = structuredClone(conversation.messages);
    const at = conversation.messages.indexOf(message);
    conversation.messages.length = at + (keep ? 1 : 0);
    const undo = async () => {
      this.runs.get(conversation.id)?.controller.abort();
      conversation.messages = before;
      await this.touch(conversation);
      this.changed(conversation, null);
    };
    return { undo, dropped: before.length - conversation.messages.length };
  },

  async edit(message, text) {
    const conversation = this.current;
    if (this.runs.has(conversation.id)) return;
    const { undo } = await this.truncate(conversation, message, false);
    conversation.messages.push({ ...message, id: makeId(), content: text });
    if (conversation.messages.length === 1) conversation.title = titleOf(text);
    toast("Edited; what followed was dropped.", { label: "Undo", run: undo });
    await this.answer(conversation);
  },

  // Another answer to the last message of the user, or to the results of tools.
  async regenerate(message) {
    const conversation = this.current;
    if (this.runs.has(conversation.id)) return;
    const hadText = message.content !== "" || message.calls.length > 0;
    const { undo } = await this.truncate(conversation, message, false);
    if (hadText) toast("The earlier answer was dropped.", { label: "Undo", run: undo });
    await this.answer(conversation);
  },

  async giveResults(message, results) {
    const conversation = this.current;
    if (this.runs.has(conversation.id)) return;
    message.calls.forEach((call, at) =>
      conversation.messages.push({ id: makeId(), role: "tool", call: call.id, name: call.name, content: results[at] }));
    await this.answer(conversation);
  },

  // The server writes on where the answer ended.
  async goOn(message) {
    const conversation = this.current;
    if (this.runs.has(conversation.id)) return;
    await this.answer(conversation, message);
  },

  stop() {
    this.run()?.controller.abort();
  },

  async answer(conversation, begun = null) {
    const message = begun || { id: makeId(), role: "assistant", content: "", reasoning: "", calls: [], stats: null };
    Object.assign(message, { state: "writing", error: "" });
    const run = newRun(message);
    const sent = [...conversation.messages];
    if (!begun) conversation.messages.push(message);
    this.runs.set(conversation.id, run);
    await this.touch(conversation);
    this.changed(conversation, null);
    announce("Answer started");
    try {
      const body = { ...requestBody(sent), ...(begun ? { continue_final_message: true } : {}) };
      await this.receive(conversation, run, body);
    } catch (error) {
      noteFailure(message, error);
      this.failed(error, () => this.regenerate(message));
    }
    finishRun(run);
    this.runs.delete(conversation.id);
    await this.touch(conversation);
    this.changed(conversation, null);
    announce(message.state === "error" ? message.error : "Answer finished");
    const uses = await experts.usesOf(run);
    if (!uses || store.conversations.get(conversation.id) !== conversation) return;
    message.stats = { ...message.stats, ...uses };
    await this.touch(conversation);
    this.changed(conversation, null);
  },

  async receive(conversation, run, body) {
    const { message } = run;
    const isDone = await streamChat(body, run.controller.signal, (chunk) => {
      takeChunk(run, chunk);
      this.changed(conversation, message);
      if (Date.now() - run.savedAt > SAVE_EVERY_MS) {
        run.savedAt = Date.now();
        store.save(conversation);
      }
    }, (comment) => {
      const queued = /^queued\D*(\d+)/.exec(comment);
      if (queued) {
        run.queued = parseInt(queued[1], 10);
        this.changed(conversation, message);
      }
    });
    if (message.state === "writing") message.state = isDone || run.isFinished ? "done" : "cut";
  },
};

// An answer on its way: `before` tokens were there when it went on; `first` and `marks` are times of pieces;
// `map` is the map of experts that was known before it.
const newRun = (message) => (
  { controller: new AbortController(), message, before: message.stats?.tokens || 0, first: 0, pieces: 0, marks: [],
    savedAt: Date.now(), map: experts.map });

function noteFailure(message, error) {
  if (error.name === "AbortError") {
    message.state = "stopped";
    return;
  }
  message.state = "error";
  message.error = error.message || String(error);
  message.status = error.status || 0;
  message.retryAfter = error.retryAfter || 0;
}

// --- what is sent ---

// A fence longer than any in the text.
function attachmentText({ name, text }) {
  const longest = (text.match(/`+/g) || []).reduce((most, run) => Math.max(most, run.length), 2);
  const fence = "`".repeat(longest + 1);
  return `File ${name}:\n${fence}\n${text}\n${fence}\n`;
}

function userContent(message) {
  return [...message.attachments.map(attachmentText), message.content].filter(Boolean).join("\n");
}

// Thoughts of the turn under way go back: of earlier ones the template would drop them.
function assistantMessage(message, isCurrentTurn) {
  const sent = { role: "assistant", content: message.content };
  if (isCurrentTurn && message.reasoning) sent.reasoning_content = message.reasoning;
  if (message.calls.length > 0) {
    sent.tool_calls = message.calls.map((call) => (
      { id: call.id, type: "function", function: { name: call.name, arguments: call.arguments || "{}" } }));
  }
  return sent;
}

// A call whose result nobody gave gets a line that says so: templates want one for each.
function requestMessages(messages) {
  const sent = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  const lastUser = messages.findLastIndex((each) => each.role === "user");
  messages.forEach((message, at) => {
    if (message.role === "user") sent.push({ role: "user", content: userContent(message) });
    if (message.role === "tool") sent.push({ role: "tool", tool_call_id: message.call, content: message.content });
    if (message.role !== "assistant" || (message.content === "" && message.calls.length === 0)) return;
    sent.push(assistantMessage(message, at > lastUser));
    if (messages[at + 1]?.role === "tool") return;
    for (const call of message.calls) sent.push({ role: "tool", tool_call_id: call.id, content: NO_RESULT });
  });
  return sent;
}

function requestBody(messages) {
  const body = {
    messages: requestMessages(messages), stream: true, stream_options: { include_usage: true }, return_progress: true,
    ...requestParameters(),
  };
  if (chat.model.id && !body.model) body.model = chat.model.id;
  return body;
}

// --- what comes back ---

function takeChunk(run, chunk) {
  const { message } = run;
  if (chunk.prompt_progress) run.progress = chunk.prompt_progress;
  if (chunk.usage) run.usage = chunk.usage;
  if (chunk.timings) run.timings = chunk.timings;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const delta = choice.delta || {};
  const thought = delta.reasoning_content ?? delta.reasoning;
  if (thought) message.reasoning += thought;
  if (delta.content) {
    if (message.reasoning && !message.content) message.thoughtSeconds = (performance.now() - run.first) / 1000;
    message.content += delta.content;
  }
  for (const call of delta.tool_calls || []) takeCall(message, call);
  if (choice.logprobs?.content) takeProbabilities(message, choice.logprobs.content);
  if (thought || delta.content || delta.tool_calls) countPiece(run);
  if (choice.finish_reason) {
    run.isFinished = true;
    message.state = choice.finish_reason === "length" ? "length" : "done";
  }
}

function takeCall(message, delta) {
  const at = delta.index ?? 0;
  if (!Number.isInteger(at) || at < 0 || at > message.calls.length) return;
  if (at === message.calls.length) message.calls.push({ id: "", name: "", arguments: "" });
  const call = message.calls[at];
  if (delta.id) call.id = delta.id;
  if (delta.function?.name) call.name = delta.function.name;
  if (delta.function?.arguments) call.arguments += delta.function.arguments;
}

// tokens: [text, probability, [[text, probability], …]]
function takeProbabilities(message, content) {
  message.tokens ??= [];
  for (const token of content) {
    message.tokens.push([token.token, Math.exp(token.logprob),
      (token.top_logprobs || []).map((other) => [other.token, Math.exp(other.logprob)])]);
  }
}

function countPiece(run) {
  const now = performance.now();
  if (run.pieces === 0) run.first = now;
  ++run.pieces;
  run.marks.push(now);
  if (run.marks.length > 400) run.marks.splice(0, 200);
}

// Pieces a second over the last seconds: about one token a piece.
function liveRate(run) {
  const now = performance.now();
  const marks = run.marks.filter((mark) => now - mark < 4000);
  if (marks.length < 2) return 0;
  const span = (now - marks[0]) / 1000;
  return span > 0.2 ? marks.length / span : 0;
}

function finishRun(run) {
  const { message, usage, timings } = run;
  const seconds = (performance.now() - run.first) / 1000;
  message.stats = {
    rate: timings?.predicted_per_second ?? (run.pieces > 1 && seconds > 0 ? run.pieces / seconds : 0),
    tokens: run.before + (usage?.completion_tokens ?? timings?.predicted_n ?? run.pieces),
    prompt: usage?.prompt_tokens ?? (timings ? timings.prompt_n + (timings.cache_n || 0) : 0),
    cached: usage?.prompt_tokens_details?.cached_tokens ?? timings?.cache_n ?? 0,
    promptRate: timings?.prompt_per_second ?? 0,
  };
}
