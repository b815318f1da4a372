// What the clients' scripts share, as py/case.py has it for Python.
export const BASE = process.env.ANED_BASE;
export const KEY = process.env.ANED_KEY;
export const MODEL = process.env.ANED_MODEL;
export const KIND = process.env.ANED_KIND;
export const QUESTION = 'What is the weather in Paris?';
export const FOREVER = 'Tell a neverending-please story.';
export const ASK = [{ role: 'user', content: QUESTION }];
export const PARAMETERS = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
export const TOOLS = [
  { type: 'function', function: { name: 'get_weather', description: 'The weather of a city.', parameters: PARAMETERS } },
];

const called = [];

export function getWeather(args) {
  called.push(args);
  return 'It is sunny.';
}

export function say(text, pieces = 1) {
  console.log('ANSWER ' + JSON.stringify({ text, pieces, called }));
}

export async function sayAll(pieces) {
  const found = [];
  for await (const p of pieces) if (p) found.push(p);
  say(found.join(''), found.length);
}

// Read a little of an answer without an end, and leave. The process stays until its input ends.
export async function leave(pieces, close = () => {}) {
  let n = 0;
  for await (const p of pieces) {
    n += p ? 1 : 0;
    if (n > 3) break;
  }
  await close();
  console.log('LEFT');
  await new Promise((end) => process.stdin.on('end', end).resume());
  process.exit(0);
}

export async function main(cases) {
  await cases[process.argv[2]]();
}
