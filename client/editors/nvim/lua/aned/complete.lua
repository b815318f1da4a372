--- Completion at the cursor: grey text that a key takes over.
local aned = require("aned")
local errors = require("aned.errors")
local uv = vim.uv or vim.loop

local M = {}

local ns = vim.api.nvim_create_namespace("aned-complete")
local no_suffix = {} -- [socket and model]: true where a suffix was refused

-- What is shown or being asked for. nil: nothing.
--   buf, row, col: where it begins (0-based, bytes); text; mark: its extmark; request; kept: the mapping that the accept
--   key had in this buffer
local shown = nil
local timer = nil

local function in_insert()
  return vim.api.nvim_get_mode().mode:sub(1, 1) == "i"
end

local function cursor()
  local at = vim.api.nvim_win_get_cursor(0)
  return at[1] - 1, at[2]
end

--- The text on both sides of the cursor, cut at line ends where it is too long.
local function around(conf)
  local row, col = cursor()
  local lines = vim.api.nvim_buf_get_lines(0, 0, -1, false)
  local line = lines[row + 1] or ""
  local before, n = { line:sub(1, col) }, col
  for i = row, 1, -1 do
    n = n + #lines[i] + 1
    if n > conf.prefix_bytes then
      break
    end
    table.insert(before, 1, lines[i])
  end
  local after
  after, n = { line:sub(col + 1) }, #line - col
  for i = row + 2, #lines do
    n = n + #lines[i] + 1
    if n > conf.suffix_bytes then
      break
    end
    after[#after + 1] = lines[i]
  end
  return table.concat(before, "\n"), table.concat(after, "\n")
end

--- The grey text: at the end of a line behind it; within a line before the rest, which moves aside.
local function draw()
  local lines = vim.split(shown.text, "\n", { plain = true })
  local line = vim.api.nvim_buf_get_lines(shown.buf, shown.row, shown.row + 1, false)[1] or ""
  local rest = line:sub(shown.col + 1)
  local inline = vim.fn.has("nvim-0.10") == 1
  local first = { { lines[1], "Comment" } }
  if rest ~= "" and not inline then
    first[2] = { rest } -- an overlay hides what is below it: show it again
  end
  local more = {}
  for i = 2, #lines do
    more[#more + 1] = { { lines[i] == "" and " " or lines[i], "Comment" } }
  end
  shown.mark = vim.api.nvim_buf_set_extmark(shown.buf, ns, shown.row, shown.col, {
    id = shown.mark,
    virt_text = first,
    virt_text_pos = inline and rest ~= "" and "inline" or "overlay",
    virt_lines = #more > 0 and more or nil,
  })
end

--- The accept key means acceptance only while there is something to accept.
local function map_accept(buf)
  local key = aned.config.keys.accept
  if key == "" then
    return nil
  end
  local kept = vim.fn.maparg(key, "i", false, true)
  vim.keymap.set("i", key, function()
    M.accept()
  end, { buffer = buf, desc = "take over aned's completion" })
  return kept.buffer == 1 and kept or {}
end

local function unmap_accept(old)
  if not old.kept or not vim.api.nvim_buf_is_valid(old.buf) then
    return
  end
  pcall(vim.keymap.del, "i", aned.config.keys.accept, { buffer = old.buf })
  local kept = old.kept
  if kept.lhs then -- by hand: Neovim 0.7 has no mapset()
    vim.keymap.set("i", kept.lhs, kept.callback or kept.rhs, {
      buffer = old.buf,
      expr = kept.expr == 1,
      remap = kept.noremap == 0,
      silent = kept.silent == 1,
      nowait = kept.nowait == 1,
    })
  end
end

--- Show nothing, and stop asking.
function M.clear()
  if timer then
    timer:stop()
  end
  local old = shown
  shown = nil
  if not old then
    return
  end
  if old.request then
    old.request.stop()
  end
  unmap_accept(old)
  if vim.api.nvim_buf_is_valid(old.buf) then
    vim.api.nvim_buf_clear_namespace(old.buf, ns, 0, -1)
  end
end

local function extend(text)
  shown.text = shown.text .. text
  if shown.text:match("%S") then
    draw()
    shown.kept = shown.kept or map_accept(shown.buf)
  end
end

--- Put what is shown into the buffer. False: nothing is shown.
function M.accept()
  if not (shown and shown.mark) then
    return false
  end
  local s = shown
  M.clear()
  local lines = vim.split(s.text, "\n", { plain = true })
  vim.api.nvim_buf_set_text(s.buf, s.row, s.col, s.row, s.col, lines)
  local col = #lines == 1 and s.col + #lines[1] or #lines[#lines]
  vim.api.nvim_win_set_cursor(0, { s.row + #lines, col })
  return true
end

--- What is shown, or nil.
function M.text()
  return shown and shown.mark and shown.text or nil
end

local function refuses_suffix(res)
  local e = res and res.status == 400 and errors.parse(res.body)
  return e and (e.param == "suffix" or (e.text or ""):match("^suffix")) and true or false
end

local function request(prefix, suffix, quiet)
  local me = shown
  local conf = aned.config.completion
  local where = aned.socket() .. " " .. aned.config.model
  local body = { prompt = prefix, max_tokens = conf.max_tokens, temperature = conf.temperature }
  if suffix:match("%S") and not no_suffix[where] then
    body.suffix = suffix
  end
  if #conf.stop > 0 then
    body.stop = conf.stop
  end
  me.request = aned.stream("/v1/completions", body, {
    choice = function(c)
      if shown == me and type(c.text) == "string" then
        extend(c.text)
      end
    end,
    done = function(err, res)
      if shown ~= me then
        return
      end
      me.request = nil
      if body.suffix and refuses_suffix(res) then
        no_suffix[where] = true
        return request(prefix, "", quiet)
      end
      if err or res.status ~= 200 then
        M.clear()
        if not quiet then
          errors.tell(err, res)
        end
      elseif not me.mark then
        M.clear()
        if not quiet then
          vim.notify("aned: the model adds nothing here", vim.log.levels.INFO)
        end
      end
    end,
  })
end

--- Ask for a completion at the cursor. quiet: it was not asked for by hand, so say nothing of what fails.
function M.ask(quiet)
  if not in_insert() then
    vim.api.nvim_create_autocmd("InsertEnter", {
      once = true,
      callback = vim.schedule_wrap(function()
        M.ask(quiet)
      end),
    })
    return vim.cmd("startinsert!")
  end
  M.clear()
  local prefix, suffix = around(aned.config.completion)
  if not prefix:match("%S") then
    if not quiet then
      vim.notify("aned: there is nothing before the cursor to go on from: write a line first", vim.log.levels.WARN)
    end
    return
  end
  local row, col = cursor()
  shown = { buf = vim.api.nvim_get_current_buf(), row = row, col = col, text = "" }
  request(prefix, suffix, quiet)
end

--- After a change: what was typed as it is shown stays; everything else ends it.
local function follow()
  if not shown then
    return
  end
  local row, col = cursor()
  local same = vim.api.nvim_get_current_buf() == shown.buf and row == shown.row and col >= shown.col
  local line = vim.api.nvim_get_current_line()
  local typed = same and line:sub(shown.col + 1, col) or ""
  if not same or shown.text:sub(1, #typed) ~= typed or #typed == #shown.text and #typed > 0 then
    return M.clear()
  end
  if typed ~= "" then
    shown.text, shown.col = shown.text:sub(#typed + 1), col
    draw()
  end
end

local function ask_later(conf)
  timer = timer or uv.new_timer()
  timer:stop()
  timer:start(
    conf.delay_ms,
    0,
    vim.schedule_wrap(function()
      if in_insert() and not shown and vim.bo.buftype == "" then
        M.ask(true)
      end
    end)
  )
end

--- Keys and events, by conf (aned.config).
function M.setup(conf)
  local group = vim.api.nvim_create_augroup("aned-complete", { clear = true })
  vim.api.nvim_create_autocmd({ "CursorMovedI", "TextChangedI" }, { group = group, callback = follow })
  vim.api.nvim_create_autocmd({ "InsertLeave", "BufLeave" }, {
    group = group,
    callback = function()
      M.clear()
    end,
  })
  if conf.completion.auto then
    vim.api.nvim_create_autocmd("TextChangedI", {
      group = group,
      callback = function()
        ask_later(conf.completion)
      end,
    })
  end
  if conf.keys.complete ~= "" then
    vim.keymap.set("i", conf.keys.complete, function()
      M.ask()
    end, { desc = "complete with aned" })
  end
  if conf.keys.dismiss ~= "" then
    vim.keymap.set("i", conf.keys.dismiss, function()
      M.clear()
    end, { desc = "dismiss aned's completion" })
  end
end

return M
