--- One HTTP request over a Unix socket, read as it arrives.
local uv = vim.uv or vim.loop

local M = {}

local HEAD_MAX = 64 * 1024 -- bytes of an answer's head, and of a chunk's size line
local BODY_MAX = 8 * 1024 * 1024 -- bytes of an answer that is no stream

--- What the body's bytes are, piece by piece: those of chunks, of a length, or all that comes.
--- The functions take what has arrived and give (body bytes, rest, "more" | "end" | nil and an error).
local body_readers = {}

function body_readers.length(state, text)
  local take = text:sub(1, state.left)
  state.left = state.left - #take
  return take, "", state.left == 0 and "end" or "more"
end

function body_readers.close(_, text)
  return text, "", "more"
end

function body_readers.chunked(state, text)
  local out = {}
  while true do
    if state.left == 0 then
      local size, rest = text:match("^(%x+)[^\r\n]*\r\n(.*)$")
      if not size then
        if #text > HEAD_MAX or text:find("\n", 1, true) then
          return nil, nil, nil, "a bad chunk"
        end
        return table.concat(out), text, "more"
      end
      if #size > 8 then
        return nil, nil, nil, "a chunk that is too large"
      end
      state.left = tonumber(size, 16)
      if state.left == 0 then
        return table.concat(out), "", "end"
      end
      state.left = state.left + 2 -- with the line end behind it
      text = rest
    end
    if text == "" then
      return table.concat(out), "", "more"
    end
    local data = text:sub(1, math.max(state.left - 2, 0))
    local all = text:sub(1, state.left)
    out[#out + 1] = data
    text = text:sub(#all + 1)
    state.left = state.left - #all
  end
end

--- Status and lower-case headers of a head.
local function parse_head(head)
  local status = tonumber(head:match("^HTTP/1%.[01] (%d%d%d)"))
  if not status then
    return nil
  end
  local headers = {}
  for name, value in head:gmatch("\n([%w-]+):%s*([^\r\n]*)") do
    headers[name:lower()] = value
  end
  return { status = status, headers = headers }
end

--- A reader of one answer. feed(text) gives an error's text or nil; on.data gets the body of an answer of 200 to 299,
--- any other body is kept in res.body.
local function reader(on)
  local r = { text = "", res = nil, over = false, body = { left = 0 }, read = nil, kept = {}, kept_n = 0 }

  local function begin(head)
    r.res = parse_head(head)
    if not r.res then
      return "no HTTP answer"
    end
    local h = r.res.headers
    if (h["transfer-encoding"] or ""):lower():find("chunked", 1, true) then
      r.read = body_readers.chunked
    elseif h["content-length"] then
      r.body.left = tonumber(h["content-length"]) or 0
      r.read = body_readers.length
      r.over = r.body.left == 0
    else
      r.read = body_readers.close
    end
  end

  local function body(data)
    if data == "" then
      return nil
    end
    if on.data and r.res.status < 300 then
      on.data(data)
      return nil
    end
    r.kept_n = r.kept_n + #data
    if r.kept_n > BODY_MAX then
      return "an answer that is too large"
    end
    r.kept[#r.kept + 1] = data
  end

  function r.feed(text)
    r.text = r.text .. text
    if not r.res then
      local at, last = r.text:find("\r\n\r\n", 1, true)
      if not at then
        return #r.text > HEAD_MAX and "a head that is too large" or nil
      end
      local failed = begin(r.text:sub(1, at))
      if failed then
        return failed
      end
      r.text = r.text:sub(last + 1)
    end
    if r.over then
      return nil
    end
    local data, rest, where, failed = r.read(r.body, r.text)
    if not data then
      return failed
    end
    r.text, r.over = rest, where == "end"
    return body(data)
  end

  --- The answer when the connection ends; nil when it is not whole.
  function r.finish()
    if not r.res or not (r.over or r.read == body_readers.close) then
      return nil
    end
    r.res.body = table.concat(r.kept)
    return r.res
  end

  return r
end

--- Ask. q: socket, method, path, body (a value that becomes JSON, or nil).
--- on.data(text): bytes of a good answer's body, as they come; without it they are in res.body.
--- on.done(err, res): once, at the end. err: nil or {kind = "connect" | "broken" | "stopped", text, socket}.
--- Both are called from the main loop, where every function of the editor may be used.
--- The result has stop(): the connection ends, and with it what the model computes; then on.done gets "stopped".
function M.request(q, on)
  local pipe = assert(uv.new_pipe(false))
  local over = false

  local function done(err, res)
    if over then
      return
    end
    over = true
    if not pipe:is_closing() then
      pipe:close()
    end
    if err then
      err.socket = q.socket
    end
    vim.schedule(function()
      on.done(err, res)
    end)
  end

  local r = reader({
    data = on.data and function(text)
      vim.schedule(function()
        on.data(text)
      end)
    end,
  })

  local body = q.body and vim.json.encode(q.body) or ""
  local head = ("%s %s HTTP/1.1\r\nHost: aned\r\nConnection: close\r\nContent-Type: application/json\r\n"
    .. "Content-Length: %d\r\n\r\n"):format(q.method, q.path, #body)

  pipe:connect(q.socket, function(failed)
    if over then
      return
    end
    if failed then
      return done({ kind = "connect", text = failed })
    end
    pipe:write(head .. body)
    pipe:read_start(function(broken, text)
      if over then
        return
      end
      if broken then
        return done({ kind = "broken", text = broken })
      end
      if text then
        local bad = r.feed(text)
        if bad then
          return done({ kind = "broken", text = bad })
        end
      end
      if not text or r.over then
        local res = r.finish()
        done(not res and { kind = "broken", text = "the answer ended early" } or nil, res)
      end
    end)
  end)

  return {
    stop = function()
      done({ kind = "stopped", text = "stopped" })
    end,
  }
end

--- For the data of a stream of events: a function that takes its bytes and calls on_event(text) for each.
function M.events(on_event)
  local text = ""
  return function(more)
    text = text .. more
    while true do
      local line, rest = text:match("^([^\n]*)\n(.*)$")
      if not line then
        return
      end
      text = rest
      local data = line:match("^data: ?(.-)\r?$")
      if data then
        on_event(data)
      end
    end
  end
end

M.reader = reader

return M
