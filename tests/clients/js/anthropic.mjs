import Anthropic from '@anthropic-ai/sdk';
import { ASK, BASE, FOREVER, KEY, MODEL, PARAMETERS, getWeather, leave, main, say, sayAll } from './case.mjs';

const client = new Anthropic({ baseURL: BASE, apiKey: KEY, maxRetries: 0 });
const tools = [{ name: 'get_weather', description: 'The weather of a city.', input_schema: PARAMETERS }];

const ask = (messages, more) => client.messages.create({ model: MODEL, max_tokens: 8192, messages, ...more });
const text = (m) => m.content.filter((b) => b.type === 'text').map((b) => b.text).join('');
async function* texts(s) {
  for await (const e of s) if (e.type === 'content_block_delta') yield e.delta.text;
}

await main({
  chat: async () => say(text(await ask(ASK))),
  stream: async () => sayAll(texts(await ask(ASK, { stream: true }))),
  tools: async () => {
    const m = await ask(ASK, { tools });
    const results = m.content
      .filter((b) => b.type === 'tool_use')
      .map((b) => ({ type: 'tool_result', tool_use_id: b.id, content: getWeather(b.input) }));
    say(text(await ask([...ASK, { role: 'assistant', content: m.content }, { role: 'user', content: results }], { tools })));
  },
  cancel: async () => {
    const s = await ask([{ role: 'user', content: FOREVER }], { stream: true });
    await leave(texts(s), () => s.controller.abort());
  },
});
