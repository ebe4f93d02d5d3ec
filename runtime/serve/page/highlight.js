// Colours for code, by one expression a family of languages: comments, strings, numbers, words.

const KEYWORDS = new Set(`abstract and as assert async await auto bool boolean break byte case catch char class
  const constexpr continue crate def default defer del delete do double elif else end enum except export extends
  extern false final finally float fn for foreach from func function global go goto if impl implements import in
  include inline instanceof int interface is lambda let local long loop match mod module mut namespace new nil None
  nonlocal not null nullptr of operator or override package pass private protected pub public raise ref return
  select self short signed sizeof static string struct super switch template then this throw trait true True False
  try type typedef typename typeof undefined union unless unsafe unsigned until use using val var virtual void
  volatile where while with yield`.split(/\s+/));
const SQL_KEYWORDS = new Set(`add all alter and as asc begin between by case check column commit create delete desc
  distinct drop else end exists foreign from group having in index inner insert into is join key left like limit
  not null on or order outer primary references right rollback select set table then union unique update values
  view when where with`.split(/\s+/));
const HASH_LANGUAGES = new RegExp("^(py|python|sh|bash|zsh|shell|console|rb|ruby|yaml|yml|toml|r|perl|make|makefile|" +
  "cmake|dockerfile|ini|elixir|julia)$");
const DASH_LANGUAGES = /^(sql|lua|haskell|hs)$/;
const MARKUP_LANGUAGES = /^(html|xml|svg|vue)$/;
const PLAIN_LANGUAGES = /^(|text|txt|plain|plaintext|output|log|markdown|md)$/;
const MAX_HIGHLIGHTED = 40000;  // characters

const STRING = String.raw`"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|${"`"}(?:[^${"`"}\\]|\\.)*${"`"}?`;
const TRIPLE = String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)`;
const NUMBER = String.raw`\b(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*`;
const WORD = String.raw`[A-Za-z_$][\w$]*`;
const expression = (comment, string) =>
  new RegExp(`(${comment})|(${string})|(${NUMBER})|(${WORD})(?=(\\s*\\()?)`, "g");
const CODE_EXPRESSIONS = {
  hash: expression(String.raw`#[^\n]*`, `${TRIPLE}|${STRING}`),
  dash: expression(String.raw`--[^\n]*`, STRING),
  c: expression(String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`, STRING),
  markup: /(<!--[\s\S]*?(?:-->|$))|("[^"\n]*")|(&\w+;)|(<\/?[A-Za-z][\w:-]*)()/g,
};

function diffLines(code) {
  return code.split("\n").map((line, at, all) => {
    const kind = line[0] === "+" ? "added" : line[0] === "-" ? "removed" : line[0] === "@" ? "comment" : "";
    const text = at + 1 < all.length ? `${line}\n` : line;
    return kind ? h("span", { class: `hl-${kind}` }, text) : text;
  });
}

function kindOf(match, keywords, isMarkup) {
  if (match[1]) return "comment";
  if (match[2]) return "string";
  if (match[3]) return "number";
  if (isMarkup || keywords.has(keywords === SQL_KEYWORDS ? match[4].toLowerCase() : match[4])) return "keyword";
  return match[5] ? "call" : "";
}

// Text and <span> pieces whose joined text is `code`.
function highlight(code, language) {
  if (PLAIN_LANGUAGES.test(language) || code.length > MAX_HIGHLIGHTED) return [code];
  if (language === "diff" || language === "patch") return diffLines(code);
  const isMarkup = MARKUP_LANGUAGES.test(language);
  const pattern = isMarkup ? CODE_EXPRESSIONS.markup
    : HASH_LANGUAGES.test(language) ? CODE_EXPRESSIONS.hash
      : DASH_LANGUAGES.test(language) ? CODE_EXPRESSIONS.dash : CODE_EXPRESSIONS.c;
  const keywords = language === "sql" ? SQL_KEYWORDS : KEYWORDS;
  const pieces = [];
  let end = 0;
  for (const match of code.matchAll(pattern)) {
    const kind = kindOf(match, keywords, isMarkup);
    if (!kind) continue;
    if (match.index > end) pieces.push(code.slice(end, match.index));
    pieces.push(h("span", { class: `hl-${kind}` }, match[0]));
    end = match.index + match[0].length;
  }
  pieces.push(code.slice(end));
  return pieces;
}
