// Markdown to elements. Text of the model reaches the document as text nodes only: there is no HTML to
// escape, and a link is one only where its address begins with http, https or mailto.

// Expressions here must take time by the length of a line, whatever it is: what may be matched in two ways
// is left to code, and [^] stands where a dot would stop at U+2028.
const FENCE_MARKS = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+([^]*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])(?:[ \t]+([^]*)|)$/;
const QUOTE = /^ {0,3}>[ ]?/;
const TABLE_RULE = /^:?-+:?$/;  // in each cell
const MAX_DEPTH = 10;  // of lists and quotes inside each other
const MAX_COLUMNS = 100;

const isBlank = (line) => line.trim() === "";
const indentOf = (line) => line.match(/^[ \t]*/)[0].replace(/\t/g, "    ").length;

// [marks, language] of a line that opens a block of code, or null.
function fenceOf(line) {
  const start = line.match(FENCE_MARKS);
  if (!start || line.includes("`", start[0].length)) return null;
  return [start[1], line.slice(start[0].length).trim().split(/\s/, 1)[0]];
}

function isTableHead(lines, at) {
  if (!lines[at].includes("|") || at + 1 >= lines.length || !lines[at + 1].includes("-")) return false;
  const rules = tableCells(lines[at + 1]);
  return rules.length <= MAX_COLUMNS && rules.every((rule) => TABLE_RULE.test(rule)) &&
    tableCells(lines[at]).length === rules.length;
}

function startsBlock(lines, at) {
  const line = lines[at];
  return fenceOf(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) ||
    ITEM.test(line) || isTableHead(lines, at);
}

// Index of the line after the block that begins at `at`.
function blockEnd(lines, at) {
  const fence = fenceOf(lines[at]);
  if (fence) return fenceEnd(lines, at, fence[0]);
  if (HEADING.test(lines[at]) || RULE.test(lines[at])) return at + 1;
  if (QUOTE.test(lines[at])) return runEnd(lines, at, (line) => QUOTE.test(line));
  if (ITEM.test(lines[at])) return listEnd(lines, at);
  if (isTableHead(lines, at)) return runEnd(lines, at + 1, (line) => line.includes("|"));
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !startsBlock(lines, end)) ++end;
  return end;
}

function runEnd(lines, at, belongs) {
  let end = at + 1;
  while (end < lines.length && belongs(lines[end])) ++end;
  return end;
}

function fenceEnd(lines, at, marks) {
  const closing = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}[ \\t]*$`);
  for (let end = at + 1; end < lines.length; ++end) if (closing.test(lines[end])) return end + 1;
  return lines.length;
}

// A list goes on over items of its kind, indented lines, and blank lines before either of them.
function listEnd(lines, at) {
  const base = indentOf(lines[at]);
  const kind = lines[at].match(ITEM)[2].at(-1);
  const isItem = (line) => {
    const match = line.match(ITEM);
    return match && !RULE.test(line) && (match[2].at(-1) === kind || indentOf(line) > base + 1);
  };
  let end = at + 1;
  while (end < lines.length) {
    let next = end;
    while (next < lines.length && isBlank(lines[next])) ++next;
    if (next === lines.length) return end;
    const isPart = isItem(lines[next]) || indentOf(lines[next]) > base ||
      (next === end && !startsBlock(lines, next));
    if (!isPart) return end;
    const fence = fenceOf(lines[next]);
    end = fence ? fenceEnd(lines, next, fence[0]) : next + 1;
  }
  return end;
}

function splitBlocks(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (isBlank(lines[at])) {
      ++at;
      continue;
    }
    const end = blockEnd(lines, at);
    blocks.push(lines.slice(at, end).join("\n"));
    at = end;
  }
  return blocks;
}

function renderBlock(source, depth) {
  const lines = source.split("\n");
  const fence = fenceOf(lines[0]);
  if (fence) return codeBlock(lines, fence);
  const heading = lines[0].match(HEADING);
  if (heading) return h(`h${Math.min(6, heading[1].length + 1)}`, {}, inline(heading[2].trim().replace(/ #+$/, "")));
  if (RULE.test(lines[0])) return h("hr");
  if (depth < MAX_DEPTH && QUOTE.test(lines[0])) {
    return h("blockquote", {}, ...renderBlocks(lines.map((line) => line.replace(QUOTE, "")).join("\n"), depth + 1));
  }
  if (depth < MAX_DEPTH && ITEM.test(lines[0])) return list(lines, depth);
  if (isTableHead(lines, 0)) return table(lines);
  return h("p", {}, inline(source.trim()));
}

const renderBlocks = (text, depth) => splitBlocks(text).map((block) => renderBlock(block, depth));

function codeBlock(lines, fence) {
  const isClosed = lines.length > 1 && lines.at(-1).trim().startsWith(fence[0]);
  const code = lines.slice(1, isClosed ? -1 : undefined).join("\n");
  const language = fence[1].toLowerCase();
  const element = h("code", {});
  element.append(...highlight(code, language));
  return h("div", { class: "code" },
    h("div", { class: "code-head" }, h("span", {}, language || "text"), copyButton("Copy code", () => code)),
    h("pre", { tabindex: "0" }, element));
}

function list(lines, depth) {
  const first = lines[0].match(ITEM);
  const isOrdered = /\d/.test(first[2]);
  const base = indentOf(lines[0]);
  const start = isOrdered ? parseInt(first[2], 10) : 1;
  const node = h(isOrdered ? "ol" : "ul", start === 1 ? {} : { start });
  let item = null;
  const close = () => item && node.append(listItem(item, depth));
  let fenceLeft = 0;
  lines.forEach((line, at) => {
    const match = fenceLeft > 0 ? null : line.match(ITEM);
    const fence = fenceLeft > 0 ? null : fenceOf(line);
    if (fenceLeft > 0) --fenceLeft;
    else if (fence) fenceLeft = fenceEnd(lines, at, fence[0]) - at - 1;
    if (match && indentOf(line) <= base + 1) {
      close();
      item = { width: base + match[2].length + 1, lines: [match[3] || ""] };
    } else {
      const space = Math.min(indentOf(line), item.width);
      item.lines.push(line.replace(/\t/g, "    ").slice(space));
    }
  });
  close();
  return node;
}

function listItem(item, depth) {
  const task = item.lines[0].match(/^\[([ xX])\][ \t]+([^]*)$/);
  if (task) item.lines[0] = task[2];
  const children = renderBlocks(item.lines.join("\n"), depth + 1);
  // The paragraph of a tight item is its text.
  if (children.length > 0 && children[0].tagName === "P" && !item.lines.some(isBlank)) {
    children.splice(0, 1, ...children[0].childNodes);
  }
  if (!task) return h("li", {}, ...children);
  const isDone = task[1] !== " ";
  const box = h("span", { class: isDone ? "box done" : "box", role: "img", "aria-label": isDone ? "done" : "open" });
  return h("li", { class: "task" }, box, ...children);
}

function tableCells(line) {
  const cells = [];
  let cell = "";
  const text = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  for (let at = 0; at < text.length; ++at) {
    if (text[at] === "\\" && text[at + 1] === "|") {
      cell += "|";
      ++at;
    } else if (text[at] === "|") {
      cells.push(cell.trim());
      cell = "";
    } else {
      cell += text[at];
    }
  }
  cells.push(cell.trim());
  return cells;
}

function table(lines) {
  const sides = tableCells(lines[1]).map((rule) =>
    rule.endsWith(":") ? (rule.startsWith(":") ? "middle" : "end") : "start");
  const row = (line, tag) => {
    const cells = tableCells(line);
    return h("tr", {}, ...sides.map((side, at) => h(tag, { class: side }, inline(cells[at] || ""))));
  };
  return h("div", { class: "table", tabindex: "0" }, h("table", {},
    h("thead", {}, row(lines[0], "th")),
    h("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))));
}

// --- inside a line ---

const LINK_ADDRESS = /^(?:https?:\/\/|mailto:)[^\s<>"]+$/i;
const BARE_LINK = /(?:https?:\/\/)[^\s<>"`]+/iy;
const PUNCTUATION = /[!"#$%&'*+,\-./:;<=>?@\[\]^_`{|}~\\]/;

function link(address, children) {
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

const inline = (text, depth = 0) => new InlineReader(text, depth).read();

class InlineReader {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.nodes = document.createDocumentFragment();
    this.plain = "";
    this.at = 0;
    this.absent = new Set();  // closing marks that no later place has: keeps hostile text linear
  }

  read() {
    while (this.at < this.text.length) {
      if (!this.special(this.text[this.at])) this.plain += this.text[this.at++];
    }
    this.flush();
    return this.nodes;
  }

  flush() {
    if (this.plain) this.nodes.append(this.plain);
    this.plain = "";
  }

  push(node, end) {
    this.flush();
    this.nodes.append(node);
    this.at = end;
    return true;
  }

  special(char) {
    switch (char) {
      case "\n": return this.push(h("br"), this.at + 1);
      case "\\": return this.escape();
      case "`": return this.code();
      case "*": case "_": case "~": return this.depth < MAX_DEPTH && this.emphasis(char);
      case "!": return this.text[this.at + 1] === "[" && this.bracket(this.at + 1);
      case "[": return this.bracket(this.at);
      case "<": return this.angle();
      case "h": case "H": return this.bareLink();
      default: return false;
    }
  }

  escape() {
    const next = this.text[this.at + 1];
    if (!next || next === "[" || next === "]" || !PUNCTUATION.test(next)) return false;  // \[ begins a formula
    this.plain += next;
    this.at += 2;
    return true;
  }

  code() {
    const marks = this.text.slice(this.at).match(/^`+/)[0];
    const end = this.codeEnd(this.at, marks);
    if (end < 0) {
      this.plain += marks;
      this.at += marks.length;
      return true;
    }
    let code = this.text.slice(this.at + marks.length, end - marks.length).replace(/\n/g, " ");
    if (code.startsWith(" ") && code.endsWith(" ") && /[^ ]/.test(code)) code = code.slice(1, -1);
    return this.push(h("code", {}, code), end);
  }

  // Index after the run of backticks that closes `marks` at `at`, or -1.
  codeEnd(at, marks) {
    if (this.absent.has(marks)) return -1;
    const runs = /`+/g;
    runs.lastIndex = at + marks.length;
    for (let run = runs.exec(this.text); run; run = runs.exec(this.text)) {
      if (run[0].length === marks.length) return runs.lastIndex;
    }
    this.absent.add(marks);
    return -1;
  }

  emphasis(char) {
    const run = this.runLength(this.at, char);
    const size = char === "~" ? 2 : Math.min(3, run);
    if (run < size || (char === "~" && run !== 2)) return this.literal(run);
    const marks = char.repeat(size);
    const after = this.text[this.at + size];
    const isWordBefore = char === "_" && /[\p{L}\p{N}]/u.test(this.text[this.at - 1] || " ");
    if (!after || /\s/.test(after) || isWordBefore) return this.literal(run);
    const end = this.emphasisEnd(this.at + size, marks);
    if (end < 0) return this.literal(run);
    const inner = inline(this.text.slice(this.at + size, end), this.depth + 1);
    return this.push(InlineReader.wrap(marks, inner), end + size);
  }

  literal(run) {
    this.plain += this.text.slice(this.at, this.at + run);
    this.at += run;
    return true;
  }

  runLength(at, char) {
    let end = at;
    while (this.text[end] === char) ++end;
    return end - at;
  }

  static wrap(marks, inner) {
    if (marks[0] === "~") return h("del", {}, inner);
    if (marks.length === 1) return h("em", {}, inner);
    if (marks.length === 2) return h("strong", {}, inner);
    return h("strong", {}, h("em", {}, inner));
  }

  // Index of the closing marks, or -1; code on the way is stepped over.
  emphasisEnd(from, marks) {
    if (this.absent.has(marks)) return -1;
    for (let at = from; at < this.text.length;) {
      const char = this.text[at];
      if (char === "\\") {
        at += 2;
      } else if (char === "`") {
        const ticks = this.text.slice(at).match(/^`+/)[0];
        const end = this.codeEnd(at, ticks);
        at = end < 0 ? at + ticks.length : end;
      } else if (char === marks[0]) {
        const run = this.runLength(at, char);
        if (this.closes(at, run, marks)) return at + (run > marks.length ? run - marks.length : 0);
        at += run;
      } else {
        ++at;
      }
    }
    this.absent.add(marks);
    return -1;
  }

  closes(at, run, marks) {
    if (run < marks.length || (run === 2 && marks.length === 1) || /\s/.test(this.text[at - 1])) return false;
    return marks[0] !== "_" || !/[\p{L}\p{N}]/u.test(this.text[at + run] || " ");
  }

  // [text](address) and ![text](address); a picture is shown as its link, nothing is loaded.
  bracket(open) {
    if (this.absent.has("]")) return false;
    const close = this.closingBracket(open);
    if (close < 0) {
      this.absent.add("]");
      return false;
    }
    const target = /^\(\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+"[^"]*")?\s*\)/.exec(
      this.text.slice(close + 1, close + 2100));
    if (!target || !LINK_ADDRESS.test(target[1]) || this.depth >= MAX_DEPTH) return false;
    const label = this.text.slice(open + 1, close);
    return this.push(link(target[1], [inline(label || target[1], MAX_DEPTH)]), close + 1 + target[0].length);
  }

  closingBracket(open) {
    let depth = 0;
    for (let at = open; at < this.text.length && at < open + 2000; ++at) {
      if (this.text[at] === "\\") ++at;
      else if (this.text[at] === "[") ++depth;
      else if (this.text[at] === "]" && --depth === 0) return at;
    }
    return -1;
  }

  angle() {
    const rest = this.text.slice(this.at, this.at + 2100);
    const lineBreak = /^<br\s*\/?>/i.exec(rest);
    if (lineBreak) return this.push(h("br"), this.at + lineBreak[0].length);
    const address = /^<([^\s<>]+)>/.exec(rest);
    if (!address || !LINK_ADDRESS.test(address[1])) return false;
    return this.push(link(address[1], [address[1]]), this.at + address[0].length);
  }

  bareLink() {
    BARE_LINK.lastIndex = this.at;
    const match = BARE_LINK.exec(this.text);
    if (!match || this.depth >= MAX_DEPTH || /[\p{L}\p{N}]/u.test(this.text[this.at - 1] || " ")) return false;
    let end = match[0].length;
    while (end > 0 && ".,;:!?'*_~".includes(match[0][end - 1])) --end;
    if (!match[0].slice(0, end).includes("(")) while (match[0][end - 1] === ")") --end;
    const address = match[0].slice(0, end);
    return this.push(link(address, [address]), this.at + address.length);
  }
}

// Shows `text` in `place`. Blocks that did not change keep their elements, so a long answer costs only
// its last block per frame, and what the reader has selected stays selected.
function showMarkdown(place, text) {
  const blocks = splitBlocks(text);
  const shown = place.shownBlocks || [];
  let same = 0;
  while (same < blocks.length && same < shown.length && blocks[same] === shown[same]) ++same;
  while (place.childNodes.length > same) place.lastChild.remove();
  for (const block of blocks.slice(same)) place.append(renderBlock(block, 0));
  place.shownBlocks = blocks;
}
