import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { jsonSchemaOutputFormat } from '@anthropic-ai/sdk/helpers/json-schema';
import { checked, root } from './checked.mjs';
import { answer, caller, cities, model, question, weather } from './asked.mjs';

const client = new Anthropic({ baseURL: root, apiKey: 'none', fetch: checked, maxRetries: 0 });
const messages = [{ role: 'user', content: question }];
const greedy = { model, messages, temperature: 0, max_tokens: 32 };
const tools = [{ name: 'weather', input_schema: weather }];
const forced = { model: caller, messages, tools, tool_choice: { type: 'any', disable_parallel_tool_use: true }, temperature: 0, max_tokens: 512 };

async function chat() {
  const whole = await client.messages.create(greedy);
  assert.deepEqual(whole.content, [{ type: 'text', text: answer }]);
  assert.equal(whole.stop_reason, 'end_turn');
  const stream = client.messages.stream(greedy);
  let text = '';
  stream.on('text', (piece) => (text += piece));
  const end = await stream.finalMessage();
  assert.equal(text, answer);
  assert.deepEqual(end.content, whole.content);
  const prompt = (u) => u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens;
  assert.deepEqual([prompt(end.usage), end.usage.output_tokens], [prompt(whole.usage), whole.usage.output_tokens]);
  assert.equal((await client.messages.countTokens({ model, messages })).input_tokens, prompt(whole.usage));
  const short = await client.messages.create({ ...greedy, max_tokens: 2 });
  assert.equal(short.stop_reason, 'max_tokens');
  const stopped = await client.messages.create({ ...greedy, stop_sequences: [' Cairo'] });
  assert.deepEqual([stopped.stop_reason, stopped.stop_sequence], ['stop_sequence', ' Cairo']);
}

async function calls() {
  const call = (await client.messages.create(forced)).content.find((b) => b.type === 'tool_use');
  assert.equal(call.name, 'weather');
  assert(cities.includes(call.input.city));
  const streamed = (await client.messages.stream(forced).finalMessage()).content.find((b) => b.type === 'tool_use');
  assert.deepEqual(streamed.input, call.input);
}

async function models() {
  const names = [];
  for await (const m of client.models.list({ limit: 2 })) names.push(m.id);
  assert(names.length > 2 && names.includes(model));
  const one = await client.models.retrieve(model);
  assert.deepEqual([one.type, one.display_name, one.created_at.slice(-1)], ['model', model, 'Z']);
}

async function structured() {
  const whole = await client.messages.parse({ ...greedy, output_config: { format: jsonSchemaOutputFormat(weather) } });
  assert(cities.includes(whole.parsed_output.city));
}

async function errors() {
  await assert.rejects(client.messages.create({ ...greedy, model: 'none' }), Anthropic.NotFoundError);
  await assert.rejects(client.messages.create({ ...greedy, unknown: 1 }), (e) => e instanceof Anthropic.BadRequestError && e.error.error.type === 'invalid_request_error');
}

export default [models, chat, structured, calls, errors];
