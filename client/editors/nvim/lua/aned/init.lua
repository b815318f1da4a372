--- Settings, and what completion and chat share.
local http = require("aned.http")
local errors = require("aned.errors")

local M = {}

M.config = {
  socket = nil, -- a path; nil: $ANED_SOCKET, else where `aned serve` listens by default
  model = "", -- "": the daemon's default
  completion = {
    auto = false, -- ask by itself when you pause in insert mode
    delay_ms = 300, -- for so long
    max_tokens = 64,
    temperature = 0,
    prefix_bytes = 8192, -- of the text before the cursor
    suffix_bytes = 2048, -- and behind it, for models that fill in
    stop = {}, -- texts that end a completion
  },
  chat = {
    system = "", -- instructions before the conversation
    max_tokens = nil, -- nil: until the model ends
    temperature = nil, -- nil: the daemon's
  },
  keys = { complete = "<M-\\>", accept = "<Tab>", dismiss = "<C-]>" }, -- in insert mode; "": none
}

--- opts are as M.config; what is left out stays as it is.
function M.setup(opts)
  M.config = vim.tbl_deep_extend("force", M.config, opts or {})
  require("aned.complete").setup(M.config)
end

local function home_socket()
  local home = vim.env.ANED_HOME
  if not home or home == "" then
    local mac = vim.fn.has("mac") == 1
    home = vim.fn.expand(mac and "~/Library/Application Support/dev.aned.daemon" or "~/.local/share/aned")
  end
  return home .. "/run/aned.sock"
end

--- Where aned listens, found as anectl finds it.
function M.socket()
  local function set(text)
    return text and text ~= "" and text or nil
  end
  local run = set(vim.env.XDG_RUNTIME_DIR)
  return set(M.config.socket) and vim.fn.expand(M.config.socket)
    or set(vim.env.ANED_SOCKET)
    or run and run .. "/aned/aned.sock"
    or home_socket()
end

--- http.request to the daemon; a body gets the model that is set.
function M.request(method, path, body, on)
  if body and M.config.model ~= "" then
    body.model = M.config.model
  end
  return http.request({ socket = M.socket(), method = method, path = path, body = body }, on)
end

--- Post, and read a stream in the form of OpenAI. on.choice(c): choices[1] of each event. on.done(err, res) as in
--- aned.http; an error inside of the stream comes as a res with its body.
function M.stream(path, body, on)
  local failed = nil
  body.stream = true
  return M.request("POST", path, body, {
    data = http.events(function(text)
      local ok, x = pcall(vim.json.decode, text)
      if not ok or type(x) ~= "table" then
        return -- "[DONE]"
      elseif x.error then
        failed = { status = 500, body = text }
      elseif type(x.choices) == "table" and x.choices[1] then
        on.choice(x.choices[1])
      end
    end),
    done = function(err, res)
      on.done(err, failed or res)
    end,
  })
end

--- Stop what the model is writing, in the chat and at the cursor.
function M.stop()
  require("aned.chat").stop()
  require("aned.complete").clear()
end

--- Use the model `name`; without one, ask which.
function M.choose_model(name)
  if name and name ~= "" then
    M.config.model = name
    return
  end
  M.request("GET", "/v1/models", nil, {
    done = function(err, res)
      if err or res.status ~= 200 then
        return errors.tell(err, res)
      end
      local names = {}
      for _, m in ipairs(vim.json.decode(res.body).data or {}) do
        names[#names + 1] = m.id
      end
      if #names == 0 then
        return vim.notify("aned: there is no model yet: make one with `anectl convert FILE.gguf`", vim.log.levels.WARN)
      end
      vim.ui.select(names, { prompt = "aned model" }, function(choice)
        M.config.model = choice or M.config.model
      end)
    end,
  })
end

return M
