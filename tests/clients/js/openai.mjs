import OpenAI from 'openai';
import { ASK, BASE, FOREVER, KEY, KIND, MODEL, PARAMETERS, QUESTION, TOOLS, getWeather, leave, main, say, sayAll } from './case.mjs';

const client = new OpenAI({ baseURL: BASE + '/v1', apiKey: KEY, maxRetries: 0 });

const ask = (messages, more) => client.chat.completions.create({ model: MODEL, messages, ...more });
async function* texts(s) {
  for await (const c of s) yield c.choices[0]?.delta.content;
}

const chat = {
  chat: async () => say((await ask(ASK)).choices[0].message.content),
  stream: async () => sayAll(texts(await ask(ASK, { stream: true }))),
  tools: async () => {
    const m = (await ask(ASK, { tools: TOOLS })).choices[0].message;
    const results = m.tool_calls.map((c) => ({
      role: 'tool',
      tool_call_id: c.id,
      content: getWeather(JSON.parse(c.function.arguments)),
    }));
    say((await ask([...ASK, m, ...results], { tools: TOOLS })).choices[0].message.content);
  },
  cancel: async () => {
    const s = await ask([{ role: 'user', content: FOREVER }], { stream: true });
    await leave(texts(s), () => s.controller.abort());
  },
};

const respond = (input, more) => client.responses.create({ model: MODEL, input, ...more });
async function* deltas(s) {
  for await (const e of s) if (e.type === 'response.output_text.delta') yield e.delta;
}
const tools = [{ type: 'function', name: 'get_weather', description: 'The weather of a city.', parameters: PARAMETERS, strict: false }];

const responses = {
  chat: async () => say((await respond(QUESTION)).output_text),
  stream: async () => sayAll(deltas(await respond(QUESTION, { stream: true }))),
  tools: async () => {
    const r = await respond(QUESTION, { tools });
    const talk = [{ role: 'user', content: QUESTION }];
    for (const c of r.output.filter((x) => x.type === 'function_call')) {
      talk.push(c, { type: 'function_call_output', call_id: c.call_id, output: getWeather(JSON.parse(c.arguments)) });
    }
    say((await respond(talk, { tools })).output_text);
  },
  cancel: async () => {
    const s = await respond(FOREVER, { stream: true });
    await leave(deltas(s), () => s.controller.abort());
  },
};

await main(KIND === 'responses' ? responses : chat);
