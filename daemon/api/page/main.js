/* main.js - looks at the daemon again and again, and says so when it is gone.
 *
 *   start --no key needed, or the key is right--> live --no answer--> lost
 *     |  ^                                         ^ |                 |
 *   401  +--------------- key typed ----+          | +----- 401 ---+   |
 *     v                                 |          +--- answers ---|---+
 *    door <--------------------------------------------------------+
 *
 * While the tab is hidden nothing is asked. */

const LOOK_MS = 1000;
const LISTS_MS = 10000; // whole lists, of what changes rarely
const RETRY_MS = 1000, RETRY_MAX_MS = 30000;

/* What the last looks brought. */
const before = { status: null, streams: new Map(), known: new Map(), knownAt: -Infinity, jobs: [], jobsAt: -Infinity, jobsLeft: "" };
let wake = null; // ends the present wait
let tries = 0; // since an answer came

/* Wait; wakeUp() ends it. */
function pause(ms) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    wake = () => {
      clearTimeout(timer);
      done();
    };
  });
}

const wakeUp = () => wake && wake();

/* Of one interval; null: nothing to divide by. */
function ratesOf(was, is) {
  const ms = was ? is.uptime_ms - was.uptime_ms : 0;
  if (ms <= 0 || was.started_ms !== is.started_ms) {
    return { output: null, prompt: null, steps: null, step: null, accepted: null, cached: null };
  }
  const grown = (name) => is.counters[name] - was.counters[name];
  const second = (name) => (1000 * grown(name)) / ms;
  const step = share(grown("step_us"), grown("steps"));
  return {
    output: second("output_tokens"), prompt: second("prompt_tokens"), steps: second("steps"),
    step: step === null ? null : step / 1000,
    accepted: share(grown("accepted_tokens"), grown("drafted_tokens")),
    cached: share(grown("cached_tokens"), grown("prompt_tokens")),
  };
}

/* --- what is said of the connection --- */

/* For eyes at once, for ears only what is new. */
function say(word, more) {
  if ($("link").textContent !== word) put($("said"), more || word);
  tag($("link"), word);
}

function show(part) {
  $("door").hidden = part !== "door";
  $("lost").hidden = part !== "lost";
  $("forget").hidden = !key;
  if (part === "board") $("board").hidden = false;
  if (part === "door") $("board").hidden = true;
}

function onKey(event) {
  event.preventDefault();
  const text = $("key").value.trim();
  if (!/^[\x21-\x7e]+$/.test(text)) {
    put($("door-error"), "A key has neither spaces nor letters beyond ASCII. anectl key prints it.");
    return;
  }
  keySet(text);
  put($("door-error"), "");
  wakeUp();
}

/* --- looking --- */

async function lookAtModels(s) {
  const names = s.models.map((m) => m.name).join("\n");
  const now = performance.now();
  if (names !== [...before.known.keys()].join("\n") || now - before.knownAt > LISTS_MS) {
    before.known = new Map((await askJson("/aned/v1/models")).models.map((m) => [m.name, m]));
    before.knownAt = now;
  }
}

/* The list may be long: between two looks at it only jobs that are not over are
 * asked for, one by one. */
async function lookAtJobs(s) {
  const now = performance.now();
  const left = `${s.jobs.running} ${s.jobs.waiting}`;
  if (left !== before.jobsLeft || now - before.jobsAt > LISTS_MS) {
    before.jobs = (await askJson("/aned/v1/jobs")).jobs;
    before.jobsLeft = left;
    before.jobsAt = now;
  } else {
    const fresh = (j) => (OVER.includes(j.state) ? j : askJson(`/aned/v1/jobs/${encodeURIComponent(j.id)}`));
    before.jobs.splice(0, JOBS_SHOWN, ...await Promise.all(before.jobs.slice(0, JOBS_SHOWN).map(fresh)));
  }
  showJobs(before.jobs);
}

async function look() {
  const [s, { streams }] = await Promise.all([askJson("/aned/v1/status"), askJson("/aned/v1/streams")]);
  const r = ratesOf(before.status, s);
  await lookAtModels(s);
  await lookAtJobs(s);
  showTiles(s, r);
  showModels(s.models, before.known, s.backend);
  showStreams(streams, before.streams);
  if (r.output !== null) addPoint(r);
  chatModels(s.models);
  chatWaits(s.models);
  put($("version"), s.version);
  put($("foot"), `${s.home}, process ${s.pid}`);
  before.status = s;
  before.streams = new Map(streams.map((x) => [streamKey(x), x]));
  say(s.status === "ok" ? "connected" : s.status);
}

/* The key is asked for, until one is typed. */
async function atDoor() {
  put($("door-error"), key ? "This key is not the daemon's, or not any more. anectl key prints the one that is." : "");
  keySet("");
  say("no key", "The key of this daemon is needed");
  show("door");
  $("key").value = "";
  $("key").focus();
  while (!key) await pause(2 ** 30);
}

async function whileLost(e) {
  const ms = Math.min(RETRY_MAX_MS, RETRY_MS * 2 ** tries++);
  const until = performance.now() + ms;
  const known = e instanceof AskError;
  put($("lost-title"), !known ? "The answer is not as expected" : e.status ? `The daemon answers ${e.status}` : "The daemon does not answer");
  put($("lost-why"), !known ? "Another version of aned may have been started, or another program listens here. Reload this page."
    : e.status ? e.message
    : "It was stopped, or is being started again. This page goes on when it answers. Figures below are the last that it gave.");
  say("no connection");
  show("lost");
  let retry = false;
  $("retry").onclick = () => {
    retry = true;
    wakeUp();
  };
  for (let left = ms; left > 0 && !retry; left = until - performance.now()) {
    put($("lost-when"), `Next try in ${Math.ceil(left / 1000)} s.`);
    await pause(Math.min(left, 1000));
  }
  before.knownAt = before.jobsAt = -Infinity; // another daemon may have others
}

async function watch() {
  for (;;) {
    if (document.hidden) {
      await pause(2 ** 30);
      continue;
    }
    try {
      await look();
      tries = 0;
      show("board");
      await pause(LOOK_MS);
    } catch (e) {
      if (!(e instanceof AskError)) console.warn(e);
      if (e.status === 401) await atDoor();
      else await whileLost(e);
    }
  }
}

makeTiles();
makePlots();
chatStart();
$("door-form").addEventListener("submit", onKey);
$("forget").addEventListener("click", () => {
  keySet("");
  location.reload();
});
document.addEventListener("visibilitychange", wakeUp);
watch();
