import { ChatOpenAI } from '@langchain/openai';
import { BASE, FOREVER, KEY, MODEL, QUESTION, TOOLS, getWeather, leave, main, say, sayAll } from './case.mjs';

const model = new ChatOpenAI({ model: MODEL, apiKey: KEY, maxRetries: 0, configuration: { baseURL: BASE + '/v1' } });
async function* texts(s) {
  for await (const c of s) yield c.content;
}

await main({
  chat: async () => say((await model.invoke(QUESTION)).content),
  stream: async () => sayAll(texts(await model.stream(QUESTION))),
  tools: async () => {
    const bound = model.bindTools(TOOLS);
    const m = await bound.invoke(QUESTION);
    const results = m.tool_calls.map((c) => ({ role: 'tool', tool_call_id: c.id, content: getWeather(c.args) }));
    say((await bound.invoke([{ role: 'user', content: QUESTION }, m, ...results])).content);
  },
  cancel: async () => {
    const stop = new AbortController();
    await leave(texts(await model.stream(FOREVER, { signal: stop.signal })), () => stop.abort());
  },
});
