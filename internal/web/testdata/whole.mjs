// What the npm package does with Karat itself and the demo, in a browser and in Node: whole returns what is wrong.
export async function whole({ load }, source, backend) {
	const wrong = [], is = (what, got, want) => { if (JSON.stringify(got) !== JSON.stringify(want)) wrong.push(`${what}: ${JSON.stringify(got)}, want ${JSON.stringify(want)}`) };
	const model = await load({ ...source, backend }), messages = [{ role: 'user', content: 'What is the color of the sky?' }], said = 'The color of the sky is blue.';
	is('engine', [model.info.backend, model.info.architecture], [backend, 'gemma3']);
	const body = { messages, temperature: 0, max_tokens: 40 }, create = more => model.chat.completions.create({ ...body, ...more });
	const answer = await create({ logprobs: true, top_logprobs: 2, receipt: true }), { message, logprobs } = answer.choices[0];
	is('answer', message.content, said);
	is('tokens', logprobs.content.map(x => x.token).join(''), said);
	is('log-probabilities', logprobs.content.filter(x => !(x.logprob <= 0 && x.logprob > -2 && x.top_logprobs.length === 2 && x.top_logprobs[0].token === x.token)), []);
	let streamed = '';
	for await (const c of await create({ stream: true })) streamed += c.choices[0]?.delta.content ?? '';
	is('stream', streamed, said);
	const schema = { type: 'object', properties: { color: { enum: ['blue', 'red'] } }, required: ['color'], additionalProperties: false };
	is('schema', JSON.parse((await create({ response_format: { type: 'json_schema', json_schema: { name: 'a', schema } } })).choices[0].message.content), { color: 'blue' });
	const call = (await create({ max_tokens: 80, tools: [{ type: 'function', function: { name: 'paint', parameters: schema } }], tool_choice: 'required' })).choices[0];
	is('call', [call.finish_reason, call.message.tool_calls?.map(c => [c.type, c.function.name, Object.keys(JSON.parse(c.function.arguments))])], ['tool_calls', [['function', 'paint', ['color']]]]);
	is('raw text', (await model.completions.create({ prompt: 'The color of the sky is', temperature: 0, max_tokens: 1 })).choices[0].text, ' blue.');
	const { data, usage } = await model.embeddings.create({ input: ['a', 'a b'], pooling: 'mean' });
	is('embeddings', [data.map(x => x.embedding.length), data.every(x => x.embedding.every(Number.isFinite)), usage.prompt_tokens > 3], [[256, 256], true, true]);
	is('tokens of a text', (await model.tokenize('The sky')).map(x => x.text).join('').replace('<bos>', ''), 'The sky');
	const prompt = await model.render({ messages });
	is('prompt', [prompt.text.endsWith('model\n'), prompt.tokens.length], [true, answer.usage.prompt_tokens]);
	is('proof', (await model.prove()).inside, true);
	const verdict = await model.verify(answer.receipt), other = JSON.parse(answer.receipt);
	is('receipt', [verdict.verified, verdict.findings, verdict.tokens], [true, [], answer.usage.completion_tokens]);
	other.answer[1]++;
	is('another receipt', (await model.verify(other)).verified, false);
	is('memory', (await model.stats()).wasmBytes > 1e6, true);
	model.close();
	return wrong;
}
