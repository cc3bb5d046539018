// Makes the package: node build.mjs FOLDER. The program is built with all that the package's has, and compressed; Go's and
// the GPU's scripts lie beside it. "npm pack FOLDER" and "npm publish FOLDER" do the rest. VERSION names the release.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const here = fileURLToPath(new URL('.', import.meta.url)), out = process.argv[2];
if (!out) throw new Error('node build.mjs FOLDER');
const go = (...args) => execFileSync('go', args, { cwd: join(here, '..'), encoding: 'utf8', maxBuffer: 1 << 26,
  env: { ...process.env, GOOS: 'js', GOARCH: 'wasm', CGO_ENABLED: '0', GOFLAGS: '', GOWASM: '', GOEXPERIMENT: '' } });

mkdirSync(out, { recursive: true });
for (const name of readdirSync(here)) if (/^(?!build\.mjs).*\.(js|d\.ts|md|json)$/.test(name) || name === 'examples') cpSync(join(here, name), join(out, name), { recursive: true });
cpSync(join(here, '../LICENSE'), join(out, 'LICENSE'));
cpSync(join(here, '../internal/backend/webgpu/gpu/gpu.js'), join(out, 'gpu.js'));
cpSync(join(go('env', 'GOROOT').trim(), 'lib/wasm/wasm_exec.js'), join(out, 'wasm_exec.js'));
const wasm = join(out, 'karat.wasm');
go('build', '-tags', 'karat_wasmsimd,full', '-trimpath', '-buildvcs=false', '-ldflags=-s -w -buildid=', '-o', wasm, './internal/web/wasm');
writeFileSync(wasm + '.gz', gzipSync(readFileSync(wasm), { level: 9 }));
rmSync(wasm);
if (process.env.VERSION) {
  const about = JSON.parse(readFileSync(join(out, 'package.json'), 'utf8'));
  writeFileSync(join(out, 'package.json'), JSON.stringify({ ...about, version: process.env.VERSION.replace(/^v/, '') }, null, 2) + '\n');
}
