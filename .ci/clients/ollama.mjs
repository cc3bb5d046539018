import assert from 'node:assert/strict';
import { Ollama } from 'ollama';
import { checked, root } from './checked.mjs';
import { answer, caller, code, continued, model, noVectors, question, vectors, weather } from './asked.mjs';

const client = new Ollama({ host: root, fetch: checked });
const messages = [{ role: 'user', content: question }];
const options = { temperature: 0, num_predict: 128 };
const tools = [{ type: 'function', function: { name: 'weather', parameters: weather } }];

async function models() {
  assert((await client.list()).models.some((m) => m.name === model));
  assert((await client.ps()).models.some((m) => m.name === model));
  assert.match((await client.show({ model })).model_info['general.architecture'], /^gemma3/);
  assert.equal((await client.pull({ model })).status, 'success');
  assert((await client.version()).version);
}

async function chat() {
  const whole = await client.chat({ model, messages, options });
  assert.equal(whole.message.content, answer);
  assert.equal(whole.done_reason, 'stop');
  assert(whole.prompt_eval_duration > 0 && whole.eval_duration > 0);
  let text = '', last;
  for await (const line of await client.chat({ model, messages, options, stream: true })) {
    text += line.message.content;
    last = line;
  }
  assert.equal(text, answer);
  assert.deepEqual([last.prompt_eval_count, last.eval_count], [whole.prompt_eval_count, whole.eval_count]);
}

async function generate() {
  const ask = { model, prompt: code, raw: true, options: { temperature: 0, num_predict: 8 } };
  assert.equal((await client.generate(ask)).response, continued);
  let text = '';
  for await (const line of await client.generate({ ...ask, stream: true })) text += line.response;
  assert.equal(text, continued);
}

async function calls() {
  const whole = await client.chat({ model: caller, messages, options, tools }); // which the model may call, and need not: the API forces none
  assert.equal(whole.message.role, 'assistant');
}

async function structured() {
  const whole = await client.chat({ model, messages, options, format: weather });
  assert.equal(JSON.parse(whole.message.content).city, 'Cairo');
}

async function embeddings() {
  await assert.rejects(client.embed({ model, input: 'a' }), noVectors);
  const { embeddings: all } = await client.embed({ model: vectors, input: ['a', 'b c'] });
  assert.equal(all.length, 2);
  const { embedding } = await client.embeddings({ model: vectors, prompt: 'a' });
  assert.equal(embedding.length, all[0].length);
}

async function errors() {
  await assert.rejects(client.pull({ model: 'qwen3:0.6b' }), /karat pull/);
  await assert.rejects(client.chat({ model: 'none', messages }), /does not exist/);
}

export default [models, chat, generate, calls, structured, embeddings, errors];
