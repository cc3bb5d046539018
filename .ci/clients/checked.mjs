// What clients ask the server with: each answer must be as the server's own OpenAPI document
// says, with the fields that it lists and no others.
import assert from 'node:assert/strict';
import Ajv from 'ajv/dist/2020.js';

export const url = process.env.KARAT_URL; // with /v1
export const root = url.slice(0, -'/v1'.length);

const doc = await (await fetch(root + '/openapi.json')).json();
close(doc);
const ajv = new Ajv({ strict: false, allErrors: true });
ajv.addSchema(doc, 'karat');

// Where an object's fields are listed, others are not allowed.
function close(node) {
  if (node?.type === 'object' && node.properties) node.additionalProperties ??= false;
  if (node && typeof node === 'object') Object.values(node).forEach(close);
}

const wrong = [];
const pending = [];
const seen = new Set();

// operation is the document's path for a URL's, and what it says of a method.
function operation(method, path) {
  const fits = (pattern) => new RegExp('^' + pattern.replace(/{[^}]*}/g, '.+') + '$').test(path);
  const found = doc.paths[path] ? path : Object.keys(doc.paths).filter(fits).sort((a, b) => b.length - a.length)[0];
  assert(doc.paths[found]?.[method], `${method} ${path} is not in the document`);
  return [found, doc.paths[found][method]];
}

const escape = (name) => name.replaceAll('~', '~0').replaceAll('/', '~1');

// check compares a value with the schema at a place of the document.
function check(value, place) {
  const valid = ajv.getSchema('karat#/' + place.map((name) => encodeURIComponent(escape(name))).join('/'));
  assert(valid, `no schema at ${place.join(' ')}`);
  assert(valid(value), `${JSON.stringify(value).slice(0, 1000)}\n${ajv.errorsText(valid.errors, { separator: '\n' })}`);
}

// events are the pieces of a stream of server-sent events.
function events(text) {
  assert(text.endsWith('\n\n'), 'the stream ends within an event');
  return text.slice(0, -2).split('\n\n').map((e) => Object.fromEntries(e.split('\n').map((line) => line.split(/: (.*)/s).slice(0, 2))));
}

function checkStream(text, media, place) {
  if (place.at(-1) === 'application/x-ndjson') {
    text.trimEnd().split('\n').forEach((line) => check(JSON.parse(line), [...place, 'itemSchema']));
    return;
  }
  const item = [...place, 'itemSchema'];
  const choice = media.itemSchema.anyOf?.findIndex((s) => s.properties.data.contentSchema) ?? -1;
  const content = [...item, ...(choice < 0 ? [] : ['anyOf', String(choice)]), 'properties', 'data', 'contentSchema'];
  for (const e of events(text)) {
    check(e, item);
    if (e.data === '[DONE]') continue;
    const data = JSON.parse(e.data);
    check(data, content);
    if (e.event) assert.equal(e.event, data.type);
  }
}

async function checkAnswer(method, path, answer) {
  const [pattern, says] = operation(method, path);
  const type = answer.headers.get('content-type').split(';')[0];
  const name = says.responses[answer.status]?.$ref?.split('/').at(-1);
  const place = name ? ['components', 'responses', name] : ['paths', pattern, method, 'responses', String(answer.status)];
  const media = (name ? doc.components.responses[name] : says.responses[answer.status])?.content?.[type];
  assert(media, `no answer ${answer.status} of ${type}`);
  place.push('content', type);
  const text = await answer.text();
  if (media.itemSchema) checkStream(text, media, place);
  else check(type === 'application/json' ? JSON.parse(text) : text, [...place, 'schema']);
  seen.add(`${method} ${pattern} ${answer.status} ${type}`);
}

// checked is fetch for clients.
export async function checked(input, init) {
  const request = new Request(input, init);
  const answer = await fetch(request);
  if (!request.url.startsWith(root)) return answer; // a "data:" URL tells a client what fetch can
  const what = `${request.method} ${new URL(request.url).pathname} ${answer.status}`;
  const method = request.method.toLowerCase(), path = decodeURIComponent(new URL(request.url).pathname);
  pending.push(checkAnswer(method, path, answer.clone()).catch((e) => wrong.push(`${what}: ${e.message}`)));
  return answer;
}

// finish reports what was wrong, and what the document promises and nobody got.
export async function finish() {
  const answers = pending.length;
  await Promise.all(pending);
  for (const [path, methods] of Object.entries(doc.paths)) {
    for (const [method, says] of Object.entries(methods)) {
      for (const type of Object.keys(says.responses[200]?.content ?? {})) {
        if (!seen.has(`${method} ${path} 200 ${type}`)) wrong.push(`${method} ${path}: no client got an answer of ${type}`);
      }
    }
  }
  assert.equal(wrong.length, 0, wrong.join('\n'));
  return answers;
}
