// All clients, one after another: node all.mjs, with the server's address in KARAT_URL.
import { finish } from './checked.mjs';

for (const name of ['openai', 'ai', 'langchain', 'anthropic', 'ollama', 'agents', 'editors', 'routes', 'lab', 'js']) {
  const tests = (await import(`./${name}.mjs`)).default;
  for (const test of tests) {
    await test().catch((e) => {
      throw new Error(`${name}: ${test.name}`, { cause: e });
    });
  }
  console.log(`${name}: ${tests.map((t) => t.name).join(', ')}`);
}
console.log(`${await finish()} answers are as /openapi.json says`);
