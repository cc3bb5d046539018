// The routes that none of the packages knows.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { checked, root } from './checked.mjs';
import { answer, caller, model, question } from './asked.mjs';

async function get(path) {
  const r = await checked(root + path);
  assert.equal(r.status, 200, path);
  return r.text();
}

async function post(path, body, status = 200) {
  const r = await checked(root + path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  assert.equal(r.status, status, path);
  return r.json();
}

async function operate() {
  assert.equal(JSON.parse(await get('/health')).status, 'ok');
  assert.equal(JSON.parse(await get('/ready')).status, 'ok');
  assert.match(await get('/metrics'), /^karat_generation_tokens_total{model_name="demo"} \d+$/m);
  assert(JSON.parse(await get('/openapi.json')).paths['/health']);
  assert.match(await get('/'), /^<!doctype html>/i);
}

async function tokens() {
  const props = JSON.parse(await get(`/props?model=${model}`));
  assert.deepEqual(props.modalities, { vision: false, audio: false });
  assert(props.total_slots > 0 && props.default_generation_settings.n_ctx > 0 && props.chat_template);
  const { tokens: ids } = await post('/tokenize', { model, content: 'The sky' });
  assert.equal((await post('/tokenize', { model, content: 'The sky', with_pieces: true })).tokens.map((t) => t.piece).join(''), 'The sky');
  assert.equal((await post('/detokenize', { model, tokens: ids })).content, 'The sky');
  const messages = [{ role: 'user', content: question }];
  assert.match((await post('/apply-template', { model, messages })).prompt, /capital of Egypt/);
  const { input_tokens: count } = await post('/v1/chat/completions/input_tokens', { model, messages });
  assert.equal((await post('/v1/chat/completions/render', { model, messages })).token_ids.length, count);
  assert.deepEqual((await post('/v1/completions/render', { model, prompt: [ids, ids] })).map((r) => r.token_ids), [ids, ids]);
  const { tokens: whole } = await post('/tokenize', { model, content: 'The sky', add_special: true });
  assert.deepEqual((await post('/v1/completions/render', { model, prompt: 'The sky' }))[0].token_ids, whole);
}

async function rerank() {
  const ask = { model: 'xlm-roberta-reranker', query: 'a', documents: ['a', 'b c'] };
  for (const path of ['/v1/rerank', '/rerank', '/v1/reranking', '/reranking', '/v2/rerank']) {
    const { results } = await post(path, path === '/v2/rerank' ? ask : { ...ask, return_documents: true });
    assert.deepEqual(results.map((r) => r.index), [1, 0]);
    assert(results[0].relevance_score > results[1].relevance_score);
  }
  const { documents: texts, ...rest } = ask;
  assert.equal((await post('/rerank', { ...rest, texts, return_text: true }))[0].text, 'b c');
  assert.match((await post('/v1/rerank', { ...ask, model }, 400)).error.message, /no model that judges/);
}

// Reasoning and calls in all three APIs, where the model chooses what to say.
async function free() {
  const messages = [{ role: 'user', content: question }];
  const tools = [{ name: 'weather', parameters: { type: 'object', properties: {} } }];
  const { choices } = await post('/v1/chat/completions', { model: caller, messages, tools: tools.map((t) => ({ type: 'function', function: t })), max_tokens: 16, temperature: 0 });
  assert.equal(choices[0].message.role, 'assistant');
  assert.equal((await post('/v1/messages', { model, messages, max_tokens: 32, temperature: 0, system: 'Be brief.' })).type, 'message');
  assert.equal((await post('/api/chat', { model, messages, stream: false, options: { temperature: 0 } })).message.content, answer);
  assert.equal((await post('/api/chat', { model, messages: [], stream: false })).done_reason, 'load');
}

// The header of an answer names its receipt.
async function receipts() {
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: question }], temperature: 0 });
  const r = await checked(root + '/v1/chat/completions', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body });
  const { usage } = await r.json();
  const receipt = JSON.parse(await get('/v1/receipts/' + r.headers.get('karat-receipt')));
  assert.equal(receipt.prompt.length, usage.prompt_tokens);
  assert.equal(Buffer.from(receipt.logits, 'base64').length, 8 * receipt.answer.length);
  const verdict = await post('/v1/receipts/verify', { model, receipt });
  assert.deepEqual([verdict.verified, verdict.signed, verdict.tokens], [true, true, receipt.answer.length]);
}

// writeAdapter writes a PEFT folder of rank 1 for the tiny model's first queries.
function writeAdapter(folder) {
  const name = 'base_model.model.model.layers.0.self_attn.q_proj.lora_', size = 256;
  const head = Buffer.from(JSON.stringify(Object.fromEntries(['A', 'B'].map((x, i) =>
    [`${name}${x}.weight`, { dtype: 'F32', shape: i ? [size, 1] : [1, size], data_offsets: [4 * size * i, 4 * size * (i + 1)] }]))));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(head.length));
  mkdirSync(folder, { recursive: true });
  writeFileSync(`${folder}/adapter_config.json`, JSON.stringify({ peft_type: 'LORA', r: 1, lora_alpha: 1, target_modules: ['q_proj'] }));
  writeFileSync(`${folder}/adapter_model.safetensors`,
    Buffer.concat([length, head, Buffer.from(new Float32Array(2 * size).fill(0.5).buffer)]));
}

// An adapter for the tiny model is a model of its own while it is loaded.
async function adapters() {
  const say = async (path, body) => {
    const r = await checked(root + path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
    return [r.status, await r.text()];
  };
  const style = { lora_name: 'style', lora_path: 'style' };
  writeAdapter(`${process.env.KARAT_LORAS}/style`);
  assert.equal((await say('/v1/load_lora_adapter', { ...style, model: caller, lora_path: '../style' }))[0], 404);
  assert.equal((await say('/v1/unload_lora_adapter', { lora_name: 'style' }))[0], 404);
  const [status, text] = await say('/v1/load_lora_adapter', { ...style, model: caller });
  assert.equal(status, 200, text);
  const answer = await post('/v1/completions', { model: 'style', prompt: 'a', max_tokens: 2 });
  assert.equal(answer.model, 'style');
  assert.equal((await say('/v1/unload_lora_adapter', { lora_name: 'style' }))[0], 200);
}

export default [operate, tokens, rerank, free, receipts, adapters];
