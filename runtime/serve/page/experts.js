// The panel of experts: a map (layers × experts, cold to warm), hits, reads and speed while it answers.
// GET expert-map: {layers, experts, warmth: base64, a byte an expert, layer after layer;
// resident: base64, a bit an expert, lowest bit first; hits, misses, bytes_read, read_seconds}.

const POLL_MS = 500;
const RATES_SHOWN = 90;
const HEAT = {
  light: { disk: [229, 232, 237], stops: [[168, 190, 224], [205, 190, 180], [236, 168, 88], [205, 72, 22]] },
  dark: { disk: [33, 39, 47], stops: [[52, 80, 124], [112, 96, 104], [214, 128, 52], [255, 205, 120]] },
};

const experts = {
  map: null,        // the last answer, decoded
  isAbsent: false,  // the server has none
  before: null,     // the answer before it
  timer: 0,
  rates: [],        // tokens/s, one number a poll

  async poll() {
    if (this.isAbsent || document.hidden) return;
    try {
      const next = decodedMap(await getJson("expert-map"));
      this.before = this.map;
      this.map = next;
    } catch (error) {
      if (error.status === 404 || error.status === 501) this.isAbsent = true;
    }
    this.draw();
  },

  // Polls while any answer is on its way, and once after the last.
  follow() {
    if (chat.runs.size > 0 && this.timer === 0) {
      this.rates = [];
      const step = async () => {
        this.noteRate();
        await this.poll();
        for (const run of chat.runs.values()) run.mapAtStart ??= this.map;
        this.timer = chat.runs.size > 0 ? setTimeout(step, POLL_MS) : 0;
      };
      this.timer = setTimeout(step, 0);
    }
  },

  noteRate() {
    let rate = 0;
    for (const run of chat.runs.values()) rate += liveRate(run);
    this.rates.push(rate);
    if (this.rates.length > RATES_SHOWN) this.rates.shift();
  },

  // Of an answer that has ended, what was used since its first map, or the one before where it was shorter
  // than a poll; null: not known.
  async usesOf(run) {
    await this.poll();
    const start = run.mapAtStart ?? run.map;
    if (!start || !this.map || this.isAbsent) return null;
    return { hits: this.map.hits - start.hits, misses: this.map.misses - start.misses };
  },

  draw() {
    byId("map-block").hidden = this.isAbsent || !this.map;
    byId("order").hidden = byId("enlarge").hidden = this.isAbsent || !this.map;
    byId("map-absent").hidden = !this.isAbsent;
    byId("welcome-map").hidden = this.isAbsent || !this.map;
    if (this.map) {
      drawMap(byId("map"), this.map, settings.sorted);
      drawMap(byId("large-map"), this.map, settings.sorted);
      drawMap(byId("welcome-map"), this.map, true);
      if (!byId("welcome").hidden) showWelcome();
    }
    drawSpeed(byId("speed-line"), this.rates);
    showNumbers();
  },
};

function decodedBytes(text, size) {
  const bytes = new Uint8Array(size);
  const decoded = atob(text || "");
  for (let at = 0; at < Math.min(size, decoded.length); ++at) bytes[at] = decoded.charCodeAt(at);
  return bytes;
}

function decodedMap(answer) {
  const layers = answer.layers >>> 0;
  const count = answer.experts >>> 0;
  if (layers * count > 1 << 20) throw new Error("too many experts");
  const bits = decodedBytes(answer.resident, Math.ceil((layers * count) / 8));
  const isResident = (at) => (bits[at >> 3] >> (at & 7)) & 1;
  let residents = 0;
  for (let at = 0; at < layers * count; ++at) residents += isResident(at);
  const warmth = decodedBytes(answer.warmth, layers * count);
  return { ...answer, layers, experts: count, warmth, isResident, residents };
}

function heatColour(palette, warmth, isResident) {
  const scaled = (Math.sqrt(warmth / 255)) * (palette.stops.length - 1);
  const low = Math.min(palette.stops.length - 2, Math.floor(scaled));
  const mix = (one, other, share) => one.map((value, at) => value + (other[at] - value) * share);
  const heat = mix(palette.stops[low], palette.stops[low + 1], scaled - low);
  return isResident ? heat : mix(palette.disk, heat, warmth > 0 ? 0.22 : 0);
}

// The places of a layer's experts in its row: their numbers, or the warmest first and those on disk last.
function orderOfLayer(map, layer, isSorted) {
  const order = Array.from({ length: map.experts }, (_, expert) => layer * map.experts + expert);
  if (!isSorted) return order;
  const rank = (at) => map.warmth[at] + (map.isResident(at) ? 256 : 0);
  return order.sort((one, other) => rank(other) - rank(one));
}

// The colours of every warmth on the disk, then of every warmth in memory.
const heatColours = (palette) => Array.from({ length: 512 }, (_, at) => [...heatColour(palette, at & 255, at > 255), 255]);
const HEAT_COLOURS = { light: heatColours(HEAT.light), dark: heatColours(HEAT.dark) };

function cellsOf(map, colours, order) {
  const cells = new ImageData(map.experts, map.layers);
  order.forEach((at, place) => cells.data.set(colours[map.warmth[at] + 256 * map.isResident(at)], place * 4));
  const small = h("canvas", { width: map.experts, height: map.layers });
  small.getContext("2d").putImageData(cells, 0, 0);
  return small;
}

// One cell an expert; a row is a layer, the first at the top.
function drawMap(canvas, map, isSorted) {
  if (!canvas || map.layers * map.experts === 0 || canvas.clientWidth === 0) return;
  const order = Array.from({ length: map.layers }, (_, layer) => orderOfLayer(map, layer, isSorted)).flat();
  const width = canvas.clientWidth;
  const height = Math.round(Math.max(120, Math.min(map.layers * 8, width * 0.62, 320)));
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  canvas.order = order;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(cellsOf(map, isDark() ? HEAT_COLOURS.dark : HEAT_COLOURS.light, order), 0, 0, canvas.width, canvas.height);
  canvas.setAttribute("aria-label", `Map of ${map.layers} layers of ${map.experts} experts, ` +
    `${asPercent(map.residents, map.layers * map.experts)} of them in memory`);
}

function describePoint(canvas, place, x, y) {
  const { map } = experts;
  if (!map || !canvas.order) return;
  const clamp = (value, end) => Math.max(0, Math.min(end - 1, Math.floor(value)));
  const row = clamp((y / canvas.clientHeight) * map.layers, map.layers);
  const column = clamp((x / canvas.clientWidth) * map.experts, map.experts);
  const at = canvas.order[row * map.experts + column];
  place.textContent = `Layer ${row}, expert ${at % map.experts}: ${map.isResident(at) ? "in memory" : "on disk"}, ` +
    `warmth ${Math.round((100 * map.warmth[at]) / 255)} %`;
}

function drawSpeed(canvas, rates) {
  const hasLine = rates.length > 5 && Math.max(...rates) > 0;
  canvas.hidden = !hasLine;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (width === 0 || !hasLine) return;
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const most = Math.max(...rates);
  const step = width / Math.max(20, rates.length - 1);
  context.beginPath();
  rates.forEach((rate, at) => context.lineTo(at * step, height - 1 - (rate / most) * (height - 4)));
  context.strokeStyle = context.fillStyle = getComputedStyle(canvas).color;
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  context.stroke();
  context.lineTo((rates.length - 1) * step, height);
  context.lineTo(0, height);
  context.globalAlpha = 0.12;
  context.fill();
}

function showNumbers() {
  const { map, before } = experts;
  const rows = [];
  const run = chat.run();
  const last = chat.current.messages.findLast((each) => each.role === "assistant" && each.stats?.tokens);
  const rate = run ? liveRate(run) : last?.stats.rate || 0;
  if (rate > 0) rows.push(["Answer", `${asRate(rate)} tokens/s`]);
  if (last?.stats.promptRate > 0) rows.push(["Prompt", `${asRate(last.stats.promptRate)} tokens/s`]);
  if (map) {
    const isNewer = before && map.hits + map.misses > before.hits + before.misses;
    const since = isNewer ? before : { hits: 0, misses: 0, bytes_read: 0, read_seconds: 0 };
    const hits = map.hits - since.hits;
    const misses = map.misses - since.misses;
    if (hits + misses > 0) rows.push(["Experts from memory", asPercent(hits, hits + misses)]);
    const seconds = map.read_seconds - since.read_seconds;
    if (seconds > 0) rows.push(["Disk", `${((map.bytes_read - since.bytes_read) / seconds / 1e9).toFixed(2)} GB/s`]);
    if (map.bytes_read > 0) rows.push(["Read since the start", asBytes(map.bytes_read)]);
    rows.push(["In memory", `${asCount(map.residents)} of ${asCount(map.layers * map.experts)}`]);
  }
  if (chat.model.context > 0 && last?.stats.prompt > 0) {
    const used = last.stats.prompt + last.stats.tokens;
    rows.push(["Context", `${asCount(used)} of ${asCount(chat.model.context)}`]);
  }
  byId("numbers-absent").hidden = rows.length > 0;
  byId("numbers").replaceChildren(...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function showWelcome() {
  const { map } = experts;
  byId("welcome-model").textContent = chat.model.id || "New chat";
  byId("welcome-text").textContent = map
    ? `${map.layers} layers of ${map.experts} experts, ` +
      `${asPercent(map.residents, map.layers * map.experts)} of them in memory. ` +
      "The rest comes from the disk as answers need it."
    : "Ask something, or attach a text.";
}

function startExperts() {
  const map = byId("map");
  map.addEventListener("pointermove", (event) => describePoint(map, byId("map-point"), event.offsetX, event.offsetY));
  map.addEventListener("pointerleave", () => { byId("map-point").textContent = ""; });
  const showOrder = () => byId("order").setAttribute("aria-pressed", String(settings.sorted));
  byId("order").addEventListener("click", () => {
    changeSetting("sorted", !settings.sorted);
    showOrder();
    experts.draw();
  });
  showOrder();
  byId("enlarge").addEventListener("click", () => {
    const large = h("canvas", { id: "large-map", role: "img", class: "large-map" });
    const point = h("p", { class: "map-point" });
    byId("viewer-title").textContent = "Experts: a row is a layer, a column an expert";
    byId("viewer-body").replaceChildren(large, point);
    byId("viewer").showModal();
    large.addEventListener("pointermove", (event) => describePoint(large, point, event.offsetX, event.offsetY));
    experts.draw();
  });
  byId("viewer").addEventListener("close", () => byId("viewer-body").replaceChildren());
  document.addEventListener("themechange", () => experts.draw());
  addEventListener("resize", () => experts.draw());
}
