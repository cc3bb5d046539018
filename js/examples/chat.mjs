// A chat in twenty lines: node chat.mjs MODEL.gguf "What is the color of the sky?"
import { load } from 'karat';

const [file, question] = process.argv.slice(2);
const model = await load({ file });
const stream = await model.chat.completions.create({ messages: [{ role: 'user', content: question }], stream: true, temperature: 0 });
for await (const { choices: [choice] } of stream) process.stdout.write(choice.delta.content ?? '');
process.stdout.write('\n');
model.close();
