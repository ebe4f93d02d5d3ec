// The messages of the open conversation. A view is {message, node, update}; updates touch what changed.

const thread = {
  views: new Map(),      // by message id
  shown: null,           // id of the conversation
  waiting: new Set(),    // messages to update in the next frame

  // Shows the conversation as it is now; views of messages that stay are kept.
  show(conversation) {
    if (this.shown !== conversation.id) this.views.clear();
    const isOther = this.shown !== conversation.id;
    this.shown = conversation.id;
    const place = byId("thread");
    const stick = isOther || isAtEnd();
    const run = chat.runs.get(conversation.id);
    const shownMessages = conversation.messages.filter((each) => each.role !== "tool");
    const nodes = shownMessages.map((message) => {
      let view = this.views.get(message.id);
      if (!view || view.message !== message) {
        view = message.role === "user" ? userView(message) : assistantView(message, conversation);
        this.views.set(message.id, view);
      }
      view.update(run?.message === message ? run : null, message === shownMessages.at(-1));
      return view.node;
    });
    nodes.forEach((node, at) => {
      if (place.childNodes[at] !== node) place.insertBefore(node, place.childNodes[at] || null);
    });
    while (place.childNodes.length > nodes.length) place.lastChild.remove();
    place.classList.toggle("busy", Boolean(run));
    if (stick) scrollToEnd();
  },

  // An answer grew: its view is updated once a frame.
  touch(message) {
    this.waiting.add(message);
    if (this.waiting.size > 1) return;
    requestAnimationFrame(() => {
      const stick = isAtEnd();
      for (const each of this.waiting) this.views.get(each.id)?.update(chat.run(), true);
      this.waiting.clear();
      if (stick) scrollToEnd();
      showEndButton();
    });
  },
};

const scroller = () => byId("scroller");
const isAtEnd = () => scroller().scrollHeight - scroller().scrollTop - scroller().clientHeight < 60;
function scrollToEnd() {
  scroller().scrollTop = scroller().scrollHeight;
  showEndButton();
}
function showEndButton() {
  byId("to-end").hidden = isAtEnd();
}

// --- the user's messages ---

function userView(message) {
  const text = h("div", { class: "said" });
  const files = h("div", { class: "attachments", role: "list" });
  const actions = h("div", { class: "actions" });
  const node = h("article", { class: "message user", "aria-label": "You" }, files, text, actions);
  const view = { message, node, update() {} };
  view.edit = () => editMessage(view, text, actions);
  text.textContent = message.content;
  text.hidden = message.content === "";
  files.hidden = message.attachments.length === 0;
  files.append(...message.attachments.map((each) => attachmentChip(each)));
  actions.append(iconButton("pencil", "Edit message", view.edit, "when-idle"),
    copyButton("Copy message", () => message.content));
  return view;
}

function attachmentChip(attachment, remove) {
  const show = () => showText(attachment.name, attachment.text);
  const open = h("button", { type: "button", class: "file", title: "Show", onclick: show },
    icon("file"), h("span", {}, attachment.name), h("small", {}, asBytes(new Blob([attachment.text]).size)));
  return h("div", { class: "attachment", role: "listitem" }, open,
    remove && iconButton("close", `Remove ${attachment.name}`, remove));
}

function showText(title, text) {
  byId("viewer-title").textContent = title;
  byId("viewer-body").replaceChildren(h("pre", { class: "plain" }, text));
  byId("viewer").showModal();
}

function editMessage(view, text, actions) {
  if (chat.run() || view.isEdited) return;
  view.isEdited = true;
  const area = h("textarea", { class: "edit", "aria-label": "Edit message" });
  area.value = view.message.content;
  const close = () => {
    view.isEdited = false;
    box.replaceWith(text);
    actions.hidden = false;
    byId("entry").focus();
  };
  const sendEdit = () => {
    if (!area.value.trim() && view.message.attachments.length === 0) return;
    close();
    chat.edit(view.message, area.value.trim());
  };
  const box = h("div", { class: "edit-box" }, area, h("div", { class: "button-row" },
    h("button", { type: "button", onclick: close }, "Cancel"),
    h("button", { type: "button", class: "primary", onclick: sendEdit }, "Send")));
  area.addEventListener("input", () => fitHeight(area));
  area.addEventListener("keydown", (event) => {
    if (isPlainEnter(event)) {
      event.preventDefault();
      sendEdit();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      close();
    }
  });
  actions.hidden = true;
  text.replaceWith(box);
  fitHeight(area);
  area.focus();
}

const isPlainEnter = (event) =>
  event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey && !event.isComposing;

function fitHeight(area) {
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight + 2, Math.round(innerHeight * 0.4))}px`;
}

// --- answers ---

function assistantView(message, conversation) {
  const parts = {
    thinking: thinkingPart(message),
    progress: progressPart(),
    text: h("div", { class: "markdown" }),
    calls: h("div", { class: "calls" }),
    notice: h("div", { class: "notice", role: "alert" }),
    foot: h("footer", { class: "answer-foot" }),
  };
  const node = h("article", { class: "message assistant", "aria-label": "Answer" },
    parts.thinking.node, parts.progress.node, parts.text, parts.calls, parts.notice, parts.foot);
  const view = { message, node, showsTokens: false };
  view.update = (run, isLast) => {
    const isWriting = run !== null && run !== undefined && run.message === message;
    node.classList.toggle("writing", isWriting);
    node.classList.toggle("last", isLast);
    node.setAttribute("aria-busy", String(isWriting));
    parts.thinking.update(isWriting);
    parts.progress.update(isWriting ? run : null);
    showAnswerText(view, parts.text);
    showCalls(parts.calls, message, conversation, isWriting);
    showNotice(parts.notice, message, isWriting, isLast);
    showFoot(parts.foot, view, isWriting ? run : null);
  };
  return view;
}

function showAnswerText(view, place) {
  const { message } = view;
  const showsTokens = view.showsTokens && message.tokens?.length > 0;
  if (showsTokens !== Boolean(place.showsTokens)) {
    place.showsTokens = showsTokens;
    place.shownBlocks = [];
    place.replaceChildren();
    if (showsTokens) place.append(tokenSpans(message.tokens));
  }
  if (!showsTokens) showMarkdown(place, message.content);
}

// Each token with its probability as shade, the alternatives in its title.
function tokenSpans(tokens) {
  const spans = tokens.map(([text, probability, others]) => {
    const level = Math.min(4, Math.floor(-Math.log2(Math.max(probability, 1e-3)) / 1.2));
    const title = [`${JSON.stringify(text)} ${asPercent(probability, 1)}`, "",
      ...others.map(([other, share]) => `${JSON.stringify(other)} ${asPercent(share, 1)}`)].join("\n");
    return h("span", { class: `token p${level}`, title }, text);
  });
  return h("div", { class: "tokens" }, ...spans);
}

function thinkingPart(message) {
  const label = h("span", {});
  const text = h("div", { class: "thoughts markdown" });
  const node = h("details", { class: "thinking" }, h("summary", {}, label), text);
  let wasThinking = null;
  node.addEventListener("toggle", () => node.open && showMarkdown(text, message.reasoning));
  return {
    node,
    update(isWriting) {
      const isThinking = isWriting && message.content === "" && message.calls.length === 0;
      node.hidden = message.reasoning === "";
      if (isThinking !== wasThinking) node.open = isThinking;  // afterwards the reader decides
      wasThinking = isThinking;
      node.classList.toggle("active", isThinking);
      const { thoughtSeconds } = message;
      label.textContent = isThinking ? "Thinking"
        : thoughtSeconds ? `Thought for ${asDuration(thoughtSeconds)}` : "Thoughts";
      if (node.open) showMarkdown(text, message.reasoning);
    },
  };
}

function progressPart() {
  const bar = h("div", { class: "bar" });
  const track = h("div", { class: "track", role: "progressbar", "aria-label": "Prompt" }, bar);
  const text = h("p", {});
  const node = h("div", { class: "progress" }, track, text);
  return {
    node,
    update(run) {
      const isOpen = run && run.pieces === 0;
      node.hidden = !isOpen;
      if (!isOpen) return;
      const share = run.progress?.total > 0 ? run.progress.processed / run.progress.total : 0;
      track.hidden = !run.progress;
      track.setAttribute("aria-valuenow", String(Math.round(share * 100)));
      bar.style.width = `${(share * 100).toFixed(1)}%`;
      text.textContent = run.progress ? progressText(run.progress) : waitingText(run.queued);
    },
  };
}

function waitingText(before) {
  if (!(before > 0)) return "Waiting for the model";
  return `Waiting for ${before} ${before === 1 ? "request" : "requests"} before this one`;
}

// {total, cache, processed, time_ms}; processed counts the cached tokens too.
function progressText({ total, cache = 0, processed, time_ms: milliseconds = 0 }) {
  const done = `Prompt ${asCount(processed)} of ${asCount(total)}`;
  const rate = milliseconds > 0 ? (processed - cache) / (milliseconds / 1000) : 0;
  const known = cache > 0 ? `${done}, ${asCount(cache)} known` : done;
  if (!(rate > 0) || processed >= total) return known;
  return `${known} · ${asRate(rate)} tokens/s · about ${asDuration((total - processed) / rate)} left`;
}

function noticeButtons(message, canRetry) {
  const button = (label, onclick) => h("button", { type: "button", onclick }, label);
  const canGoOn = message.content !== "" && message.calls.length === 0;
  return h("div", { class: "button-row" }, canGoOn && button("Go on", () => chat.goOn(message)),
    canRetry && button("Try again", () => chat.regenerate(message)));
}

function showNotice(place, message, isWriting, isLast) {
  const say = (kind, text, canRetry) => {
    if (place.shown === `${kind}${text}${isLast}`) return;
    place.shown = `${kind}${text}${isLast}`;
    place.className = `notice ${kind}`;
    place.replaceChildren(h("span", {}, text), isLast ? noticeButtons(message, canRetry) : "");
  };
  place.hidden = isWriting || message.state === "done" || message.state === "writing";  // another tab's
  if (place.hidden) {
    place.shown = "";
    place.replaceChildren();
    return;
  }
  const wait = message.retryAfter ? ` The server asks to wait ${asDuration(message.retryAfter)}.` : "";
  if (message.state === "error") say("bad", message.error + wait, true);
  else if (message.state === "stopped") say("quiet", "Stopped.", false);
  else if (message.state === "length") say("quiet", "Ended at the limit of tokens.", false);
  else say("bad", "The answer broke off: the connection ended before it.", true);
}

function showFoot(place, view, run) {
  const { message } = view;
  if (run) {
    const rate = liveRate(run);
    place.replaceChildren(h("span", { class: "stats live" },
      run.pieces > 0 ? `${asCount(run.pieces)} tokens${rate > 0 ? ` · ${asRate(rate)} tokens/s` : ""}` : ""));
    place.shown = null;
    return;
  }
  if (place.shown === message.stats) return;
  place.shown = message.stats ?? undefined;
  const tokens = message.tokens?.length > 0 && iconButton("tokens", "Show the probabilities of tokens", () => {
    view.showsTokens = !view.showsTokens;
    view.update(null, view.node.classList.contains("last"));
  });
  place.replaceChildren(statsLine(message.stats), h("div", { class: "actions" }, tokens || "",
    copyButton("Copy answer", () => message.content),
    iconButton("again", "Answer again", () => chat.regenerate(message), "when-idle only-last")));
}

function statsLine(stats) {
  if (!stats || !stats.tokens) return h("span", { class: "stats" });
  const parts = [`${asCount(stats.tokens)} tokens`];
  if (stats.rate > 0) parts.push(`${asRate(stats.rate)} tokens/s`);
  if (stats.prompt > 0) {
    parts.push(`prompt ${asCount(stats.prompt)}${stats.cached > 0 ? `, ${asCount(stats.cached)} known` : ""}` +
      `${stats.promptRate > 0 ? `, ${asRate(stats.promptRate)} tokens/s` : ""}`);
  }
  const uses = stats.hits + stats.misses;
  if (uses > 0) parts.push(`experts ${asPercent(stats.hits, uses)} from memory`);
  return h("span", { class: "stats" }, ...parts.map((part) => h("span", {}, part)));
}

// --- tool calls ---

function resultsOf(message, conversation) {
  const { messages } = conversation;
  const results = [];
  for (let at = messages.indexOf(message) + 1; messages[at]?.role === "tool"; ++at) results.push(messages[at].content);
  return results;
}

function showCalls(place, message, conversation, isWriting) {
  const results = resultsOf(message, conversation);
  const isOpen = !isWriting && message.calls.length > 0 && conversation.messages.at(-1) === message;
  const key = JSON.stringify([message.calls, results, isWriting, isOpen]);
  if (place.shownCalls === key) return;
  place.shownCalls = key;
  place.replaceChildren(...message.calls.map((call, at) => callCard(call, results[at], isWriting, isOpen)));
  if (isOpen) place.append(resultButtons(place, message));
}

function callCard(call, result, isWriting, isOpen) {
  const args = isWriting ? call.arguments : prettyJson(call.arguments || "{}");
  const code = h("code", {});
  code.append(...highlight(args, "json"));
  const missing = isOpen ? "waits for its result" : result === undefined ? "no result" : "";
  const state = isWriting ? "is being called" : missing;
  const card = h("section", { class: "call", "aria-label": `Call of ${call.name}` },
    h("header", {}, icon("tool"), h("strong", {}, call.name || "…"), h("span", { class: "quiet" }, state)),
    h("pre", { tabindex: "0" }, code));
  if (isOpen) {
    const area = h("textarea", {
      rows: "2", class: "result", "aria-label": `Result of ${call.name}`,
      placeholder: "Type or paste what the tool gives back",
    });
    area.addEventListener("input", () => fitHeight(area));
    card.append(area);
  } else if (result !== undefined) {
    card.append(h("div", { class: "result-head" }, "Result"), h("pre", { class: "plain", tabindex: "0" }, result));
  }
  return card;
}

function resultButtons(place, message) {
  const give = () => {
    const areas = [...place.querySelectorAll("textarea.result")];
    chat.giveResults(message, areas.map((area) => area.value));
  };
  for (const area of place.querySelectorAll("textarea.result")) {
    area.addEventListener("keydown", (event) => {
      if (!isPlainEnter(event)) return;
      event.preventDefault();
      const next = [...place.querySelectorAll("textarea.result")].find((each) => each.value === "");
      if (next) next.focus();
      else give();
    });
  }
  const label = message.calls.length === 1 ? "Send the result" : "Send the results";
  return h("div", { class: "button-row" }, h("button", { type: "button", class: "primary", onclick: give }, label));
}
