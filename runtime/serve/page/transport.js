// Requests to the server this page came from. Addresses are relative, so that a path before them works.

// What the server refused, or the network: `status` 0 where no answer came.
class ServerError extends Error {
  constructor(message, status = 0, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

function requestHeaders() {
  const headers = { "Content-Type": "application/json" };
  if (settings.key) headers.Authorization = `Bearer ${settings.key}`;
  return headers;
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: requestHeaders(), cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not answer. Is it running?");
  }
  if (response.ok) return response;
  const retryAfter = parseFloat(response.headers.get("Retry-After")) || 0;
  throw new ServerError(await errorText(response), response.status, retryAfter);
}

async function errorText(response) {
  const text = await response.text().catch(() => "");
  try {
    const body = JSON.parse(text);
    return body.error?.message || body.message || text;
  } catch {
    return text.slice(0, 300) || `${response.status} ${response.statusText}`;
  }
}

const getJson = async (path) => (await send(path, { method: "GET" })).json();
const getText = async (path) => (await send(path, { method: "GET" })).text();

// Server-sent events out of pieces of text, however the pieces are cut. Lines end in \n, \r\n or \r.
class EventSplitter {
  constructor(onData, onComment) {
    this.onData = onData;
    this.onComment = onComment;
    this.rest = "";
    this.data = [];
  }

  add(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    for (const line of lines) this.line(line);
  }

  line(line) {
    if (line === "") {
      if (this.data.length > 0) this.onData(this.data.join("\n"));
      this.data = [];
    } else if (line.startsWith(":")) {
      this.onComment(line.slice(1).trim());
    } else if (line.startsWith("data:")) {
      this.data.push(line.slice(line[5] === " " ? 6 : 5));
    }
  }
}

// Asks for an answer and hands each chunk to `onChunk`. Resolves to whether [DONE] came; rejects with
// a ServerError, or an AbortError after `signal`.
async function streamChat(body, signal, onChunk, onComment) {
  const response = await send("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
  let isDone = false;
  const splitter = new EventSplitter((data) => {
    if (data === "[DONE]") {
      isDone = true;
      return;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error.message || "The server failed.", chunk.error.code || 500);
    onChunk(chunk);
  }, onComment);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      splitter.add(decoder.decode(value, { stream: true }));
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof ServerError) throw error;
    if (error instanceof SyntaxError) throw new ServerError("The server sent what is not JSON.");
    return false;  // the connection broke
  } finally {
    reader.cancel().catch(() => {});
  }
  return isDone;
}
