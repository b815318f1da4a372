--- What went wrong, and what to do about it.
local M = {}

local START = "start it with `aned serve`, or for good with `anectl service install`"

local CONNECT = {
  ENOENT = "aned does not run (no socket at %s): " .. START .. "; if it runs elsewhere, set `socket` in setup() or $ANED_SOCKET",
  ECONNREFUSED = "aned does not run (nothing listens at %s): " .. START,
  EACCES = "%s belongs to somebody else: start aned as yourself, or set `socket` in setup()",
}

-- By the error's code; before them, by its field.
local ADVICE = {
  model_not_found = "`anectl models` lists the models; choose one with :AnedModel, or make one with `anectl convert FILE.gguf`",
  context_length_exceeded = "send less: a shorter chat, a smaller completion.prefix_bytes; or convert with a larger --context",
  busy = "others are being served: try again in a moment",
  starting = "aned has just started: try again in a moment",
  ["template.unsupported"] = "this model has no chat: use :AnedComplete, or choose another with :AnedModel",
  ["template.input"] = "the model's template wants other turns: see the chat's headings, or begin a new chat",
  ["model.failed"] = "`anectl doctor` says what is wrong",
  ["model.rejected"] = "`anectl report MODEL` shows the gate that it did not pass; choose another with :AnedModel",
  ["engine.lost"] = "try again; if it happens again, `anectl doctor` says what is wrong",
  no_memory = "unload a model (`anectl ps`, `anectl unload MODEL`), then try again",
  interrupted = "aned was stopped: " .. START,
}

--- The parts of an error answer: text, code, param.
function M.parse(body)
  local ok, x = pcall(vim.json.decode, body or "")
  local e = ok and type(x) == "table" and x.error
  if type(e) == "string" then
    return { text = e }
  elseif type(e) ~= "table" then
    return nil
  end
  local function str(v)
    return type(v) == "string" and v or nil
  end
  return { text = str(e.message), code = str(e.code), param = str(e.param) }
end

--- One line for a person. err: of aned.http; else res: an answer that is not 2xx.
function M.explain(err, res)
  if err and err.kind == "connect" then
    local known = CONNECT[tostring(err.text):match("^(E%u+)")]
    return known and known:format(err.socket) or ("aned cannot be reached at %s (%s): %s"):format(err.socket, err.text, START)
  elseif err then
    return ("the connection broke (%s): try again; `anectl status` says whether aned is well"):format(err.text)
  end
  local e = M.parse(res.body)
  if not e or not e.text then
    return ("aned answered %d: `anectl doctor` says what is wrong"):format(res.status)
  end
  local advice = e.param == "model" and ADVICE.model_not_found or ADVICE[e.code or ""]
  if not advice and res.status == 503 then
    advice = ADVICE.busy
  end
  return advice and (e.text .. ": " .. advice) or e.text
end

--- Say it.
function M.tell(err, res)
  vim.notify("aned: " .. M.explain(err, res), vim.log.levels.ERROR)
end

return M
