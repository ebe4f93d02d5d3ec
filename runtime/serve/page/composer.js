// The message field: sending, attachments, long pastes.

const LONG_PASTE = 3000;                  // characters that become an attachment
const MAX_FILE_BYTES = 4 * 1024 * 1024;

const composer = { attachments: [] };

function showComposer() {
  const isRunning = Boolean(chat.run());
  byId("no-template").hidden = chat.canAnswer;
  byId("entry").disabled = !chat.canAnswer;
  const button = byId("send");
  button.replaceChildren(icon(isRunning ? "stop" : "up"));
  button.classList.toggle("stopping", isRunning);
  button.setAttribute("aria-label", isRunning ? "Stop" : "Send");
  button.title = isRunning ? "Stop (Esc)" : "Send (Enter)";
  const isEmpty = byId("entry").value.trim() === "" && composer.attachments.length === 0;
  button.disabled = !isRunning && (isEmpty || !chat.canAnswer);
  const place = byId("attachments");
  place.hidden = composer.attachments.length === 0;
  place.replaceChildren(...composer.attachments.map((each) => attachmentChip(each, () => {
    composer.attachments = composer.attachments.filter((other) => other !== each);
    showComposer();
    byId("entry").focus();
  })));
}

function sendEntry() {
  const entry = byId("entry");
  const text = entry.value.trim();
  if (!chat.canAnswer || chat.run() || (text === "" && composer.attachments.length === 0)) return;
  try {
    requestParameters();
  } catch (error) {
    toast(`Settings: ${error.message}`);
    openSettings();
    return;
  }
  const attachments = composer.attachments;
  composer.attachments = [];
  entry.value = "";
  fitHeight(entry);
  chat.ask(text, attachments);
  scrollToEnd();
}

function stopOrSend() {
  if (chat.run()) chat.stop();
  else sendEntry();
}

function addAttachment(name, text) {
  const taken = new Set(composer.attachments.map((each) => each.name));
  let free = name;
  for (let number = 2; taken.has(free); ++number) free = `${name} ${number}`;
  composer.attachments.push({ name: free, text });
  showComposer();
}

async function attachFiles(files) {
  for (const file of files) {
    if (file.size > MAX_FILE_BYTES) {
      toast(`${file.name} is larger than ${asBytes(MAX_FILE_BYTES)}.`);
      continue;
    }
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new Error();
      addAttachment(file.name, text);
    } catch {
      toast(`${file.name} is not a text file.`);
    }
  }
  byId("entry").focus();
}

const isComposerEmpty = () => byId("entry").value === "" && composer.attachments.length === 0;

function editLast() {
  const last = chat.current.messages.findLast((each) => each.role === "user");
  if (last) thread.views.get(last.id)?.edit();
}

function onEntryKey(event) {
  if (isPlainEnter(event)) {
    event.preventDefault();
    sendEntry();
  } else if (event.key === "ArrowUp" && !event.altKey && isComposerEmpty()) {
    event.preventDefault();
    editLast();
  } else if (event.key === "PageUp" || event.key === "PageDown") {
    event.preventDefault();
    scroller().scrollBy(0, (event.key === "PageUp" ? -0.7 : 0.7) * scroller().clientHeight);
  }
}

function startComposer() {
  const entry = byId("entry");
  entry.addEventListener("input", () => {
    fitHeight(entry);
    showComposer();
  });
  entry.addEventListener("keydown", onEntryKey);
  entry.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files || [])];
    const text = event.clipboardData?.getData("text/plain") || "";
    if (files.length > 0 && text === "") {
      event.preventDefault();
      attachFiles(files);
    } else if (text.length > LONG_PASTE) {
      event.preventDefault();
      addAttachment("Pasted text", text);
    }
  });
  byId("send").addEventListener("click", stopOrSend);
  byId("attach").addEventListener("click", () => byId("files").click());
  byId("files").addEventListener("change", async (event) => {
    await attachFiles(event.target.files);
    event.target.value = "";
  });
  byId("composer").addEventListener("click", (event) => {
    if (event.target === event.currentTarget) entry.focus();
  });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    attachFiles(event.dataTransfer.files);
  });
}
