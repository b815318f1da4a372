"use strict";
/* ask.js - requests to the daemon that gave this page, and its key.
 *
 * The key is kept in sessionStorage: it goes with the tab, and no other origin
 * can read it. It is sent in a header, never in an address. */

const KEY_PLACE = "aned.key";
const ASK_MS = 10000; // a look at figures that takes longer has failed

const $ = (id) => document.getElementById(id);

function keyGet() {
  try {
    return sessionStorage.getItem(KEY_PLACE) || "";
  } catch {
    return ""; // storage is switched off: the key is asked for at each load
  }
}

let key = keyGet();

function keySet(text) {
  key = text;
  try {
    if (text) sessionStorage.setItem(KEY_PLACE, text);
    else sessionStorage.removeItem(KEY_PLACE);
  } catch {
    // it is kept in memory
  }
}

/* What went wrong. status: of HTTP; 0: no answer came. code: the daemon's
 * stable name of the error, or "". */
class AskError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/* The error of an answer, which may be anything: something else may listen at
 * this address now. */
async function errorOf(answer) {
  let error = {};
  try {
    error = (await answer.json()).error || {};
  } catch {
    // no JSON: the status has to do
  }
  return new AskError(answer.status, String(error.code || ""), String(error.message || `the answer is ${answer.status}`));
}

/* One request; the answer is one of 2xx. Throws AskError; AbortError when
 * `signal` ends it. */
async function ask(path, { body, signal } = {}) {
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body),
      cache: "no-store", credentials: "omit", redirect: "error",
    });
  } catch (e) {
    if (signal && signal.aborted && signal.reason && signal.reason.name === "AbortError") throw e;
    throw new AskError(0, "", "no answer");
  }
  if (!answer.ok) throw await errorOf(answer);
  return answer;
}

async function askJson(path) {
  const answer = await ask(path, { signal: AbortSignal.timeout(ASK_MS) });
  try {
    return await answer.json();
  } catch {
    throw new AskError(0, "", "the answer is not whole");
  }
}

/* Call each(data) for every event of a text/event-stream, until it ends. */
async function eachEvent(answer, each) {
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    rest += decoder.decode(value || new Uint8Array(), { stream: !done });
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trimStart()).join("\n");
      if (data) each(data);
    }
    if (done) return;
  }
}
