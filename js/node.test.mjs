// Tests of the package in Node, with a program that stands in for Karat's: internal/web's TestNode runs them.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { chooseFile, partsOf, repoOf, addressOf } from './hub.js';
import { karat } from './ai-sdk.js';
import { kept, load, remove } from './node.js';

const data = Buffer.concat([Buffer.from('GGUF'), Buffer.alloc(100_000, 7)]), sha256 = createHash('sha256').update(data).digest('hex');
const messages = [{ role: 'user', content: 'What is the color?' }], said = ' The sky is <b>blue</b> & wide.';

// shelf serves the model, and breaks the first answer off.
async function shelf() {
	const ranges = [];
	const server = createServer((request, answer) => {
		const from = Number(/\d+/.exec(request.headers.range)[0]);
		ranges.push(from);
		answer.writeHead(206, { 'Content-Range': `bytes ${from}-${data.length - 1}/${data.length}`, 'Content-Length': data.length - from });
		if (ranges.length > 1) return answer.end(data.subarray(from));
		answer.write(data.subarray(0, 50_000), () => answer.destroy());
	});
	await new Promise(go => server.listen(0, '127.0.0.1', go));
	return { ranges, url: `http://127.0.0.1:${server.address().port}/tiny.gguf`, close: () => server.close() };
}

test('a download that breaks goes on, is checked and kept', async () => {
	const s = await shelf();
	const model = await load({ url: s.url, sha256 });
	s.close();
	assert.equal(s.ranges.length, 2);
	assert.equal(s.ranges[0], 0);
	assert.ok(s.ranges[1] > 0);
	assert.equal((await model.chat.completions.create({ messages })).choices[0].message.content, said);
	model.close();
	const [k] = await kept();
	assert.deepEqual([k.name, k.done, k.sha256], ['tiny.gguf', true, sha256]);
	const again = await load({ id: k.id });
	assert.equal(again.info.sha256, sha256);
	again.close();
	await remove(k.id);
	assert.deepEqual(await kept(), []);
});

test('a file by its path', async () => {
	const path = join(tmpdir(), `karat-${process.pid}.gguf`);
	writeFileSync(path, data);
	const model = await load({ file: path });
	assert.equal(model.info.size, data.length);
	let text = '';
	for await (const c of await model.chat.completions.create({ messages, stream: true })) text += c.choices[0].delta.content ?? '';
	assert.equal(text, said);
	model.close();
	await assert.rejects(load({ file: path + '-none' }), /no such file/);
	await assert.rejects(load({ file: path, repo: 'a/b' }), /one of url, file, repo and id/);
});

test('addresses', () => {
	assert.equal(repoOf('https://huggingface.co/a/b/'), 'a/b');
	assert.equal(repoOf('https://huggingface.co/a/b/blob/main/c.gguf'), undefined);
	assert.equal(addressOf('https://huggingface.co/a/b/blob/main/c.gguf'), 'https://huggingface.co/a/b/resolve/main/c.gguf');
	assert.deepEqual(partsOf('https://x/m-00002-of-00003.gguf').map(x => x.slice(12, 17)), ['00001', '00002', '00003']);
	const files = ['m-Q8_0.gguf', 'm-Q4_K_M.gguf', 'big-00001-of-00002.gguf', 'big-00002-of-00002.gguf'].map(name => ({ name, url: 'https://x/' + name }));
	assert.equal(chooseFile(files).name, 'm-Q4_K_M.gguf');
	assert.equal(chooseFile(files, 'q8_0').name, 'm-Q8_0.gguf');
	assert.equal(chooseFile(files, 'big').name, 'big-00001-of-00002.gguf');
	assert.throws(() => chooseFile(files, 'Q2_K'), /no GGUF file with Q2_K/);
});

// answering is a model whose answers are these chunks.
const answering = (...chunks) => ({ info: { name: 'm' }, chat: { completions: { create: async body => {
	answering.body = body;
	return (async function* () { yield* chunks.map(c => ({ id: 'x', created: 1, model: 'm', choices: [], ...c })); })();
} } } });

test('the AI SDK provider', async () => {
	const delta = (delta, finish = null) => ({ choices: [{ delta, finish_reason: finish }] });
	const model = karat(answering(delta({ role: 'assistant', content: '' }), delta({ reasoning_content: 'Hm' }), delta({ reasoning_content: '.' }), delta({ content: 'I look.' }),
		delta({ tool_calls: [{ id: 'c1', function: { name: 'f', arguments: '{}' } }] }), delta({}, 'tool_calls'), { usage: { prompt_tokens: 5, completion_tokens: 4, prompt_tokens_details: { cached_tokens: 2 } } }));
	const { stream } = await model.doStream({
		prompt: [{ role: 'system', content: 's' }, { role: 'user', content: [{ type: 'text', text: 'u' }, { type: 'file', mediaType: 'image/png', data: { type: 'data', data: new Uint8Array([1, 2]) } }] },
			{ role: 'assistant', content: [{ type: 'reasoning', text: 'r' }, { type: 'tool-call', toolCallId: 'c0', toolName: 'f', input: { a: 1 } }] },
			{ role: 'tool', content: [{ type: 'tool-result', toolCallId: 'c0', toolName: 'f', output: { type: 'json', value: { b: 2 } } }] }],
		tools: [{ type: 'function', name: 'f', inputSchema: { type: 'object' } }], toolChoice: { type: 'tool', toolName: 'f' }, responseFormat: { type: 'json', schema: {} } });
	const got = [];
	for await (const p of stream) got.push(p);
	assert.deepEqual(got.map(p => p.type), ['stream-start', 'response-metadata', 'reasoning-start', 'reasoning-delta', 'reasoning-delta', 'reasoning-end', 'text-start', 'text-delta', 'text-end', 'tool-call', 'finish']);
	assert.deepEqual(got.at(-1).finishReason, { unified: 'tool-calls', raw: 'tool_calls' });
	assert.equal(got.at(-1).usage.inputTokens.noCache, 3);
	assert.deepEqual(answering.body.messages.map(m => m.role), ['system', 'user', 'assistant', 'tool']);
	assert.equal(answering.body.messages[1].content[1].image_url.url, 'data:image/png;base64,AQI=');
	assert.equal(answering.body.messages[2].tool_calls[0].function.arguments, '{"a":1}');
	assert.equal(answering.body.messages[3].content, '{"b":2}');
	assert.equal(answering.body.tool_choice.function.name, 'f');
	assert.equal(answering.body.response_format.type, 'json_schema');
});

test('every script is in the list of files', () => {
	const { files, exports } = JSON.parse(readFileSync(new URL('package.json', import.meta.url)));
	const here = readdirSync(new URL('.', import.meta.url));
	assert.ok(files.includes('*.js') && files.includes('karat.wasm.gz'));
	for (const path of Object.values(exports).flatMap(x => typeof x === 'string' ? x : Object.values(x))) assert.ok(here.includes(path.slice(2)), path);
});
