--- A chat in a buffer. What is sent is what the buffer says: headings part the turns, and earlier ones can be edited.
local aned = require("aned")
local errors = require("aned.errors")

local M = {}

local NAME = "aned://chat"
local HEADINGS = { ["## System"] = "system", ["## You"] = "user", ["## Model"] = "assistant" }
local ns = vim.api.nvim_create_namespace("aned-chat")
local FLUSH_MS = 30 -- text is put into the buffer at most so often: a fast model gives hundreds of pieces a second
local running = nil -- {buf, request, said, pending: text that is not in the buffer yet}

local function find()
  for _, b in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_is_valid(b) and vim.b[b].aned_chat then
      return b
    end
  end
end

local function set_lines(buf, from, to, lines)
  vim.api.nvim_buf_set_lines(buf, from, to, false, lines)
end

--- The windows of the buffer follow its end, those whose cursor is there already.
local function append(buf, text)
  local last = vim.api.nvim_buf_line_count(buf)
  local windows = vim.tbl_filter(function(w)
    return vim.api.nvim_win_get_cursor(w)[1] == last
  end, vim.fn.win_findbuf(buf))
  local line = vim.api.nvim_buf_get_lines(buf, last - 1, last, false)[1] or ""
  vim.api.nvim_buf_set_text(buf, last - 1, #line, last - 1, #line, vim.split(text, "\n", { plain = true }))
  last = vim.api.nvim_buf_line_count(buf)
  line = vim.api.nvim_buf_get_lines(buf, last - 1, last, false)[1] or ""
  for _, w in ipairs(windows) do
    vim.api.nvim_win_set_cursor(w, { last, #line })
  end
end

local function make()
  local buf = vim.api.nvim_create_buf(true, true)
  vim.api.nvim_buf_set_name(buf, NAME)
  vim.b[buf].aned_chat = true
  vim.bo[buf].filetype = "markdown"
  vim.bo[buf].bufhidden = "hide"
  set_lines(buf, 0, -1, { "## You", "", "" })
  local function map(key, run, desc)
    vim.keymap.set("n", key, run, { buffer = buf, desc = desc })
  end
  map("<CR>", M.send, "send")
  map("<C-c>", M.stop, "stop the answer")
  return buf
end

local function trim(lines)
  return vim.trim(table.concat(lines, "\n"))
end

--- The conversation as messages. Turns without text are left out.
function M.messages(buf)
  local found, role, lines = {}, nil, {}
  local function close()
    local text = trim(lines)
    if role and text ~= "" then
      found[#found + 1] = { role = role, content = text }
    end
    lines = {}
  end
  for _, line in ipairs(vim.api.nvim_buf_get_lines(buf, 0, -1, false)) do
    local heading = HEADINGS[line]
    if heading then
      close()
      role = heading
    else
      lines[#lines + 1] = line
    end
  end
  close()
  return found
end

--- The lines of a range as a block of code.
local function quoted(buf, range)
  local lines = vim.api.nvim_buf_get_lines(buf, range[1] - 1, range[2], false)
  table.insert(lines, 1, "```" .. vim.bo[buf].filetype)
  lines[#lines + 1] = "```"
  return table.concat(lines, "\n")
end

--- Show the chat. question: asked at once, "" for none; range: {first, last} line of this buffer, put before it.
function M.open(question, range)
  local from = vim.api.nvim_get_current_buf()
  local text = range and quoted(from, range) .. "\n\n" or ""
  local buf = find() or make()
  local window = vim.fn.bufwinid(buf)
  if window ~= -1 then
    vim.api.nvim_set_current_win(window)
  elseif from ~= buf then
    vim.cmd("botright vsplit")
    vim.api.nvim_win_set_buf(0, buf)
    vim.wo.wrap, vim.wo.linebreak = true, true
  end
  vim.cmd("normal! G$")
  append(buf, text .. (question or ""))
  if question and question ~= "" then
    M.send()
  end
end

local function status(buf, text)
  vim.api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  if text then
    local last = vim.api.nvim_buf_line_count(buf) - 1
    vim.api.nvim_buf_set_extmark(buf, ns, last, 0, { virt_text = { { text, "Comment" } }, virt_text_pos = "eol" })
  end
end

--- Nothing was said: the turn that was begun goes, so that the question can be sent again.
local function take_back(buf)
  local lines = vim.api.nvim_buf_get_lines(buf, 0, -1, false)
  for i = #lines, 1, -1 do
    if lines[i] == "## Model" then
      return set_lines(buf, math.max(i - 2, 0), -1, {})
    end
  end
end

local function flush(me)
  local text = table.concat(me.pending)
  me.pending = {}
  if text ~= "" and vim.api.nvim_buf_is_valid(me.buf) then
    append(me.buf, text)
  end
end

local function finish(me, err, res)
  running = nil
  if not vim.api.nvim_buf_is_valid(me.buf) then
    return
  end
  status(me.buf)
  flush(me)
  local failed = err and err.kind ~= "stopped" or not err and res.status ~= 200
  if not me.said then
    take_back(me.buf)
  else
    append(me.buf, "\n\n## You\n\n")
  end
  if failed then
    errors.tell(err, res)
  elseif not me.said and not err then
    vim.notify("aned: the model said nothing: ask in other words", vim.log.levels.WARN)
  elseif me.why == "length" then
    vim.notify("aned: the answer was cut off: ask it to go on, or set chat.max_tokens", vim.log.levels.WARN)
  end
end

local function hear(me, choice)
  if running ~= me then
    return
  end
  local d = type(choice.delta) == "table" and choice.delta or {}
  me.why = type(choice.finish_reason) == "string" and choice.finish_reason or me.why
  if not vim.api.nvim_buf_is_valid(me.buf) then
    me.request.stop() -- the chat is gone: nobody reads it
  elseif type(d.content) == "string" and d.content ~= "" then
    status(me.buf)
    me.said = true
    me.pending[#me.pending + 1] = d.content
    if #me.pending == 1 then
      vim.defer_fn(function()
        flush(me)
      end, FLUSH_MS)
    end
  elseif type(d.reasoning_content) == "string" and not me.said then
    status(me.buf, "thinking ...")
  end
end

--- Send the chat's conversation; the answer comes below it.
function M.send()
  local buf = find()
  if not buf then
    return vim.notify("aned: there is no chat yet: open one with :AnedChat", vim.log.levels.WARN)
  elseif running then
    return vim.notify("aned: an answer is still coming: wait, or stop it with :AnedStop", vim.log.levels.WARN)
  end
  local conf = aned.config.chat
  local messages = M.messages(buf)
  if #messages == 0 or messages[#messages].role ~= "user" then
    return vim.notify("aned: write your question below the last `## You` first", vim.log.levels.WARN)
  end
  if conf.system ~= "" and messages[1].role ~= "system" then
    table.insert(messages, 1, { role = "system", content = conf.system })
  end
  local me = { buf = buf, said = false, pending = {} }
  running = me
  append(buf, "\n\n## Model\n\n")
  status(buf, "waiting ...")
  me.request = aned.stream(
    "/v1/chat/completions",
    { messages = messages, max_tokens = conf.max_tokens, temperature = conf.temperature },
    {
      choice = function(c)
        hear(me, c)
      end,
      done = function(err, res)
        finish(me, err, res)
      end,
    }
  )
end

--- End the answer that is coming; what came of it stays.
function M.stop()
  if running then
    running.request.stop()
  end
end

--- Is an answer coming?
function M.is_running()
  return running ~= nil
end

return M
