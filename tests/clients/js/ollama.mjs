import { Ollama } from 'ollama';
import { ASK, BASE, FOREVER, KEY, MODEL, TOOLS, getWeather, leave, main, say, sayAll } from './case.mjs';

const client = new Ollama({ host: BASE, headers: { Authorization: 'Bearer ' + KEY } });
const ask = (messages, more) => client.chat({ model: MODEL, messages, ...more });
async function* texts(s) {
  for await (const p of s) yield p.message.content;
}

await main({
  chat: async () => say((await ask(ASK)).message.content),
  stream: async () => sayAll(texts(await ask(ASK, { stream: true }))),
  tools: async () => {
    const m = (await ask(ASK, { tools: TOOLS })).message;
    const results = m.tool_calls.map((c) => ({ role: 'tool', tool_name: c.function.name, content: getWeather(c.function.arguments) }));
    say((await ask([...ASK, m, ...results], { tools: TOOLS })).message.content);
  },
  cancel: async () => {
    const s = await ask([{ role: 'user', content: FOREVER }], { stream: true });
    await leave(texts(s), () => client.abort());
  },
});
