// The npm package: what it holds and declares, and its answers in Node, which have the server's bits.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Output, embed, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { answer, code, question, weather } from './asked.mjs';
import { root, url } from './checked.mjs';

const folder = process.env.KARAT_JS, parrots = process.env.KARAT_PARROTS;
const { load } = await import(pathToFileURL(join(folder, 'node.js')));
const { karat } = await import(pathToFileURL(join(folder, 'ai-sdk.js')));

// packed: the package has these files, and is small enough to be loaded by a page.
async function packed() {
  const [pack] = JSON.parse(execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }));
  assert.deepEqual(pack.files.map((f) => f.path).sort(), ['LICENSE', 'README.md', 'ai-sdk.d.ts', 'ai-sdk.js', 'api.js', 'client.js', 'entry.js', 'examples/chat.html', 'examples/chat.mjs', 'gpu.js', 'hub.js', 'index.d.ts', 'index.js',
    'karat.wasm.gz', 'kernels.js', 'model.js', 'node-entry.js', 'node.js', 'package.json', 'simd.js', 'store.js', 'wasm_exec.js', 'worker.js']);
  assert(pack.size < 5.5 * 1048576, `the package has ${pack.size} bytes`);
}

// declared: TypeScript takes what the declarations say, and refuses what they do not.
async function declared() {
  writeFileSync(join(folder, 'use.ts'), `
import { load, kept, type Model, type ChatCompletion } from 'karat';
import { karat } from 'karat/ai-sdk';
import { generateText } from 'ai';

export async function use(): Promise<string | null> {
  const model: Model = await load({ repo: 'a/b:Q4_K_M', sha256: 'x', onProgress: ({ what, have }) => console.log(what, have) });
  const whole: ChatCompletion = await model.chat.completions.create({ messages: [{ role: 'user', content: [{ type: 'text', text: 'a' }] }], tools: [{ type: 'function', function: { name: 'f' } }] });
  for await (const chunk of await model.chat.completions.create({ messages: [], stream: true })) console.log(chunk.choices[0]?.delta.content);
  // @ts-expect-error: there is no such role
  await model.chat.completions.create({ messages: [{ role: 'nobody', content: 'a' }] });
  // @ts-expect-error: a whole answer is no stream
  for await (const chunk of await model.chat.completions.create({ messages: [] })) console.log(chunk);
  const { verified } = await model.verify('r');
  await generateText({ model: karat(model), prompt: 'a' });
  return verified ? whole.choices[0]!.message.content : (await kept())[0]!.id;
}
`);
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: { strict: true, noEmit: true, exactOptionalPropertyTypes: false, noUncheckedIndexedAccess: true, module: 'esnext', moduleResolution: 'bundler', target: 'es2022', lib: ['es2023', 'dom', 'dom.iterable', 'esnext.disposable'], types: [], skipLibCheck: true, paths: { karat: ['./index.d.ts'], 'karat/ai-sdk': ['./ai-sdk.d.ts'] } }, files: ['use.ts', 'index.d.ts', 'ai-sdk.d.ts'] }));
  try {
    execFileSync(process.execPath, [join(import.meta.dirname, 'node_modules/typescript/bin/tsc'), '-p', folder], { encoding: 'utf8' });
  } catch (e) {
    throw new Error(e.stdout + e.stderr);
  }
}

// bits: the demo says what the server's says, with the same log-probabilities, and verifies the server's receipt.
async function bits() {
  const model = await load({ file: process.env.KARAT_DEMO });
  const body = { messages: [{ role: 'user', content: question }], temperature: 0, max_tokens: 24, logprobs: true, top_logprobs: 3 };
  const mine = await model.chat.completions.create(body);
  const r = await fetch(url + '/chat/completions', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ model: 'demo', ...body }) }), theirs = await r.json();
  assert.equal(mine.choices[0].message.content, answer);
  assert.deepEqual(mine.choices[0].logprobs.content.map((x) => [x.token, x.logprob]), theirs.choices[0].logprobs.content.map((x) => [x.token, x.logprob]));
  const receipt = await (await fetch(`${root}/v1/receipts/${r.headers.get('karat-receipt')}`)).text();
  const verdict = await model.verify(receipt);
  assert.deepEqual([verdict.verified, verdict.signed, verdict.findings], [true, true, []]);
  assert.equal((await model.verify(receipt.replace('"karat ', '"other '))).findings[0].kind, 'tampered');
  const { embedding } = await embed({ model: karat.embedding(model), value: 'a', providerOptions: { karat: { pooling: 'mean' } }, maxRetries: 0 });
  assert.equal(embedding.length, 256);
  assert.equal((await model.prove()).inside, true);
  const stop = new AbortController(), read = [];
  await assert.rejects(model.completions.create({ prompt: 'word '.repeat(900), onPrompt: (x) => { read.push(x); stop.abort(); } }, { signal: stop.signal }), { name: 'AbortError' });
  assert(read[0].have < read[0].size && read[0].size > 900);
  for await (const chunk of await model.completions.create({ ...body, messages: undefined, top_logprobs: undefined, logprobs: 1, prompt: code, max_tokens: 4000, stream: true })) if (chunk.choices[0].text) break;
  assert.equal((await model.tokenize(code)).length, 5); // the model is free again
  model.close();
}

// agents: the AI SDK's loop over tools, its streams and its objects, with models in this process.
async function agents() {
  const said = 'It rains in Oslo.', of = async (name, f) => {
    const model = await load({ file: join(parrots, name + '.gguf') });
    try {
      await f(karat(model), model);
    } finally {
      model.close();
    }
  };
  const tools = { weather: tool({ description: 'weather', inputSchema: jsonSchema(weather), execute: ({ city }) => 'rain in ' + city }) };
  await of('caller', async (model) => {
    const r = await generateText({ model, prompt: question, tools, stopWhen: stepCountIs(1), maxRetries: 0 });
    assert.deepEqual([r.text, r.reasoningText, r.finishReason, r.toolResults.map((x) => x.output)], ['Let me see.', 'I look.', 'tool-calls', ['rain in Oslo']]);
  });
  await of('teller', async (model) => {
    let text = '', reasoning = '';
    for await (const p of streamText({ model, prompt: question, maxRetries: 0 }).fullStream) {
      assert.notEqual(p.type, 'error', String(p.error));
      if (p.type === 'text-delta') text += p.text;
      if (p.type === 'reasoning-delta') reasoning += p.text;
    }
    assert.deepEqual([text.trim(), reasoning.trim()], [said, 'So it is.']);
  });
  await of('writer', async (model) => {
    const { output } = await generateText({ model, prompt: question, output: Output.object({ schema: jsonSchema(weather) }), maxRetries: 0 });
    assert.deepEqual(output, { city: 'Oslo' });
  });
  const forced = await load({ file: process.env.KARAT_DEMO }); // which calls nothing by itself
  const r = await forced.chat.completions.create({ messages: [{ role: 'user', content: question }], max_tokens: 200, tools: [{ type: 'function', function: { name: 'weather', parameters: weather } }], tool_choice: 'required', temperature: 0 });
  assert.equal(r.choices[0].finish_reason, 'tool_calls');
  assert(['Oslo', 'Cairo'].includes(JSON.parse(r.choices[0].message.tool_calls[0].function.arguments).city));
  forced.close();
}

export default [packed, declared, bits, agents];
