'use strict';
/* Draws what `data.py` says of runs. Text goes into the page as text only: nothing is parsed as HTML.
   A number is shown as it came; what is computed here is where things are drawn. */

const KINDS = ['idle', 'start', 'quota', 'service', 'refused', 'again', 'commit', 'lost'];
const KIND_WORDS = {
  idle: 'not started, or between attempts', start: 'being prepared', quota: 'waiting for a limit',
  service: 'at work', refused: 'refused, waits to try again', again: 'delay after a fault',
  commit: 'has a result, waits for tasks before it', lost: 'work that gave nothing',
};
const COLORS = {
  dark: { idle: '#20262e', start: '#5b6673', quota: '#c98f24', service: '#4c9aff', refused: '#f0616d', again: '#b48cf2', commit: '#3fb8b0', lost: '#8f4b59', bg: '#11151a', grid: '#242b33', text: '#93a0ad', ink: '#e4e8ed', done: '#46c08a', failed: '#ff5566', chain: '#ffffff' },
  light: { idle: '#e8ebef', start: '#a3adb8', quota: '#e0a63a', service: '#3f87e6', refused: '#d93f4d', again: '#9468dd', commit: '#2aa39b', lost: '#d59aa3', bg: '#fafbfc', grid: '#e3e7ec', text: '#5d6874', ink: '#1a2027', done: '#178055', failed: '#c92f3d', chain: '#000000' },
};
const [NAME, GROUP, STATE, ATTEMPTS, CALLS, INPUT, OUTPUT, MICROUSD, UNPRICED, LOST, FIRST, TOOK, WAITED, PIECES, OPEN, QUIET] = [...Array(16).keys()];
const STATE_CLASS = { done: 'good', reused: 'good', failed: 'bad', skipped: 'bad', 'cut off': 'warn', 'waiting for a limit': 'warn' };
const store = { get(key) { try { return localStorage.getItem(key); } catch { return null; } }, set(key, value) { try { localStorage.setItem(key, value); } catch { /* A file may not have any. */ } } };
let theme = store.get('headway-theme') || (matchMedia('(prefers-color-scheme: light)').matches ? 'light' : 'dark');

// Elements. `text` is the only way in for what others wrote.

function h(tag, attributes = {}, ...children) {
  const svg = ['svg', 'g', 'rect', 'path', 'text', 'title'].includes(tag);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) element.append(child);
  return element;
}
const $ = (id) => document.getElementById(id);
const card = (title, id, right, ...children) => h('section', { class: 'card', id }, h('div', { class: 'top' }, h('h2', {}, title), h('div', { class: 'right' }, right)), children);
const cell = (text, number) => h(number === 'th' ? 'th' : 'td', number ? { class: 'n' } : {}, text);
const table = (heads, rows, left) => h('div', { class: 'scroll-x' }, h('table', left ? { class: 'left' } : {}, h('thead', {}, h('tr', {}, heads.map((one, i) => h('th', i ? { class: 'n' } : {}, one)))), h('tbody', {}, rows.map((row) => h('tr', {}, row.map((one, i) => cell(one, i > 0)))))));
function say(words) { const box = $('say'); box.textContent = words; box.hidden = false; clearTimeout(say.timer); say.timer = setTimeout(() => { box.hidden = true; }, 4000); }

// Formats: the same words as on the terminal.

const whole = (number) => Math.round(number).toLocaleString('en-US');
function duration(s) {
  if (s > 0 && s < 0.095) return `${(1000 * s).toFixed(0)} ms`;
  if (s < 10) return `${Math.max(0, s).toFixed(1)} s`;
  const seconds = Math.round(s), two = (t, unit, a, small, b) => `${Math.floor(t / unit)} ${a}${t % unit >= small ? ` ${Math.floor((t % unit) / small)} ${b}` : ''}`;
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return two(seconds, 60, 'min', 1, 's');
  const minutes = 60 * Math.round(seconds / 60);
  return minutes < 86400 ? two(minutes, 3600, 'h', 60, 'min') : two(3600 * Math.round(seconds / 3600), 86400, 'd', 3600, 'h');
}
function usd(micro) { const d = micro / 1e6; return d >= 1 || !micro ? `$${d.toLocaleString('en-US', { minimumFractionDigits: 2, maximumFractionDigits: 2 })}` : `$${d.toFixed(4)}`; }
const cost = (one) => one.unpriced ? (one.microusd ? `${usd(one.microusd)} + ?` : 'unknown') : usd(one.microusd || 0);
function short(n) { for (const [size, unit] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) if (n >= size) return `${+(n / size).toPrecision(3)}${unit}`; return `${+n.toPrecision(3)}`; }

// One run, as it is drawn: pieces of all tasks in flat arrays, tasks packed into rows.

class Picture {
  constructor(data) { this.data = data; this.texts = data.texts || {}; this.pack(); }
  get end() { return Math.max(this.data.head.elapsed_s, 0.001); }
  pack() {
    const tasks = this.data.tasks, n = tasks.length;
    let pieces = 0;
    for (const task of tasks) pieces += task[PIECES].length / 2 + 1;
    this.at = new Int32Array(n + 1); this.to = new Float64Array(pieces); this.code = new Int32Array(pieces);
    this.rowOf = new Int32Array(n); this.from = Float64Array.from(tasks, (task) => task[FIRST]); this.until = Float64Array.from(tasks, (task) => (task[TOOK] === null ? Infinity : task[FIRST] + task[TOOK])); this.failed = Uint8Array.from(tasks, (task) => task[STATE] === 'failed');
    const order = [...Array(n).keys()].sort((a, b) => tasks[a][FIRST] - tasks[b][FIRST] || a - b);
    for (let i = 0, place = 0; i < n; i++) {
      this.at[i] = place;
      let t = 0;
      const flat = tasks[i][PIECES];
      for (let k = 0; k < flat.length; k += 2) { t += flat[k + 1]; this.code[place] = flat[k]; this.to[place++] = t / 1000; }
      if (tasks[i][OPEN]) { this.code[place] = tasks[i][OPEN][0]; this.to[place++] = Infinity; }
      this.at[i + 1] = place;
    }
    // Rows: a task takes the first one that is free; two heaps, of rows by end and of free ones.
    const busy = new Heap((a, b) => a[0] - b[0]), free = new Heap((a, b) => a - b);
    this.rows = [];
    for (const i of order) {
      const from = this.from[i], to = this.until[i];
      while (busy.size && busy.top[0] <= from) free.push(busy.pop()[1]);
      const row = free.size ? free.pop() : this.rows.push([]) - 1;
      this.rows[row].push(i); this.rowOf[i] = row;
      busy.push([to, row]);
    }
    this.byName = null;
  }
  find(name) { if (!this.byName) { this.byName = new Map(); this.data.tasks.forEach((task, i) => this.byName.set(task[NAME], i)); } return this.byName.get(name); }
  taskAt(row, t) {
    const lane = this.rows[row]; if (!lane) return -1;
    let low = 0, high = lane.length - 1, found = -1;
    while (low <= high) { const mid = (low + high) >> 1; if (this.data.tasks[lane[mid]][FIRST] <= t) { found = lane[mid]; low = mid + 1; } else high = mid - 1; }
    if (found < 0) return -1;
    const task = this.data.tasks[found];
    return task[TOOK] === null || t <= task[FIRST] + task[TOOK] ? found : -1;
  }
}
class Heap {
  constructor(compare) { this.compare = compare; this.items = []; }
  get size() { return this.items.length; } get top() { return this.items[0]; }
  push(one) { const a = this.items; let i = a.push(one) - 1; while (i) { const up = (i - 1) >> 1; if (this.compare(a[up], one) <= 0) break; a[i] = a[up]; i = up; } a[i] = one; }
  pop() { const a = this.items, top = a[0], last = a.pop(); if (a.length) { let i = 0; for (;;) { let next = 2 * i + 1; if (next >= a.length) break; if (next + 1 < a.length && this.compare(a[next + 1], a[next]) < 0) next++; if (this.compare(last, a[next]) <= 0) break; a[i] = a[next]; i = next; } a[i] = last; } return top; }
}

// The stream of tasks over time, its limits below on the same axis. Pixels are set one by one: the
// time of a frame hardly depends on how many tasks there are.

const TOP = 24, STRIP = 54, REFUSED = 18;
class Stream {
  constructor(picture, view, height, titled) {
    this.picture = picture; this.view = view; this.height = height; this.titled = titled;
    this.showsChain = false; this.hover = -1;
    this.canvas = h('canvas', { tabindex: 0, role: 'img', 'aria-label': 'Tasks over time, and the use of limits. Arrow keys move, + and - zoom, 0 shows all.' });
    this.view.streams.push(this);
    this.listen();
    new ResizeObserver(() => this.view.draw()).observe(this.canvas);
  }
  get limits() { return this.picture.data.limits; }
  layout() {
    const dpr = Math.min(2, devicePixelRatio || 1), width = this.canvas.clientWidth || 800, rows = this.picture.rows.length;
    const natural = Math.min(this.height, Math.max(48, rows * 18));
    const strips = this.limits.length * STRIP + (this.picture.data.refused.length ? REFUSED : 0);
    const total = TOP + natural + strips + 6;
    if (this.canvas.width !== Math.round(width * dpr) || this.canvas.height !== Math.round(total * dpr)) {
      this.canvas.width = Math.round(width * dpr); this.canvas.height = Math.round(total * dpr); this.canvas.style.height = `${total}px`;
    }
    const room = natural, fit = room / Math.max(1, rows);
    return { dpr, width, room, fit, rowHeight: fit * this.view.tall, total };
  }
  x(t) { return (t - this.view.from) / (this.view.to - this.view.from) * this.canvas.clientWidth; }
  draw() {
    const layout = this.layout(), { dpr, width, room, rowHeight } = layout, context = this.canvas.getContext('2d', { alpha: false });
    const palette = COLORS[theme], W = this.canvas.width, H = this.canvas.height;
    context.setTransform(1, 0, 0, 1, 0, 0); context.fillStyle = palette.bg; context.fillRect(0, 0, W, H);
    const plot = Math.round(room * dpr), image = this.raster(context, palette, W, plot, rowHeight * dpr, dpr);
    context.putImageData(image, 0, Math.round(TOP * dpr));
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    this.axis(context, palette, width, layout.total);
    if (rowHeight >= 11) this.labels(context, palette, width, room, rowHeight);
    if (this.showsChain) this.chain(context, palette, room, rowHeight);
    let y = TOP + room;
    if (this.picture.data.refused.length) { this.refusals(context, palette, y, width); y += REFUSED; }
    for (const limit of this.limits) { this.strip(context, palette, limit, y, width); y += STRIP; }
    this.lines(context, palette, layout.total, width);
  }
  raster(context, palette, W, H, rowHeight, dpr) {
    if (!this.image || this.image.width !== W || this.image.height !== H) { this.image = context.createImageData(W, H); this.pixels = new Uint32Array(this.image.data.buffer); }
    const pixels = this.pixels, rgba = (hex) => { const v = parseInt(hex.slice(1), 16); return (0xff000000 | ((v & 255) << 16) | (v & 0xff00) | (v >> 16)) >>> 0; };
    pixels.fill(rgba(palette.bg));
    const colors = KINDS.map((kind) => rgba(palette[kind])), back = rgba(palette.bg), failed = rgba(palette.failed);
    const { from, to } = this.view, scale = W / (to - from), { rows, at, code, from: starts, failed: hasFailed, end } = this.picture;
    const ends = this.picture.to, gap = rowHeight >= 5 * dpr ? Math.max(1, Math.round(dpr)) : 0, shift = this.view.down * H;
    for (let row = Math.max(0, Math.floor(shift / rowHeight)); row < rows.length; row++) {
      const y0 = Math.floor(row * rowHeight - shift), y1 = Math.min(H, Math.max(y0 + 1, Math.floor((row + 1) * rowHeight - shift) - gap));
      if (y0 >= H) break;
      const top = Math.max(0, y0), first = top * W, lane = rows[row];
      for (let k = this.firstIn(lane, from); k < lane.length; k++) {
        const task = lane[k];
        let t = starts[task], left = (t - from) * scale, drawn = -1;
        if (left > W) break;
        for (let place = at[task], last = at[task + 1]; place < last; place++) {
          const until = ends[place] < end ? ends[place] : end;
          if (until <= t) continue;
          const right = (until - from) * scale, x0 = left > 0 ? left | 0 : 0, x1 = right < W ? Math.max((left | 0) + 1, right | 0) : W;
          t = until; left = right;
          if (right <= 0 || x0 >= W || x1 <= drawn) continue;
          const kind = code[place] & 7, color = colors[kind];
          drawn = x1;
          if (kind === 0) { const middle = ((top + y1) >> 1) * W; for (let x = x0; x < x1; x++) pixels[middle + x] = color; continue; }
          // Waiting is hatched, each limit at another pitch; so is work that gave nothing.
          const what = code[place] >> 3, pitch = x1 - x0 < 3 || y1 - top < 3 ? 0 : kind === 2 ? 4 + 2 * (what & 3) : kind === 7 || kind === 4 ? 5 : 0, lean = kind === 2 && what & 1 ? -1 : 1;
          for (let y = top, line = first; y < y1; y++, line += W) {
            if (pitch) for (let x = x0, phase = (x0 + lean * y + 4096) % pitch; x < x1; x++) { pixels[line + x] = phase < pitch / 2 ? color : back; if (++phase === pitch) phase = 0; }
            else if (x1 - x0 > 24) pixels.fill(color, line + x0, line + x1);
            else for (let x = x0; x < x1; x++) pixels[line + x] = color;
          }
        }
        if (hasFailed[task] && left >= 0) { const x0 = Math.min(W - 1, left | 0), x1 = Math.min(W, x0 + Math.round(3 * dpr)); for (let y = top; y < y1; y++) pixels.fill(failed, y * W + x0, y * W + x1); }
      }
    }
    return this.image;
  }
  firstIn(lane, from) {
    const until = this.picture.until; let low = 0, high = lane.length;
    while (low < high) { const mid = (low + high) >> 1; if (until[lane[mid]] < from) low = mid + 1; else high = mid; }
    return low;
  }
  axis(context, palette, width, total) {
    const span = this.view.to - this.view.from, about = span / Math.max(3, width / 120);
    const step = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400].find((one) => one >= about) || 604800;
    context.font = '11px system-ui, sans-serif'; context.textBaseline = 'middle'; context.lineWidth = 1;
    for (let t = Math.ceil(this.view.from / step) * step; t <= this.view.to; t += step) {
      const x = Math.round(this.x(t)) + 0.5;
      context.strokeStyle = palette.grid; context.globalAlpha = 0.55; context.beginPath(); context.moveTo(x, TOP - 5); context.lineTo(x, total); context.stroke();
      context.globalAlpha = 1; context.fillStyle = palette.text; context.fillText(step < 1 ? `${+t.toFixed(3)} s` : duration(t), x + 4, TOP / 2);
    }
    for (const [from, to] of this.picture.data.head.holds) { context.fillStyle = palette.quota; context.globalAlpha = 0.12; context.fillRect(this.x(from), TOP, this.x(to) - this.x(from), total); context.globalAlpha = 1; }
    if (this.titled) { const words = `${this.picture.data.head.name}  ${this.picture.data.head.strategy}`; context.font = '600 11px system-ui, sans-serif'; const w = context.measureText(words).width; context.fillStyle = palette.bg; context.fillRect(width - w - 14, 2, w + 14, TOP - 5); context.fillStyle = palette.ink; context.fillText(words, width - w - 6, TOP / 2); }
  }
  labels(context, palette, width, room, rowHeight) {
    const { rows } = this.picture, tasks = this.picture.data.tasks, shift = this.view.down * room;
    context.save(); context.beginPath(); context.rect(0, TOP, width, room); context.clip();
    context.font = `${Math.min(11, rowHeight - 2)}px system-ui, sans-serif`; context.textBaseline = 'middle';
    for (let row = Math.floor(shift / rowHeight), left = 600; row < rows.length && left > 0; row++) {
      const y = TOP + (row + 0.5) * rowHeight - shift - 0.5;
      if (y > TOP + room) break;
      for (let k = this.firstIn(rows[row], this.view.from); k < rows[row].length && left > 0; k++) {
        const task = tasks[rows[row][k]], x0 = Math.max(0, this.x(task[FIRST])), x1 = Math.min(width, this.x(task[TOOK] === null ? this.picture.end : task[FIRST] + task[TOOK]));
        if (x0 > width) break;
        const room = Math.floor((x1 - x0 - 8) / 6);
        if (room < 4) continue;
        const words = task[NAME].length > room ? `${task[NAME].slice(0, room - 1)}…` : task[NAME];
        context.fillStyle = palette.bg; context.globalAlpha = 0.72; context.fillRect(x0 + 2, y - rowHeight / 2 + 1, Math.min(words.length * 6 + 4, x1 - x0 - 4), rowHeight - 3); context.globalAlpha = 1;
        context.fillStyle = palette.ink; context.fillText(words, x0 + 4, y); left--;
      }
    }
    context.restore();
  }
  chain(context, palette, room, rowHeight) {
    const tasks = this.picture.data.tasks, shift = this.view.down * room; let last = null;
    context.strokeStyle = palette.chain; context.lineWidth = 2;
    for (const name of this.picture.data.report.chain) {
      const i = this.picture.find(name); if (i === undefined) continue;
      const task = tasks[i], y = TOP + this.picture.rowOf[i] * rowHeight - shift, x0 = this.x(task[FIRST]), x1 = this.x(task[FIRST] + (task[TOOK] === null ? this.picture.end - task[FIRST] : task[TOOK]));
      context.strokeRect(x0 + 1, y, Math.max(3, x1 - x0 - 2), Math.max(3, rowHeight - 1));
      if (last) { context.setLineDash([4, 3]); context.beginPath(); context.moveTo(...last); context.lineTo(x0, y + rowHeight / 2); context.stroke(); context.setLineDash([]); }
      last = [x1, y + rowHeight / 2];
    }
    context.lineWidth = 1;
  }
  refusals(context, palette, y, width) {
    context.fillStyle = palette.refused;
    for (const [t] of this.picture.data.refused) { const x = this.x(t); if (x >= 0 && x <= width) context.fillRect(x - 1, y + 4, 2, REFUSED - 6); }
    const words = `refused: ${whole(this.picture.data.refused.length)}`; context.font = '11px system-ui, sans-serif';
    context.fillStyle = palette.bg; context.globalAlpha = 0.85; context.fillRect(3, y + 2, context.measureText(words).width + 8, REFUSED - 2); context.globalAlpha = 1;
    context.fillStyle = palette.text; context.fillText(words, 6, y + REFUSED / 2 + 2);
  }
  strip(context, palette, limit, y, width) {
    const points = limit.points, high = Math.max(...points.map((one) => Math.max(one[1], one[2])), 1e-9), base = y + STRIP - 5, tall = STRIP - 22;
    const level = (value) => base - value / high * tall;
    context.fillStyle = palette.service; context.globalAlpha = 0.28; context.beginPath(); context.moveTo(this.x(points[0][0]), base);
    for (const [t, used] of points) context.lineTo(this.x(t), level(used));
    context.lineTo(this.x(points[points.length - 1][0]), base); context.fill(); context.globalAlpha = 1;
    context.strokeStyle = palette.service; context.beginPath();
    points.forEach(([t, used], i) => context[i ? 'lineTo' : 'moveTo'](this.x(t), level(used))); context.stroke();
    context.strokeStyle = palette.quota; context.beginPath();
    points.forEach(([t, , allowed], i) => { const x = this.x(t); if (i) context.lineTo(x, level(points[i - 1][2])); context[i ? 'lineTo' : 'moveTo'](x, level(allowed)); });
    context.lineTo(this.x(this.picture.end), level(points[points.length - 1][2])); context.stroke();
    points.forEach(([t, , allowed, resets], i) => {
      if (i && allowed !== points[i - 1][2]) { const x = this.x(t), top = level(allowed); context.fillStyle = palette.quota; context.beginPath(); context.moveTo(x, top - 4); context.lineTo(x + 4, top); context.lineTo(x, top + 4); context.lineTo(x - 4, top); context.fill(); }
      if (i && resets > points[i - 1][3] + 1 && points[i - 1][3]) { const x = this.x(points[i - 1][3]); context.strokeStyle = palette.done; context.setLineDash([3, 3]); context.beginPath(); context.moveTo(x, y + 12); context.lineTo(x, base); context.stroke(); context.setLineDash([]); context.fillStyle = palette.done; context.fillText('reset', x + 3, y + 18); }
    });
    const last = points[points.length - 1], share = limit.name.startsWith('window ');
    const words = `${limit.words}  ${share ? `${Math.round(100 * last[1])}% used` : `${short(last[1])} of ${short(last[2])}`}  ${limit.account}`;
    context.font = '11px system-ui, sans-serif'; const w = context.measureText(words).width; context.fillStyle = palette.bg; context.globalAlpha = 0.8; context.fillRect(3, y + 1, w + 8, 14); context.globalAlpha = 1;
    context.fillStyle = palette.text; context.fillText(words, 6, y + 8);
  }
  lines(context, palette, total, width) {
    const line = this.picture.data.report.forecast; if (!line) return;
    const mark = (t, words, color) => { const x = Math.round(this.x(t)) + 0.5; if (x < 0 || x > width) return; context.strokeStyle = color; context.setLineDash([6, 4]); context.beginPath(); context.moveTo(x, TOP - 8); context.lineTo(x, total); context.stroke(); context.setLineDash([]); context.font = '600 11px system-ui, sans-serif'; const w = context.measureText(words).width, left = Math.min(x + 4, width - w - 4); context.fillStyle = palette.bg; context.fillRect(left - 2, 3, w + 4, TOP - 8); context.fillStyle = color; context.fillText(words, left, TOP / 2); };
    if (line.low_s !== null && line.high_s !== null && line.is_known) { context.fillStyle = palette.done; context.globalAlpha = 0.08; context.fillRect(this.x(line.low_s), TOP, this.x(line.high_s) - this.x(line.low_s), total); context.globalAlpha = 1; mark(line.mid_s, `forecast ${line.mid}`, palette.done); }
    if (line.bound_s !== null) mark(line.bound_s, `best possible ${line.bound}`, palette.again);
  }
  hit(event) {
    const box = this.canvas.getBoundingClientRect(), layout = this.layout(), y = event.clientY - box.top - TOP, t = this.view.from + (event.clientX - box.left) / box.width * (this.view.to - this.view.from);
    if (y < 0 || y > layout.room) return { t, task: -1, below: y - layout.room };
    return { t, task: this.picture.taskAt(Math.floor((y + this.view.down * layout.room) / layout.rowHeight), t), below: -1 };
  }
  listen() {
    let drag = null;
    const canvas = this.canvas, view = this.view;
    canvas.addEventListener('pointerdown', (event) => { drag = { x: event.clientX, y: event.clientY, from: view.from, to: view.to, down: view.down, moved: false }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener('pointermove', (event) => {
      if (drag) {
        const dx = event.clientX - drag.x, dy = event.clientY - drag.y; drag.moved = drag.moved || Math.abs(dx) + Math.abs(dy) > 4;
        const layout = this.layout(), by = dx / layout.width * (drag.to - drag.from);
        view.set(drag.from - by, drag.to - by); view.down = Math.max(0, Math.min(view.tall - 1, drag.down - dy / layout.room)); view.draw(); hideTip();
      } else this.point(event);
    });
    canvas.addEventListener('pointerup', (event) => { if (drag && !drag.moved) { const { task } = this.hit(event); if (task >= 0) openTask(this.picture, task); } drag = null; });
    canvas.addEventListener('pointerleave', hideTip);
    canvas.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      const at = this.hit(event).t;
      if (event.ctrlKey || event.metaKey) view.zoom(Math.exp(event.deltaY * 0.004), at);
      else if (event.shiftKey) view.stretch(Math.exp(-(event.deltaY || event.deltaX) * 0.004));
      else { const by = event.deltaX / canvas.clientWidth * (view.to - view.from); view.set(view.from + by, view.to + by); }
    }, { passive: false });
    canvas.addEventListener('dblclick', (event) => view.zoom(0.4, this.hit(event).t));
    canvas.addEventListener('keydown', (event) => {
      const step = 0.15 * (view.to - view.from), keys = { ArrowLeft: () => view.set(view.from - step, view.to - step), ArrowRight: () => view.set(view.from + step, view.to + step), ArrowUp: () => { view.down = Math.max(0, view.down - 0.1); view.draw(); }, ArrowDown: () => { view.down = Math.min(view.tall - 1, view.down + 0.1); view.draw(); } };
      if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
    });
  }
  point(event) {
    const { task, t, below } = this.hit(event), data = this.picture.data;
    if (task >= 0) {
      const row = data.tasks[task]; let piece = this.picture.at[task];
      while (piece < this.picture.at[task + 1] - 1 && this.picture.to[piece] <= t) piece++;
      const code = this.picture.code[piece], kind = KINDS[code & 7], what = data.whats[code >> 3];
      tip(event, row[NAME], [`${row[STATE]}; here: ${kind === 'quota' && what ? `waiting for ${what}` : KIND_WORDS[kind]}`, `started at ${duration(row[FIRST])}, ${row[TOOK] === null ? 'goes on' : `took ${duration(row[TOOK])}`}, waited ${duration(row[WAITED])}`, row[CALLS] ? `${whole(row[CALLS])} calls, ${whole(row[INPUT])} tokens in, ${whole(row[OUTPUT])} out, ${cost({ microusd: row[MICROUSD], unpriced: row[UNPRICED] })}` : '']);
      return;
    }
    const skip = data.refused.length ? REFUSED : 0, limit = below >= skip ? this.limits[Math.floor((below - skip) / STRIP)] : null;
    if (limit) { const point = [...limit.points].reverse().find((one) => one[0] <= t); if (point) { tip(event, limit.words, [`${short(point[1])} of ${short(point[2])} used at ${duration(point[0])}`, limit.account]); return; } }
    if (below >= 0 && below < skip) { const near = data.refused.reduce((best, one) => (Math.abs(one[0] - t) < Math.abs(best[0] - t) ? one : best)); tip(event, 'refused', [`${near[1]} at ${duration(near[0])}`]); return; }
    hideTip();
  }
}
class View {
  constructor(end) { this.end = end; this.streams = []; this.from = 0; this.to = end * 1.02; this.tall = 1; this.down = 0; this.follows = true; this.frames = 0; }
  set(from, to) { const span = Math.max(0.002, Math.min(to - from, this.end * 1.4)); this.from = Math.max(-0.2 * this.end, Math.min(from, this.end * 1.2 - span / 4)); this.to = this.from + span; this.follows = false; this.draw(); }
  zoom(by, at = (this.from + this.to) / 2) { this.set(at - (at - this.from) * by, at + (this.to - at) * by); }
  stretch(by) { this.tall = Math.max(1, Math.min(400, this.tall * by)); this.down = Math.min(this.down, this.tall - 1); this.draw(); }
  fit(end = this.end) { this.end = end; this.from = 0; this.to = end * 1.02; this.tall = 1; this.down = 0; this.follows = true; this.draw(); }
  draw() { if (!this.asked) { this.asked = true; requestAnimationFrame(() => { this.asked = false; this.frames++; for (const one of this.streams) one.draw(); }); } }
}
function tip(event, title, lines) {
  const box = $('tip'); box.replaceChildren(h('b', {}, title.slice(0, 200)), ...lines.filter(Boolean).map((one) => h('div', { class: 'dim' }, one))); box.hidden = false;
  box.style.left = `${Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8)}px`; box.style.top = `${Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8)}px`;
}
function hideTip() { $('tip').hidden = true; }

// The parts of the page.

function legend() {
  const box = h('div', { class: 'legend' });
  for (const kind of ['service', 'quota', 'refused', 'again', 'commit', 'start', 'lost']) {
    const mark = h('i'), color = COLORS[theme][kind];
    mark.style.background = ['quota', 'refused', 'lost'].includes(kind) ? `repeating-linear-gradient(135deg, ${color} 0 3px, transparent 3px 5px)` : color;
    box.append(h('span', {}, mark, KIND_WORDS[kind]));
  }
  for (const [color, words] of [[COLORS[theme].failed, 'red end: failed'], [COLORS[theme].quota, 'line below: the limit; diamond: it changed']]) { const mark = h('i'); mark.style.background = color; mark.style.width = '4px'; box.append(h('span', {}, mark, words)); }
  return box;
}
function streamCard(pictures) {
  const view = new View(Math.max(...pictures.map((one) => one.end), ...pictures.map((one) => Math.min(2 * one.end, one.data.report.forecast?.bound_s || 0))));
  const streams = pictures.map((one) => new Stream(one, view, pictures.length > 1 ? 190 : 400, pictures.length > 1));
  const path = h('button', { 'aria-pressed': 'false', title: 'c', onclick: () => toggle() }, 'critical path');
  const toggle = () => { const on = path.getAttribute('aria-pressed') !== 'true'; path.setAttribute('aria-pressed', on); for (const one of streams) one.showsChain = on; note.hidden = !on; view.draw(); };
  const note = h('p', { class: 'dim', hidden: true }, pictures.map((one) => h('span', {}, `Critical path: ${one.data.report.facts.path.join(' ')} `)));
  const button = (words, label, act) => h('button', { title: label, 'aria-label': label, onclick: act }, words);
  const found = card('Tasks over time', 'stream', [path, button('+', 'zoom in (+)', () => view.zoom(0.6)), button('−', 'zoom out (-)', () => view.zoom(1 / 0.6)), button('↕', 'taller rows (shift and wheel)', () => view.stretch(1.6)), button('all', 'show all (0)', () => view.fit())],
    streams.map((one) => h('div', { class: 'lane' }, one.canvas)), note, legend(), h('p', { class: 'dim' }, 'One row for each task at a time. Drag to move, ctrl and wheel to zoom, click a task for its details.'));
  Object.assign(page, { view, streams, toggleChain: toggle });
  return found;
}
function tiles(head, report) {
  const tile = (label, value, more, style) => h('div', { class: 'tile' }, h('span', {}, label), h('b', style ? { class: style } : {}, value), h('span', {}, more));
  const words = head.words, budget = head.budget, failed = (words.failed || 0) + (words.skipped || 0), line = report.forecast;
  return h('div', { class: 'tiles' },
    tile('tasks done', whole((words.done || 0) + (words.reused || 0)), `of ${whole(head.total)}${failed ? `, ${whole(words.failed || 0)} failed, ${whole(words.skipped || 0)} skipped` : ', none failed'}`, failed ? 'bad' : ''),
    tile(head.is_live ? 'time so far' : 'time', head.elapsed, line ? `best possible ${line.bound}` : head.rest[0] || 'no forecast was made'),
    tile('spent', cost({ microusd: head.microusd, unpriced: head.taken.usd === null }), budget.microusd !== null ? `of a budget of ${usd(budget.microusd)}` : budget.tokens !== null ? `budget ${whole(budget.tokens)} tokens` : 'no budget'),
    tile('tokens', short(head.taken.input_tokens + head.taken.output_tokens), `${short(head.taken.input_tokens)} in, ${short(head.taken.output_tokens)} out`),
    tile('refused calls', whole(head.refused), `${whole(head.retries)} tried again, ${whole(head.stale)} stale`, head.refused ? 'warn' : ''),
    tile('really at once', report.effective.toFixed(1), `of ${whole(report.submitted)} submitted`));
}
function verdict(head, report) {
  const facts = report.facts, list = h('dl', {}), add = (label, lines) => { if (lines && lines.length) list.append(h('dt', {}, label), h('dd', {}, lines.map((one) => h('div', {}, one)))); };
  add('what went wrong', report.failures.length ? report.failures : [...facts.refused].length ? [] : ['nothing failed, nothing was refused']);
  add('refused', facts.refused); add('paid twice', facts.twice); add('width', facts.width); add('critical path', facts.path); add('slowest', facts.slowest); add('forecast', facts.foreseen); add('caches', facts.cache);
  return card('What bound the run, and what would make it faster', 'verdict', null, h('p', { class: 'verdict' }, facts.advice.join(' ')), list);
}
function spentCard(report) {
  const box = h('div'), colors = { waited: 'var(--wait)', refused: 'var(--bad)', models: 'var(--work)', commands: 'var(--work)', functions: 'var(--work)', results: 'var(--teal)', work: 'var(--bad)' };
  const rows = report.spent.map(([words, wall, wall_s, task]) => {
    const bar = h('i'); bar.style.width = `${100 * wall_s / (report.wall_s || 1)}%`; bar.style.background = colors[words.split(' ')[0]] || 'var(--dim)';
    return h('tr', {}, cell(words), h('td', {}, h('div', { class: 'meter' }, bar)), cell(wall_s ? wall : '', true), cell(task, true));
  });
  box.append(h('table', {}, h('thead', {}, h('tr', {}, cell('', 0), cell('', 0), cell('of the run', 1), cell('of the tasks', 1))), h('tbody', {}, rows)));
  return card('Where the time went', 'time', null, box);
}
function meter(words, total) {
  const colors = { done: 'var(--good)', reused: 'var(--good)', failed: 'var(--bad)', skipped: 'var(--bad)', 'in flight': 'var(--work)', 'running here': 'var(--work)', 'waiting for a limit': 'var(--wait)', held: 'var(--teal)' };
  return h('div', { class: 'meter' }, Object.entries(colors).map(([word, color]) => { const part = h('i'); part.style.width = `${100 * (words[word] || 0) / (total || 1)}%`; part.style.background = color; return part; }));
}
function graphCard(picture) {
  const { head, report } = picture.data, groups = head.groups, depth = [], level = (i) => depth[i] ?? (depth[i] = -1, depth[i] = Math.max(-1, ...groups[i].needs.map(level)) + 1);
  groups.forEach((_, i) => level(i));
  const columns = []; groups.forEach((_, i) => (columns[depth[i]] ||= []).push(i));
  const hazards = new Map(); for (const one of report.findings) { const name = one.task.split('[')[0]; hazards.set(name, [...(hazards.get(name) || []), one]); }
  let drawing = h('p', { class: 'dim' }, `${whole(groups.length)} task names: see the table`);
  if (groups.length <= 120) {
    const W = 208, H = 62, GAP = 56, tall = Math.max(...columns.map((one) => one.length)) * (H + 14) + 6, place = [];
    columns.forEach((column, c) => column.forEach((i, r) => { place[i] = [c * (W + GAP) + 4, (tall - column.length * (H + 14)) / 2 + r * (H + 14) + 6]; }));
    const width = columns.length * (W + GAP) - GAP + 8;
    drawing = h('svg', { viewBox: `0 0 ${width} ${tall}`, width, height: tall, role: 'img', 'aria-label': 'Which tasks need which' });
    groups.forEach((one, i) => one.needs.forEach((need) => { const [x0, y0] = place[need], [x1, y1] = place[i]; drawing.append(h('path', { class: 'edge', d: `M${x0 + W} ${y0 + H / 2}C${x0 + W + GAP / 2} ${y0 + H / 2} ${x1 - GAP / 2} ${y1 + H / 2} ${x1} ${y1 + H / 2}` })); }));
    groups.forEach((one, i) => {
      const [x, y] = place[i], found = hazards.get(one.name) || [], cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
      const box = h('g', { tabindex: 0, role: 'button', 'aria-label': one.name, onclick: () => page.table.only(i), onkeydown: (event) => event.key === 'Enter' && page.table.only(i) }, h('title', {}, `${one.name}\n${Object.entries(one.words).map(([word, many]) => `${many} ${word}`).join(', ')}${found.length ? `\n${found.map((f) => f.words).join('\n')}` : ''}`),
        h('rect', { class: 'box', x, y, width: W, height: H, rx: 8 }), h('text', { x: x + 11, y: y + 20 }, cut(one.name, found.length ? 21 : 26)), h('text', { class: 'sub', x: x + 11, y: y + 37 }, cut(`${whole(one.ended)} of ${one.total === null ? '?' : whole(one.total)}${one.calls ? `, ${whole(one.calls)} calls` : ''}${one.microusd ? `, ${usd(one.microusd)}` : ''}`, 33)));
      if (found.length) box.append(h('text', { class: 'hazard', x: x + W - 34, y: y + 20 }, `⚠ ${found.length}`));
      let left = x + 11; const room = W - 22, colors = [['done', 'var(--good)'], ['reused', 'var(--good)'], ['failed', 'var(--bad)'], ['skipped', 'var(--bad)'], ['in flight', 'var(--work)'], ['running here', 'var(--work)'], ['waiting for a limit', 'var(--wait)']];
      const back = h('rect', { x: left, y: y + 47, width: room, height: 5, rx: 2 }); back.style.fill = 'var(--line)'; box.append(back);
      for (const [word, color] of colors) { const wide = room * (one.words[word] || 0) / (one.total || 1); if (wide > 0) { const part = h('rect', { x: left, y: y + 47, width: wide, height: 5 }); part.style.fill = color; box.append(part); left += wide; } }
      drawing.append(box);
    });
  }
  const list = report.findings.length ? h('div', {}, h('h3', {}, 'hazards'), report.findings.map((one) => h('p', {}, h('span', { class: 'warn' }, `${one.kind}: `), `${one.task}: ${one.words}`, one.fix ? h('span', { class: 'dim' }, ` ${one.fix}`) : null))) : null;
  return card('Graph, by task name', 'graph', null, h('div', { class: 'scroll-x' }, drawing), list);
}
function moneyCard(picture) {
  const { head, report } = picture.data, lost = head.lost_tokens || head.cut_calls;
  const groups = head.groups.filter((one) => one.calls !== undefined);
  const budget = head.budget.microusd !== null ? [head.microusd, head.budget.microusd] : head.budget.tokens !== null ? [head.taken.input_tokens + head.taken.output_tokens, head.budget.tokens] : null;
  const bar = h('i'); if (budget) { bar.style.width = `${Math.min(100, 100 * budget[0] / budget[1])}%`; bar.style.background = 'var(--work)'; }
  return card('Money and tokens', 'money', null, h('p', {}, head.used_words || 'no calls to models'), budget ? h('div', { class: 'meter', title: 'of the budget' }, bar) : null,
    table(['task name', 'model', 'tasks', 'half in', '95% in', 'calls', 'tokens in', 'tokens out', 'cost', 'tokens lost'], groups.map((one) => [one.name, one.model, one.total === null ? '?' : whole(one.total), one.p50 || '', one.p95 || '', whole(one.calls), whole(one.input_tokens), whole(one.output_tokens), one.calls || one.microusd ? cost(one) : '', one.lost_tokens ? whole(one.lost_tokens) : ''])),
    report.models.length ? table(['model', 'calls', 'tokens in', 'tokens out', 'cost', 'read from cache', 'written'], report.models.map((one) => [one.model, whole(one.calls), whole(one.input_tokens), whole(one.output_tokens), cost(one), whole(one.cache_read_tokens || 0), whole(one.cache_write_tokens || 0)])) : null,
    lost ? h('p', { class: 'warn' }, [...report.facts.twice].join('; ')) : h('p', { class: 'dim' }, report.facts.twice.join('; ')));
}

// The table of tasks: only the rows that can be seen are in the page.

class TaskTable {
  constructor(picture) {
    this.picture = picture; this.sort = FIRST; this.up = true; this.state = ''; this.group = -1; this.words = '';
    this.columns = [['task', NAME, (r) => r[NAME]], ['name', GROUP, (r) => picture.data.head.groups[r[GROUP]]?.name || ''], ['state', STATE, (r) => r[STATE]], ['started', FIRST, (r) => duration(r[FIRST])], ['took', TOOK, (r) => (r[TOOK] === null ? 'goes on' : duration(r[TOOK]))], ['waited', WAITED, (r) => duration(r[WAITED])], ['attempts', ATTEMPTS, (r) => whole(r[ATTEMPTS])], ['calls', CALLS, (r) => whole(r[CALLS])], ['tokens in', INPUT, (r) => whole(r[INPUT])], ['tokens out', OUTPUT, (r) => whole(r[OUTPUT])], ['cost', MICROUSD, (r) => (r[CALLS] || r[MICROUSD] ? cost({ microusd: r[MICROUSD], unpriced: r[UNPRICED] }) : '')], ['lost', LOST, (r) => (r[LOST] ? whole(r[LOST]) : '')]];
    this.search = h('input', { type: 'search', id: 'search', placeholder: 'search names (/)', 'aria-label': 'search names', oninput: () => { this.words = this.search.value; this.filter(); } });
    this.select = h('select', { 'aria-label': 'task name', onchange: () => { this.group = +this.select.value; this.filter(); } });
    this.chips = h('div', { class: 'chips' }); this.count = h('span', { class: 'dim', id: 'shown' });
    this.heads = h('div', { class: 'heads', role: 'row' }); this.body = h('div'); this.box = h('div', { class: 'grid', role: 'table', 'aria-label': 'Tasks', tabindex: 0, onscroll: () => this.draw() }, this.heads, this.body);
    this.card = card('Tasks', 'tasks', [this.search, this.select], this.chips, h('div', { class: 'top' }, this.count), this.box);
    this.refresh();
  }
  refresh() {
    const { head, tasks } = this.picture.data, counts = new Map();
    for (const row of tasks) counts.set(row[STATE], (counts.get(row[STATE]) || 0) + 1);
    const chip = (word, many) => h('button', { 'aria-pressed': String(this.state === word), onclick: () => { this.state = this.state === word ? '' : word; this.refresh(); } }, `${word} ${whole(many)}`);
    this.chips.replaceChildren(...[...counts].map(([word, many]) => chip(word, many)));
    if (this.select.options.length !== head.groups.length + 1) this.select.replaceChildren(h('option', { value: -1 }, 'all task names'), ...head.groups.map((one, i) => h('option', { value: i }, one.name)));
    this.select.value = this.group;
    this.heads.replaceChildren(...this.columns.map(([words, column], i) => h('button', { class: i > 2 ? 'n' : '', 'aria-label': `sort by ${words}`, onclick: () => { this.up = this.sort === column ? !this.up : column < 4 && column !== ATTEMPTS; this.sort = column; this.refresh(); } }, words, this.sort === column ? (this.up ? ' ↑' : ' ↓') : '')));
    this.filter(true);
  }
  filter(stays) {
    const { tasks } = this.picture.data, words = this.words.toLowerCase().split(/\s+/).filter(Boolean), { sort, state, group } = this, found = [];
    for (let i = 0; i < tasks.length; i++) { const row = tasks[i]; if ((!state || row[STATE] === state) && (group < 0 || row[GROUP] === group) && (!words.length || words.every((word) => row[NAME].toLowerCase().includes(word)))) found.push(i); }
    const sign = this.up ? 1 : -1, value = (i) => tasks[i][sort] ?? Infinity;
    found.sort(typeof tasks[0]?.[sort] === 'string' ? (a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : a - b) : (a, b) => sign * (value(a) - value(b)) || a - b);
    this.found = found; this.body.style.height = `${26 * found.length}px`;
    this.count.textContent = `${whole(found.length)} of ${whole(tasks.length)} tasks that have started`;
    if (!stays) this.box.scrollTop = 0;
    this.draw();
  }
  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / 26) - 6), last = Math.min(this.found.length, first + 36), rows = [];
    for (let place = first; place < last; place++) {
      const i = this.found[place], row = this.picture.data.tasks[i];
      const line = h('div', { class: `row${page.open === i ? ' on' : ''}`, role: 'row', 'data-task': i, onclick: () => openTask(this.picture, i) }, this.columns.map(([, column, text], k) => h('span', { class: column === STATE ? `dot ${STATE_CLASS[row[STATE]] || ''}` : k > 2 ? 'n' : '', title: k ? null : row[NAME] }, text(row))));
      line.style.top = `${29 + 26 * place}px`; rows.push(line);
    }
    this.body.replaceChildren(...rows);
  }
  only(group) { this.group = this.group === group ? -1 : group; this.refresh(); this.card.scrollIntoView(); }
  step(by) { const at = this.found.indexOf(page.open), next = this.found[Math.max(0, Math.min(this.found.length - 1, at + by))]; if (next !== undefined) openTask(this.picture, next); }
}

// One task.

async function openTask(picture, i) {
  const { data } = picture, row = data.tasks[i], drawer = $('drawer'), close = () => { drawer.hidden = true; page.open = null; page.table?.draw(); };
  page.open = i; page.table?.draw();
  const fact = (label, text) => [h('dt', {}, label), h('dd', {}, text)], pieces = [];
  for (let place = picture.at[i], t = 0; place < picture.at[i + 1]; place++) { const kind = KINDS[picture.code[place] & 7], what = data.whats[picture.code[place] >> 3], to = Math.min(picture.to[place], picture.end); if (!(kind === 'idle' && place === picture.at[i]) && to > t) pieces.push([t, kind === 'quota' ? `waited for ${what || 'a permit'}` : KIND_WORDS[kind], to - t, kind]); t = to; }
  const way = h('div', { class: 'way' }, pieces.slice(0, 80).map(([t, words, s, kind]) => { const mark = h('span', { class: 'dot' }, words); mark.style.color = COLORS[theme][kind]; return [h('span', { class: 'dim' }, duration(t)), h('span', {}, mark), h('span', {}, duration(s))]; }));
  const texts = h('div', { id: 'texts' }, h('p', { class: 'dim' }, '…'));
  drawer.replaceChildren(h('div', { class: 'top' }, h('h2', {}, row[NAME]), h('span', { class: `pill ${STATE_CLASS[row[STATE]] || ''}` }, row[STATE]), h('button', { onclick: close, 'aria-label': 'close (Esc)' }, '✕')),
    h('dl', {}, fact('task name', data.head.groups[row[GROUP]]?.name || ''), fact('started', `${duration(row[FIRST])} after the run began`), fact('took', row[TOOK] === null ? 'goes on' : duration(row[TOOK])), fact('waited', `${duration(row[WAITED])} for limits and after refusals`), fact('attempts', whole(row[ATTEMPTS])), row[CALLS] ? fact('calls', `${whole(row[CALLS])}: ${whole(row[INPUT])} tokens in, ${whole(row[OUTPUT])} out`) : [], row[CALLS] || row[MICROUSD] ? fact('cost', cost({ microusd: row[MICROUSD], unpriced: row[UNPRICED] })) : [], row[LOST] ? fact('for nothing', `${whole(row[LOST])} tokens`) : [], row[QUIET] ? fact('quiet', `no output, no call, no CPU for ${duration(row[QUIET] / 1000)}`) : []),
    h('section', {}, h('h3', {}, 'where its time went'), way), texts, h('section', {}, h('h3', {}, 'on the terminal'), commands(data.head.id, row[NAME])));
  drawer.hidden = false; drawer.scrollTop = 0;
  let found = picture.texts[i];
  if (!found && page.live && !page.hidesContent) found = await fetch(`task?run=${data.head.id}&task=${i}`).then((answer) => (answer.ok ? answer.json() : null)).catch(() => null);
  if (page.open === i) texts.replaceChildren(...(found ? sections(found) : [h('p', { class: 'dim' }, page.hidesContent ? 'This page shows no texts of tasks.' : 'Its texts are not in this file: the commands below print them.')]));
}
function sections(found) {
  const part = (title, text) => (text ? [h('section', {}, h('h3', {}, title), h('pre', {}, text))] : []), diff = h('pre', { class: 'mono' });
  for (const line of (found.diff || '').split('\n')) diff.append(h('span', { class: line.startsWith('@@') ? 'hunk' : line.startsWith('+') ? 'add' : line.startsWith('-') ? 'del' : '' }, `${line}\n`));
  return [...part('failed with', found.fault), ...part('prompt', found.prompt), ...part('result', found.output), ...part('output of its commands', found.log), ...(found.diff ? [h('section', {}, h('h3', {}, `changed files${found.landed ? `, landed as ${found.landed}` : ''}`), diff)] : []), ...(found.events?.length ? [h('section', {}, h('h3', {}, 'what happened'), h('pre', {}, found.events.join('\n')))] : [])];
}
function commands(run, name) {
  const quoted = `'${name.replace(/[\u0000-\u001f\u007f-\u009f]/g, '').replaceAll("'", "'\\''")}'`;
  return ['why', 'logs', 'results --prompt'].map((verb) => { const text = verb === 'results --prompt' ? `headway results ${run} --prompt ${quoted}` : `headway ${verb} ${run} ${quoted}`; return h('div', { class: 'copy' }, h('code', {}, text), h('button', { onclick: () => copy(text) }, 'copy')); });
}
async function copy(text) {
  try { await navigator.clipboard.writeText(text); } catch { const area = h('textarea', {}, text); document.body.append(area); area.select(); document.execCommand('copy'); area.remove(); }
  say('copied');
}

// Comparing runs.

function compareCard(pictures) {
  const line = (label, text) => [label, ...pictures.map(text)];
  return card('Side by side', 'compare', null, table(['', ...pictures.map((one) => `${one.data.head.name} ${one.data.head.strategy}`)], [line('run', (one) => one.data.head.id), line('state', (one) => one.data.head.count_words), line('time', (one) => one.data.head.elapsed), line('best possible', (one) => one.data.report.forecast?.bound || 'no forecast'), line('calls', (one) => whole(one.data.head.taken.calls)), line('refused', (one) => whole(one.data.head.refused)), line('tried again', (one) => whole(one.data.head.retries)), line('tokens in', (one) => whole(one.data.head.taken.input_tokens)), line('tokens out', (one) => whole(one.data.head.taken.output_tokens)), line('tokens for nothing', (one) => whole(one.data.head.lost_tokens)), line('cost', (one) => cost({ microusd: one.data.head.microusd, unpriced: one.data.head.taken.usd === null })), line('at once, submitted', (one) => whole(one.data.report.submitted)), line('at once, really', (one) => one.data.report.effective.toFixed(1)), line('what bound it', (one) => one.data.report.facts.advice.join(' '))], true));
}

// The page as a whole.

const page = { open: null, live: false, hidesContent: false, pictures: [] };
function bar(title, id, state, right = []) {
  document.title = `${title} · headway`;
  $('bar').replaceChildren(...[page.live ? h('a', { class: 'brand', href: '#' }, 'headway') : h('span', { class: 'brand' }, 'headway'), h('h1', {}, title), id ? h('code', { class: 'dim' }, id) : null, state ? h('span', { class: `pill ${state === 'running' ? 'dot live' : ''} ${{ done: 'good', failed: 'bad' }[state] || (state === 'running' ? '' : 'warn')}`, id: 'state' }, state) : null,
    h('nav', {}, ...right, h('button', { title: 'dark or light (t)', 'aria-label': 'dark or light', onclick: changeTheme }, '◐'))].filter(Boolean));
}
function changeTheme() { theme = theme === 'dark' ? 'light' : 'dark'; store.set('headway-theme', theme); document.documentElement.classList.toggle('light', theme === 'light'); document.querySelector('.legend')?.replaceWith(legend()); page.view?.draw(); }
function showRuns() {
  const [first] = page.pictures, { head, report } = first.data, several = page.pictures.length > 1;
  const link = (id, words) => h('a', { href: `#${id}`, onclick: (event) => { event.preventDefault(); $(id)?.scrollIntoView(); } }, words);
  const parts = several ? ['stream', 'compare'] : ['stream', 'graph', 'tasks', 'money'];
  bar(several ? `${page.pictures.length} runs` : head.name, several ? '' : head.id, several ? '' : head.state, [...parts.map((id) => link(id, id)), ...controls(first)]);
  page.table = null;
  if (several) { $('main').replaceChildren(streamCard(page.pictures), compareCard(page.pictures)); return; }
  page.table = new TaskTable(first);
  $('main').replaceChildren(tiles(head, report), streamCard(page.pictures), h('div', { class: 'two' }, verdict(head, report), spentCard(report)), graphCard(first), page.table.card, moneyCard(first));
}
function update(first, isWhole) {
  const { head, report } = first.data, swap = (selector, made) => document.querySelector(selector)?.replaceWith(made);
  $('state').textContent = head.state; $('state').title = head.state_words;
  swap('.tiles', tiles(head, report)); swap('#money', moneyCard(first)); swap('#graph', graphCard(first));
  if (isWhole) { swap('#verdict', verdict(head, report)); swap('#time', spentCard(report)); bar(head.name, head.id, head.state, controls(first)); }
  page.view.follows ? page.view.fit(Math.max(first.end, report.forecast?.bound_s && report.forecast.bound_s < 2 * first.end ? report.forecast.bound_s : 0)) : page.view.draw();
  page.table.refresh();
}
document.addEventListener('keydown', (event) => {
  if (['INPUT', 'SELECT', 'TEXTAREA'].includes(event.target.tagName)) { if (event.key === 'Escape') event.target.blur(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const acts = { '/': () => $('search')?.focus(), Escape: () => { $('drawer').hidden = true; page.open = null; page.table?.draw(); }, t: changeTheme, c: () => page.toggleChain?.(), '+': () => page.view?.zoom(0.6), '=': () => page.view?.zoom(0.6), '-': () => page.view?.zoom(1 / 0.6), 0: () => page.view?.fit(), j: () => page.table?.step(1), k: () => page.table?.step(-1) };
  if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
});
document.documentElement.classList.toggle('light', theme === 'light');

// Live: the same data over server-sent events; nothing but this page's own server is asked.

function controls(picture) {
  if (!page.control) return [];
  const { head } = picture.data, act = (word, label) => h('button', { 'data-act': word, onclick: () => control(head.id, word) }, label);
  if (head.state === 'running') return [act('pause', 'pause'), act('stop', 'stop')];
  if (head.is_live) return [act('continue', 'go on'), act('stop', 'stop')];
  return head.resumable ? [act('resume', head.words.failed ? 'retry failed' : 'resume')] : [];
}
async function control(run, word) {
  const answer = await fetch('control', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ run, word }) }).catch(() => null);
  say(answer ? (await answer.json()).words : 'the page\'s server does not answer');
}
function follow(run) {
  page.source?.close();
  const source = page.source = new EventSource(`events?run=${encodeURIComponent(run)}`);
  source.addEventListener('whole', (event) => { page.pictures = [new Picture(JSON.parse(event.data))]; showRuns(); });
  source.addEventListener('more', (event) => {
    const more = JSON.parse(event.data), [first] = page.pictures, data = first.data;
    Object.assign(data.head, more.head); data.whats = more.whats;
    for (const [i, row] of more.tasks) data.tasks[i] = row;
    for (const one of more.limits) { const known = data.limits.find((limit) => limit.account === one.account && limit.name === one.name); if (known) known.points.push(...one.points); else data.limits.push(one); }
    data.refused.push(...more.refused);
    if (more.report) data.report = more.report;
    first.pack(); update(first, Boolean(more.report));
  });
  source.addEventListener('gone', (event) => { source.close(); $('main').replaceChildren(card('This run cannot be shown', 'gone', null, h('p', {}, JSON.parse(event.data)))); bar('headway', '', ''); });
}
function showHome(home) {
  bar('Runs and accounts', '', '');
  const chosen = () => [...document.querySelectorAll('input.pick:checked')].map((one) => one.value).join('+'), before = chosen().split('+');
  const runs = home.runs.map((one) => [h('label', {}, h('input', { type: 'checkbox', class: 'pick', value: one.run, 'aria-label': `compare ${one.run}`, checked: before.includes(one.run) }), ' ', h('a', { href: `#${one.run}` }, one.name || one.run)), h('code', { class: 'dim' }, one.run), h('span', { class: { done: 'good', failed: 'bad', running: '' }[one.state] ?? 'warn' }, one.state), one.count_words || one.reason || '', `${one.age} ago`]);
  $('main').replaceChildren(card('Runs', 'runs', h('button', { onclick: () => { const ids = chosen(); if (ids.includes('+')) location.hash = ids; else say('choose two or more'); } }, 'compare chosen'), runs.length ? table(['name', 'run', 'state', 'tasks', 'began'], runs, true) : h('p', {}, 'No runs yet: headway run plan.yaml')),
    card('Accounts', 'accounts', h('span', { class: 'dim' }, home.source), home.accounts.length ? home.accounts.map((one) => h('div', {}, h('p', {}, h('b', {}, one.title), ' ', h('span', { class: 'dim' }, one.state)), table(['limit', 'allowed', 'used now', 'known from', 'confirmed'], one.rows), one.reasons.map((words) => h('p', { class: { watch: 'warn', bad: 'bad' }[one.level] || '' }, `${one.level}: ${words}`)), one.more.map((words) => h('p', { class: 'dim' }, words)))) : h('p', {}, 'No account has been used yet.'), home.lines.map((words) => h('p', {}, words))));
}
async function route() {
  const ids = decodeURIComponent(location.hash.slice(1)).split('+').filter(Boolean);
  page.source?.close(); page.open = null; $('drawer').hidden = true;
  if (!ids.length) {
    const source = page.source = new EventSource('home');
    source.addEventListener('home', (event) => showHome(JSON.parse(event.data)));
  } else if (ids.length === 1) follow(ids[0]);
  else {
    const found = await Promise.all(ids.map((id) => fetch(`data?run=${encodeURIComponent(id)}`).then((answer) => answer.json()).catch(() => null)));
    page.pictures = found.filter((one) => one && one.head).map((one) => new Picture(one)); if (page.pictures.length) showRuns(); else say('these runs cannot be read');
  }
}
const given = JSON.parse($('data').textContent);
if (given.live) { Object.assign(page, { live: true, control: given.control, hidesContent: given.hides_content }); addEventListener('hashchange', route); route(); }
else { page.pictures = given.runs.map((one) => new Picture(one)); page.hidesContent = given.hides_content; showRuns(); }
globalThis.headwayPage = page;
