/* show.js - puts figures into the document. Whatever the daemon or a model says
 * becomes text (textContent), never markup. Elements are kept and only what
 * changed is written, so that a reader's place and selection stay. */

function element(name, attributes, ...inside) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...inside);
  return e;
}

function put(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

/* As anectl writes it: 3.1 MB, 420 MB, 19.0 GB. */
function bytes(n) {
  if (!(n > 0)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let u = 0;
  for (; n >= 999.5 && u + 1 < units.length; u++) n /= 1000;
  return `${n.toFixed(u === 0 || n >= 99.95 ? 0 : 1)} ${units[u]}`;
}

function span(ms) {
  const s = Math.round(ms / 1000);
  return s < 120 ? `${s} s` : s < 7200 ? `${Math.round(s / 60)} min` : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

const rate = (x) => (x === null ? "–" : x < 10 ? x.toFixed(1) : String(Math.round(x)));
const percent = (x) => (x === null ? "–" : `${Math.round(100 * x)} %`);
const share = (part, of) => (of > 0 ? part / of : null);

const TONES = {
  good: ["loaded", "done", "decoding", "connected"],
  warn: ["loading", "warming", "running", "gating", "queued", "waiting", "prompt", "paused", "draining"],
  bad: ["failed", "rejected", "interrupted", "no connection", "no key"],
};

function tag(e, word) {
  put(e, word);
  const tone = Object.keys(TONES).find((t) => TONES[t].includes(word));
  e.className = tone ? `tag ${tone}` : "tag";
}

/* --- tiles --- */

const TILES = ["Tokens a second", "Step", "Drafts right", "Prompt warm", "Memory", "Streams", "Connections", "Up"];

function makeTiles() {
  for (const name of TILES) {
    $("tiles").append(element("div", {}, element("dt", {}, name), element("dd", {}, element("span"), element("small"))));
  }
}

function tile(name, value, more) {
  const dd = $("tiles").children[TILES.indexOf(name)].lastElementChild;
  put(dd.firstElementChild, value);
  put(dd.lastElementChild, more);
}

function showTiles(s, r) {
  const c = s.counters;
  tile("Tokens a second", rate(r.output), `${rate(r.prompt)} of prompts`);
  tile("Step", r.step === null ? "–" : `${r.step.toFixed(1)} ms`, `${rate(r.steps)} a second`);
  tile("Drafts right", percent(r.accepted), `${percent(share(c.accepted_tokens, c.drafted_tokens))} since the start`);
  tile("Prompt warm", percent(r.cached), `${percent(share(c.cached_tokens, c.prompt_tokens))} since the start`);
  tile("Memory", bytes(s.memory.used_bytes), `of ${bytes(s.memory.budget_bytes)}`);
  tile("Streams", `${s.running} run`, `${s.queued} wait (limit ${s.queue_limit})`);
  tile("Connections", String(s.connections), `${c.generations} requests for text`);
  tile("Up", span(s.uptime_ms), s.config.error ? `configuration: ${s.config.error}` : s.backend);
}

/* --- tables --- */

/* One row for each of `items`; fill(cells, item) writes them. Rows are known by
 * key(item). The first cell is the row's head. */
function table(body, items, key, n, fill) {
  const old = new Map([...body.children].map((tr) => [tr.dataset.key, tr]));
  items.forEach((item, i) => {
    const name = key(item);
    let tr = old.get(name);
    old.delete(name);
    if (!tr) {
      tr = element("tr", { "data-key": name }, element("th", { scope: "row" }));
      for (let k = 1; k < n; k++) tr.append(element("td"));
    }
    if (body.children[i] !== tr) body.insertBefore(tr, body.children[i] || null);
    fill(tr.children, item);
  });
  for (const tr of old.values()) tr.remove();
}

/* A state, and how far it is where that is known (0..1, else null). */
function stateCell(td, word, far, what) {
  if (!td.firstElementChild) td.append(element("span"));
  tag(td.firstElementChild, word);
  let bar = td.querySelector("progress");
  if (far === null) {
    if (bar) bar.remove();
    return;
  }
  if (!bar) {
    bar = element("progress", { max: "1" });
    td.append(" ", bar);
  }
  bar.value = far;
  bar.setAttribute("aria-label", what);
}

function leaves(m) {
  if (!m.engine) return "–";
  if (m.pinned) return "pinned";
  if (m.leaves_ms !== null) return `in ${span(m.leaves_ms)}`;
  return m.users > 0 ? "in use" : "when needed";
}

/* known: what /aned/v1/models says, by name. arith: the machine, as a backend
 * that is a device tells it, or the version of our own kernels. */
function showModels(models, known, backend) {
  $("models-none").hidden = models.length > 0;
  $("models-table").hidden = models.length === 0;
  table($("models"), models, (m) => m.name, 6, (td, m) => {
    const more = known.get(m.name) || {};
    if (!td[0].firstElementChild) td[0].append(element("span"), element("small"));
    put(td[0].firstElementChild, m.name);
    put(td[0].lastElementChild, more.reason || "");
    stateCell(td[1], m.stage || m.state, m.progress, `${m.name}: ${m.stage || m.state}`);
    put(td[2], bytes(more.bytes));
    put(td[3], m.engine ? bytes(m.engine.resident_bytes) : "–");
    put(td[4], m.engine && m.engine.arith ? `${backend}, ${m.engine.arith}` : "–");
    put(td[5], leaves(m));
  });
}

const streamKey = (x) => `${x.model} ${x.number}`;

/* before: the streams of the last look, by key. */
function showStreams(streams, before) {
  $("streams-none").hidden = streams.length > 0;
  $("streams-table").hidden = streams.length === 0;
  table($("streams"), streams, streamKey, 7, (td, x) => {
    const was = before.get(streamKey(x));
    const ms = was ? x.age_ms - was.age_ms : 0;
    put(td[0], x.model);
    put(td[1], x.class);
    stateCell(td[2], x.phase, null, "");
    put(td[3], x.phase === "prompt" ? `${x.computed_tokens} of ${x.prompt_tokens}` : String(x.prompt_tokens));
    put(td[4], String(x.output_tokens));
    put(td[5], ms > 0 ? rate((1000 * (x.output_tokens - was.output_tokens)) / ms) : "–");
    put(td[6], percent(share(x.accepted_tokens, x.drafted_tokens)));
  });
}

const JOBS_SHOWN = 8;
const OVER = ["done", "failed", "cancelled", "interrupted"];

function showJobs(jobs) {
  const some = jobs.slice(0, JOBS_SHOWN);
  $("jobs-none").hidden = jobs.length > 0;
  $("jobs-table").hidden = jobs.length === 0;
  $("jobs-more").hidden = jobs.length <= JOBS_SHOWN;
  put($("jobs-more"), `${jobs.length - JOBS_SHOWN} older ones: anectl jobs`);
  table($("jobs"), some, (j) => j.id, 4, (td, j) => {
    const over = OVER.includes(j.state);
    put(td[0], j.name);
    stateCell(td[1], j.state, null, "");
    stateCell(td[2], over ? "–" : `${j.stage || j.state} ${percent(j.progress)}`, over ? null : j.progress, `${j.name}: ${j.stage}`);
    td[2].firstElementChild.className = "";
    td[3].className = "text";
    put(td[3], (j.error && j.error.message) || j.message || "");
  });
}
