import assert from 'node:assert/strict';
import OpenAI, { toFile } from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { checked, url } from './checked.mjs';
import { answer, caller, cities, code, continued, model, noVectors, question, vectors, weather } from './asked.mjs';

const client = new OpenAI({ baseURL: url, apiKey: 'none', fetch: checked, maxRetries: 0 });
const messages = [{ role: 'user', content: question }];
const greedy = { model, messages, temperature: 0, max_tokens: 32 };
const tools = [{ type: 'function', function: { name: 'weather', parameters: weather, strict: true } }];
const forced = { model: caller, messages, tools, tool_choice: 'required', parallel_tool_calls: false, temperature: 0, max_tokens: 512 };
const City = z.object({ city: z.enum(cities), people: z.number().int() });

async function models() {
  const all = (await client.models.list()).data.map((m) => m.id);
  assert(all.includes(model) && all.includes(caller), all.join());
  assert.equal((await client.models.retrieve(model)).id, model);
  await assert.rejects(client.models.retrieve('none'), OpenAI.NotFoundError);
}

async function chat() {
  const whole = await client.chat.completions.create({ ...greedy, logprobs: true, top_logprobs: 2, n: 2 });
  assert.equal(whole.choices.length, 2);
  for (const c of whole.choices) {
    assert.equal(c.message.content, answer);
    assert.equal(c.finish_reason, 'stop');
    assert.equal(c.logprobs.content[0].top_logprobs.length, 2);
  }
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  const stream = client.chat.completions.stream({ ...greedy, logprobs: true, stream_options: { include_usage: true } });
  let text = '';
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
  const end = await stream.finalChatCompletion();
  assert.equal(text, answer);
  assert.equal(end.choices[0].message.content, answer);
  assert.equal(end.usage.prompt_tokens, whole.usage.prompt_tokens);
  assert.equal(2 * end.usage.completion_tokens, whole.usage.completion_tokens);
  await assert.rejects(client.chat.completions.create({ ...greedy, unknown: 1 }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'unknown');
  await assert.rejects(client.chat.completions.create({ ...greedy, model: 'none' }), (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found');
}

async function completions() {
  const ask = { model, prompt: code, temperature: 0, max_tokens: 8 };
  const whole = await client.completions.create(ask);
  assert.equal(whole.choices[0].text, continued);
  assert.equal(whole.choices[0].finish_reason, 'length');
  assert.equal(whole.usage.completion_tokens, 8);
  let text = '';
  for await (const chunk of await client.completions.create({ ...ask, stream: true, logprobs: 1 })) text += chunk.choices[0].text;
  assert.equal(text, continued);
  const echo = await client.completions.create({ ...ask, echo: true, logprobs: 1, max_tokens: 0 });
  assert.equal(echo.choices[0].text, code);
  assert.equal(echo.choices[0].logprobs.token_logprobs[0], null);
}

async function calls() {
  const whole = await client.chat.completions.create(forced);
  const [call] = whole.choices[0].message.tool_calls;
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  assert.equal(call.function.name, 'weather');
  assert(cities.includes(JSON.parse(call.function.arguments).city), call.function.arguments);
  const streamed = await client.chat.completions.stream(forced).finalChatCompletion();
  assert.equal(streamed.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
}

async function custom() {
  const grammar = { syntax: 'lark', definition: 'start: term (" + " term)~1..2 -> sum\nterm: /[1-9]{1,2}/ | "(" start ")"' };
  const chat = { ...forced, chat_template_kwargs: { enable_thinking: false }, tools: [{ type: 'custom', custom: { name: 'sum', format: { type: 'grammar', grammar } } }] };
  const [call] = (await client.chat.completions.create(chat)).choices[0].message.tool_calls;
  assert.match(call.custom.input, /^[1-9(][1-9+() ]* \+ [1-9+() ]+$/);
  const streamed = await client.chat.completions.stream(chat).finalChatCompletion();
  assert.deepEqual(streamed.choices[0].message.tool_calls[0].custom, call.custom);
  const respond = { model: caller, input: question, temperature: 0, tool_choice: 'required', parallel_tool_calls: false, reasoning: { effort: 'none' }, tools: [{ type: 'custom', name: 'sum', format: { type: 'grammar', ...grammar } }] };
  const item = (await client.responses.create(respond)).output.find((item) => item.type === 'custom_tool_call');
  assert.equal(item.input, call.custom.input);
  assert.equal((await client.responses.stream(respond).finalResponse()).output.find((item) => item.type === 'custom_tool_call').input, item.input);
}

async function structured() {
  const chat = await client.chat.completions.parse({ ...greedy, max_tokens: 128, response_format: zodResponseFormat(City, 'city') });
  assert.equal(chat.choices[0].message.parsed.city, 'Cairo');
  const response = await client.responses.parse({ model, input: question, temperature: 0, text: { format: zodTextFormat(City, 'city') } });
  assert.deepEqual(response.output_parsed, chat.choices[0].message.parsed);
  const refuse = { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'array', uniqueItems: true } } };
  await assert.rejects(client.chat.completions.create({ ...greedy, response_format: refuse }), /uniqueItems/);
}

async function embeddings() {
  await assert.rejects(client.embeddings.create({ model, input: 'a' }), (e) => e instanceof OpenAI.BadRequestError && e.code === 'unsupported' && noVectors.test(e.message));
  const [a, b] = (await client.embeddings.create({ model: vectors, input: ['a', 'b c'] })).data; // the client asks for base64
  const [c] = (await client.embeddings.create({ model: vectors, input: 'a', encoding_format: 'float' })).data;
  assert.equal(a.embedding.length, c.embedding.length);
  assert(a.embedding.every((x, i) => x === Math.fround(c.embedding[i])));
  assert(Math.abs(b.embedding.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-5);
}

async function responses() {
  const ask = { model, input: question, temperature: 0 };
  const whole = await client.responses.create(ask);
  assert.equal(whole.output_text, answer);
  assert.equal(whole.status, 'completed');
  const stream = client.responses.stream(ask);
  let text = '';
  stream.on('response.output_text.delta', (e) => (text += e.delta));
  const end = await stream.finalResponse();
  assert.equal(text, answer);
  assert.equal(end.output_text, answer);
  assert.deepEqual(end.usage, { ...whole.usage, input_tokens_details: end.usage.input_tokens_details });
  const short = await client.responses.create({ ...ask, max_output_tokens: 2 });
  assert.equal(short.incomplete_details.reason, 'max_output_tokens');
  const called = { model: caller, input: question, temperature: 0, tool_choice: 'required', parallel_tool_calls: false, tools: [{ type: 'function', name: 'weather', parameters: weather, strict: true }] };
  const call = (await client.responses.create(called)).output.find((item) => item.type === 'function_call');
  assert(cities.includes(JSON.parse(call.arguments).city), call.arguments);
  const streamed = (await client.responses.stream(called).finalResponse()).output.find((item) => item.type === 'function_call');
  assert.equal(streamed.arguments, call.arguments);
  assert.equal((await client.responses.inputTokens.count({ model, input: question })).input_tokens, whole.usage.input_tokens);
  await assert.rejects(client.responses.create({ ...ask, previous_response_id: 'resp_1' }), /store: false/);
  assert.equal((await client.responses.retrieve(whole.id)).output_text ?? whole.output_text, answer);
  assert.equal((await client.responses.create({ ...ask, previous_response_id: whole.id })).previous_response_id, whole.id);
  await client.responses.delete(whole.id);
  await assert.rejects(client.responses.retrieve(whole.id), OpenAI.NotFoundError);
  await assert.rejects(client.responses.retrieve('resp_1'), OpenAI.NotFoundError);
}

async function batches() {
  const line = (id) => JSON.stringify({ custom_id: id, method: 'POST', url: '/v1/chat/completions', body: greedy });
  const upload = async (ids) => client.files.create({ purpose: 'batch', file: await toFile(Buffer.from(ids.map(line).join('\n')), 'lines.jsonl') });
  const create = (file) => client.batches.create({ input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' });
  const file = await upload(['a', 'b']);
  assert.equal((await client.files.retrieve(file.id)).bytes, file.bytes);
  let batch = await create(file);
  for (let i = 0; !batch.output_file_id && i < 300; i++) {
    await new Promise((done) => setTimeout(done, 100));
    batch = await client.batches.retrieve(batch.id);
  }
  assert.deepEqual(batch.request_counts, { total: 2, completed: 2, failed: 0 });
  const lines = (await (await client.files.content(batch.output_file_id)).text()).trim().split('\n').map((line) => JSON.parse(line));
  assert.deepEqual(lines.map((line) => line.custom_id).sort(), ['a', 'b']);
  for (const line of lines) assert.equal(line.response.body.choices[0].message.content, answer);
  assert((await client.batches.list()).data.some((b) => b.id === batch.id));
  await assert.rejects(client.batches.cancel(batch.id), OpenAI.ConflictError);
  const long = await create(await upload(Array.from({ length: 5000 }, (_, i) => String(i))));
  assert.match((await client.batches.cancel(long.id)).status, /^cancel/);
  assert((await client.files.list()).data.some((f) => f.id === file.id));
  assert((await client.files.delete(batch.output_file_id)).deleted);
  assert.equal((await client.delete(`/batches/${batch.id}`)).deleted, true);
}

export default [models, chat, completions, calls, custom, structured, embeddings, responses, batches];
