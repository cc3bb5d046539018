// Requests of programs that cannot run here, in the forms of their documentation: docs/clients.md says which.
import assert from 'node:assert/strict';
import { answer, model, question, vectors, weather } from './asked.mjs';
import { checked, root, url } from './checked.mjs';

const messages = [{ role: 'user', content: question }];
const tools = [{ type: 'function', function: { name: 'weather', description: 'weather', parameters: weather } }];

async function post(path, body) {
  const got = await checked(path, { method: 'POST', headers: { 'content-type': 'application/json', authorization: 'Bearer none' }, body: JSON.stringify(body) });
  assert.equal(got.status, 200, await got.clone().text());
  return got;
}

// streamed is the text of a stream of OpenAI's chunks.
async function streamed(body) {
  const text = await (await post(url + '/chat/completions', { ...body, stream: true })).text();
  assert(text.endsWith('data: [DONE]\n\n'));
  return text.split('\n\n').filter((e) => e.startsWith('data: {')).map((e) => JSON.parse(e.slice(6)).choices[0]?.delta.content ?? '').join('');
}

async function openWebUI() {
  assert((await (await checked(url + '/models', {})).json()).data.some((m) => m.id === model));
  assert.equal(await streamed({ model, messages, temperature: 0, stream_options: { include_usage: true } }), answer);
  const title = await (await post(url + '/chat/completions', { model, messages, temperature: 0, stream: false, max_completion_tokens: 1000 })).json();
  assert.equal(title.choices[0].message.content, answer);
  assert.equal((await (await post(url + '/embeddings', { model: vectors, input: ['a', 'b'] })).json()).data.length, 2);
  for (const path of ['/api/version', '/api/tags', '/api/ps']) assert.equal((await checked(root + path, {})).status, 200);
  const lines = (await (await post(root + '/api/chat', { model: model + ':latest', messages, options: { temperature: 0, num_ctx: 2048 }, stream: true })).text()).trimEnd().split('\n').map(JSON.parse);
  assert.equal(lines.map((l) => l.message.content).join(''), answer);
}

async function aider() {
  assert.equal(await streamed({ model, messages, temperature: 0, max_tokens: 64 }), answer);
}

async function zed() {
  const parts = [{ role: 'user', content: [{ type: 'text', text: question }] }];
  assert.equal(await streamed({ model, messages: parts, temperature: 0, max_completion_tokens: 64, stop: [], tools: [], stream_options: { include_usage: true } }), answer);
  await streamed({ model, messages: parts, temperature: 0, max_completion_tokens: 8, tools, tool_choice: 'auto', parallel_tool_calls: false });
}

async function crush() {
  await streamed({ model, messages: [{ role: 'system', content: 'Be brief.' }, ...messages], max_tokens: 8, stream_options: { include_usage: true }, tools });
}

export default [openWebUI, aider, zed, crush];
