/* chat.js - a conversation with a model, streamed. The whole of it is sent each
 * time; what the daemon has computed of it is warm. */

const TALK_BYTES_MAX = 1 << 20; // of one conversation; the daemon takes 8 MiB

let talk = []; // {role, content}
let going = null; // the AbortController of the answer that is being written

/* What to do about an error, by its code, else by its status. */
const ADVICE = {
  context_length_exceeded: "Begin a new chat, or choose a model with a longer context.",
  model_not_found: "Choose another model.",
  "model.failed": "anectl show NAME says more; anectl load NAME tries again.",
  "model.rejected": "anectl quality NAME says which gate failed.",
  "template.unsupported": "Choose another model; anectl complete NAME continues a text with this one.",
  "template.input": "Begin a new chat.",
  "engine.lost": "Send it again: a new engine is started.",
  busy: "Too much is going on; try again in a moment.",
  no_memory: "Unload another model: anectl unload NAME.",
  starting: "Try again in a moment.",
  too_big: "Begin a new chat.",
};

function advice(e) {
  if (ADVICE[e.code]) return ADVICE[e.code];
  if (e.status === 0) return "The connection ended; send it again when the daemon is back.";
  if (e.status === 401) return "The key is not taken any more; enter the new one.";
  return e.status >= 500 ? "Try again; anectl doctor looks for what is wrong." : "";
}

/* --- what is seen --- */

function addMessage(who, mine) {
  const text = element("p", { class: "text" });
  const article = element("article", mine ? { class: "mine" } : {}, element("h3", {}, who), text);
  $("talk").append(article);
  return { article, text };
}

/* Text that grows: many pieces are written at once, when the screen is drawn. */
function growing(node) {
  let waits = "";
  let asked = false;
  const write = () => {
    const box = $("talk");
    const low = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    node.append(waits);
    node.normalize();
    waits = "";
    asked = false;
    if (low) box.scrollTop = box.scrollHeight;
  };
  return {
    add(piece) {
      waits += piece;
      if (!asked) requestAnimationFrame(write);
      asked = true;
    },
    flush: write,
  };
}

function addAnswer(model) {
  const m = addMessage(model, false);
  const thoughts = element("p", { class: "thoughts" });
  const box = element("details", { open: "" }, element("summary", {}, "Thoughts"), thoughts);
  const note = element("p", { class: "note" });
  m.article.append(note);
  const x = { text: growing(m.text), thoughts: growing(thoughts), note, content: "", thought: false };
  x.think = (piece) => {
    if (!x.thought) m.article.insertBefore(box, m.text);
    x.thought = true;
    x.thoughts.add(piece);
  };
  x.say = (piece) => {
    if (!x.content && x.thought) box.open = false;
    x.content += piece;
    x.text.add(piece);
  };
  return x;
}

function chatButtons() {
  $("send").disabled = going !== null || $("model").options.length === 0;
  $("stop").disabled = going === null;
  $("fresh").disabled = going !== null;
}

/* The models that can be asked, as options; the choice stays. */
function chatModels(models) {
  const names = models.filter((m) => m.state !== "failed").map((m) => m.name);
  const select = $("model");
  const had = [...select.options].map((o) => o.value);
  if (names.join("\n") !== had.join("\n")) {
    const chosen = select.value;
    select.replaceChildren(...names.map((n) => element("option", { value: n }, n)));
    if (names.includes(chosen)) select.value = chosen;
  }
  chatButtons();
}

/* What the chosen model is at, until the first token. */
function chatWaits(models) {
  if (going === null || going.began) return;
  const m = models.find((x) => x.name === going.model);
  const far = m && m.progress !== null ? ` ${percent(m.progress)}` : "";
  put($("chat-said"), m && m.stage ? `The model is being loaded: ${m.stage}${far}` : "Waiting for the first token");
}

/* --- an answer --- */

function onChunk(data, x) {
  if (data === "[DONE]") return;
  const j = JSON.parse(data);
  if (j.error) throw new AskError(500, String(j.error.code || ""), String(j.error.message || "the answer failed"));
  const choice = j.choices && j.choices[0];
  const delta = (choice && choice.delta) || {};
  if (delta.reasoning_content || delta.content) {
    if (!going.began) put($("chat-said"), "Answering");
    going.began = true;
  }
  if (delta.reasoning_content) x.think(delta.reasoning_content);
  if (delta.content) x.say(delta.content);
  if (choice && choice.finish_reason) x.finish = choice.finish_reason;
  if (j.usage) x.usage = j.usage;
  if (j.timings) x.timings = j.timings;
}

function noteOf(x, stopped) {
  const parts = [];
  if (x.usage) parts.push(`${x.usage.completion_tokens} tokens`);
  if (x.timings && x.timings.predicted_per_second > 0) parts.push(`${rate(x.timings.predicted_per_second)} a second`);
  if (stopped) parts.push("stopped");
  if (x.finish === "length") parts.push("cut off: no room for more");
  return parts.join(", ");
}

async function answer(x, control) {
  const body = { model: control.model, messages: talk, stream: true, stream_options: { include_usage: true } };
  const got = await ask("/v1/chat/completions", { body, signal: control.signal });
  try {
    await eachEvent(got, (data) => onChunk(data, x));
  } catch (e) {
    if (e instanceof AskError || e.name === "AbortError") throw e;
    throw new AskError(0, "", "the answer ended early");
  }
  if (!x.finish) throw new AskError(0, "", "the answer ended early");
}

async function send(text) {
  const model = $("model").value;
  addMessage("You", true).text.append(text);
  talk.push({ role: "user", content: text });
  const x = addAnswer(model);
  going = Object.assign(new AbortController(), { model, began: false });
  const control = going;
  put($("chat-error"), "");
  put($("chat-said"), "Waiting for the first token");
  chatButtons();
  let failed = null;
  try {
    await answer(x, control);
  } catch (e) {
    failed = control.signal.aborted ? null : e;
  }
  x.text.flush();
  x.thoughts.flush();
  going = null;
  put(x.note, noteOf(x, control.signal.aborted));
  if (x.content) talk.push({ role: "assistant", content: x.content });
  else talk.pop(); // nothing came: the question is not part of what follows
  put($("chat-said"), failed ? "" : control.signal.aborted ? "Stopped" : "Answer complete");
  if (failed) put($("chat-error"), `${failed.message}. ${advice(failed)}`.replace("..", "."));
  if (failed && !x.content && !$("ask").value) $("ask").value = text;
  chatButtons();
  $("ask").focus();
}

function onSend(event) {
  event.preventDefault();
  const text = $("ask").value.trim();
  if (!text || going !== null || !$("model").value) return;
  const size = talk.reduce((n, m) => n + m.content.length, text.length);
  if (size > TALK_BYTES_MAX) {
    put($("chat-error"), "This conversation is too long. Begin a new chat.");
    return;
  }
  $("ask").value = "";
  send(text);
}

function chatStart() {
  $("chat-form").addEventListener("submit", onSend);
  $("ask").addEventListener("keydown", (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) onSend(e);
  });
  $("stop").addEventListener("click", () => going && going.abort());
  $("fresh").addEventListener("click", () => {
    talk = [];
    $("talk").replaceChildren();
    put($("chat-said"), "");
    put($("chat-error"), "");
    $("ask").focus();
  });
  chatButtons();
}
