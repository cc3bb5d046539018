// older makes the 8-bit form of the pages that the step's rows have filled. A workgroup takes 32 columns of a page, of
// keys or of values. A page has integers [64, width], four in a word, and then binary16 scales: of keys [width/32, 64], of
// 32 elements each, of values [2, width], of 32 positions each.
struct Params {
	width: u32, // elements of a row's keys: heads·dim
	unit: u32, // words of a page of keys in 8 bits
	wide: u32, // the same of values; 0 for values in keys
	room: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> keys: array<u32>;
@group(0) @binding(3) var<storage, read> table: array<u32>; // see cache.go
{{- if not .Latent}}
@group(0) @binding(4) var<storage, read_write> values: array<u32>;
{{- end}}

var<workgroup> codes: array<u32, 2048>; // [64, 32]
var<workgroup> scales: array<u32, 64>;

// element is element i of position j of the page whose binary16 form begins at word base.
fn key(base: u32, j: u32, i: u32) -> f32 {
	return halves(keys[base + (j * p.width + i) / 2u])[i & 1u];
}
{{- if not .Latent}}

fn value(base: u32, j: u32, i: u32) -> f32 {
	return halves(values[base + (j * p.wide + i) / 2u])[i & 1u];
}
{{- end}}

// scale_of is the binary16 whose product with 127 is at least top.
fn scale_of(top: f32) -> u32 {
	let h = to_half(top / 127.0);
	return h + u32(from_half(h) * 127.0 < top);
}

fn code(x: f32, scale: f32) -> u32 {
	if (scale == 0.0) {
		return 0u;
	}
	return bitcast<u32>(i32(clamp(round(x / scale), -127.0, 127.0))) & 255u;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let blocks = p.width / 32u + p.wide / 32u;
	let i = wg.y * GX + wg.x;
	if (i >= step.rows * blocks) {
		return;
	}
	let row = i / blocks;
	let block = i % blocks;
	let pos = table[4u * row + 3u];
	if (pos % 64u != 63u) {
		return;
	}
	let entry = table[4u * row + 1u] + 2u * (pos / 64u - table[4u * row + 2u]);
	let to = table[entry];
	let source = table[entry + 1u];
	var top = 0.0;
	if (block < p.width / 32u) {
		for (var c = 0u; c < 32u; c++) {
			top = max(top, abs(key(source * p.unit, lane, block * 32u + c)));
		}
		scales[lane] = scale_of(top);
		for (var c = 0u; c < 32u; c++) {
			codes[lane * 32u + c] = code(key(source * p.unit, lane, block * 32u + c), from_half(scales[lane]));
		}
	}
{{- if not .Latent}}
	else {
		let e = (block - p.width / 32u) * 32u + lane % 32u;
		let first = lane / 32u * 32u;
		for (var j = first; j < first + 32u; j++) {
			top = max(top, abs(value(source * p.room, j, e)));
		}
		scales[lane] = scale_of(top);
		for (var j = first; j < first + 32u; j++) {
			codes[j * 32u + lane % 32u] = code(value(source * p.room, j, e), from_half(scales[lane]));
		}
	}
{{- end}}
	workgroupBarrier();
	for (var w = lane; w < 512u; w += 64u) {
		let j = w / 8u;
		let c = j * 32u + w % 8u * 4u;
		let word = codes[c] | (codes[c + 1u] << 8u) | (codes[c + 2u] << 16u) | (codes[c + 3u] << 24u);
		if (block < p.width / 32u) {
			keys[to * p.unit + (j * p.width + block * 32u) / 4u + w % 8u] = word;
		}
{{- if not .Latent}}
		else {
			values[to * p.room + (j * p.wide + (block - p.width / 32u) * 32u) / 4u + w % 8u] = word;
		}
{{- end}}
	}
	if (lane < 32u) {
		let word = scales[2u * lane] | (scales[2u * lane + 1u] << 16u);
		if (block < p.width / 32u) {
			keys[to * p.unit + 16u * p.width + block * 32u + lane] = word;
		}
{{- if not .Latent}}
		else {
			let first = (block - p.width / 32u) * 16u;
			values[to * p.room + 16u * p.wide + lane / 16u * (p.wide / 2u) + first + lane % 16u] = word;
		}
{{- end}}
	}
}
