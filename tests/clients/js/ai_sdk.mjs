import { generateText, streamText, stepCountIs, tool, jsonSchema } from 'ai';
import { BASE, FOREVER, KEY, KIND, MODEL, PARAMETERS, QUESTION, getWeather, leave, main, say, sayAll } from './case.mjs';

async function find() {
  if (KIND === 'compatible') {
    const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
    return createOpenAICompatible({ name: 'aned', baseURL: BASE + '/v1', apiKey: KEY })(MODEL);
  }
  if (KIND === 'anthropic') {
    const { createAnthropic } = await import('@ai-sdk/anthropic');
    return createAnthropic({ baseURL: BASE + '/v1', apiKey: KEY })(MODEL);
  }
  const { createOpenAI } = await import('@ai-sdk/openai');
  return createOpenAI({ baseURL: BASE + '/v1', apiKey: KEY })(MODEL); // its default: the responses API
}
const model = await find();
const fail = ({ error }) => {
  console.error(error);
  process.exit(1);
};

await main({
  chat: async () => say((await generateText({ model, prompt: QUESTION, maxRetries: 0 })).text),
  stream: async () => sayAll(streamText({ model, prompt: QUESTION, maxRetries: 0, onError: fail }).textStream),
  tools: async () => {
    const get_weather = tool({
      description: 'The weather of a city.',
      inputSchema: jsonSchema(PARAMETERS),
      execute: async (args) => getWeather(args),
    });
    const r = await generateText({ model, prompt: QUESTION, tools: { get_weather }, stopWhen: stepCountIs(3), maxRetries: 0 });
    say(r.text);
  },
  cancel: async () => {
    const stop = new AbortController();
    const r = streamText({ model, prompt: FOREVER, maxRetries: 0, abortSignal: stop.signal, onError: () => {} });
    await leave(r.textStream, () => stop.abort());
  },
});
