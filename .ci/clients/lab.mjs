// The schemas of the lab's JSON, compiled by ajv in its strict mode, and what the commands print, held to them.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Ajv from 'ajv/dist/2020.js';

const { KARAT: karat, KARAT_SCHEMAS: folder, KARAT_MODEL: model } = process.env;

const experiment = `kind = "ablate"
sites = ["blk.0.out"]
positions = ["last"]
metrics = ["probability"]
templates = ["The {} is"]
[[stimuli]]
clean = "sky"
target = "e"
`;

async function schemas() {
  const ajv = new Ajv({ strict: true, allowUnionTypes: true, validateFormats: false });
  const all = {};
  for (const file of readdirSync(folder)) {
    const schema = JSON.parse(readFileSync(join(folder, file)));
    assert.equal(schema.$schema, 'https://json-schema.org/draft/2020-12/schema', file);
    all[file.slice('lab-'.length, -'.json'.length)] = ajv.compile(schema);
  }
  const left = new Set(Object.keys(all));
  const dir = mkdtempSync(join(tmpdir(), 'karat-lab-'));
  const run = (name, ...args) => {
    const r = spawnSync(karat, ['lab', ...args], { cwd: dir, encoding: 'utf8' });
    assert(r.status === 0 || (r.status === 1 && r.stdout), `${args.join(' ')}: ${r.stderr}`); // 1 is a verdict
    if (!name) return;
    const value = JSON.parse(r.stdout);
    assert(all[name](value), `${args.join(' ')}: ${JSON.stringify(all[name].errors)}`);
    // A schema must be able to refuse: an object lacks a member, or a list has one of another type.
    if (Array.isArray(value)) value.push(0);
    else delete value[Object.keys(value)[0]];
    assert(!all[name](value), `${name}: anything fits`);
    left.delete(name);
  };
  try {
    writeFileSync(join(dir, 'p.json'), '[{"text": "The sky is blue"}]');
    writeFileSync(join(dir, 'e.toml'), experiment);
    run('file', 'record', model, '--prompts', 'p.json', '-o', 'w.safetensors', '--taps', 'all', '--precision', 'f64', '--inject', 'attention_scale=0.5@1', '--json');
    run('diagnose', 'diagnose', model, 'w.safetensors', '--json');
    run('diagnose-brief', 'diagnose', model, 'w.safetensors', '--brief');
    run('expect', 'expect', model, 'w.safetensors', '--tap', 'blk.1.attention', '--json');
    run('compare', 'compare', 'w.safetensors', 'w.safetensors', '--max-kl', '1', '--json');
    run('compare-by-layer', 'compare', 'w.safetensors', 'w.safetensors', '--by-layer', '--json');
    run('compare-history', 'compare', 'w.safetensors', 'w.safetensors', '--history', '--json');
    run('causes', 'causes', '--json');
    run('hook', 'hook', '--print', 'head', '--json');
    run('file', 'import', 'w.safetensors', '-o', 'in.safetensors', '--json');
    run('floor', 'floor', model, '--prompts', 'p.json', '--json');
    run('intervention', 'scale', model, 'Hello', '--at', 'blk.0.out', '--by', '2', '--json');
    run('experiment', 'experiment', 'run', 'e.toml', '-m', model, '-o', 'e', '--json');
    run('experiment-compare', 'experiment', 'compare', 'e', 'e', '--json');
    assert.deepEqual([...left], [], 'schemas that no command was held to');
  } finally {
    rmSync(dir, { recursive: true });
  }
}

export default [schemas];
