-- The commands of aned. Nothing is loaded before one of them is used, and no key is mapped before setup().
if vim.g.loaded_aned or vim.fn.has("nvim-0.7") == 0 then
  return
end
vim.g.loaded_aned = true

local function command(name, run, opts)
  vim.api.nvim_create_user_command(name, run, opts)
end

command("AnedComplete", function()
  require("aned.complete").ask()
end, { desc = "complete the text at the cursor" })
command("AnedChat", function(o)
  require("aned.chat").open(o.args, o.range > 0 and { o.line1, o.line2 } or nil)
end, { nargs = "*", range = true, desc = "open the chat; with a range, about these lines; with words, ask at once" })
command("AnedSend", function()
  require("aned.chat").send()
end, { desc = "send what is written in the chat" })
command("AnedStop", function()
  require("aned").stop()
end, { desc = "stop what the model is writing" })
command("AnedModel", function(o)
  require("aned").choose_model(o.args)
end, { nargs = "?", desc = "use a model; without a name, choose one" })
