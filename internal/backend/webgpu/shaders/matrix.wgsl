{{$down := div .WM .M -}}
{{$across := div .WN .N -}}
{{$units := div (mul .BN .BK) 32 -}}
{{$rights := ceil $units .Threads -}}
{{$wide := add .WN 8 -}}
{{$batch := min 8 (div .Results (mul .Lanes .Parts)) -}}
{{$short := and .Views (or (eq .Bits 4) (eq .Bits 8)) (eq .High 0) (not .Min) (not .Bfloat) (eq .Units 1) (not .Table) -}}
// matrix multiplies many rows by the transpose of a quantized weight: Linear, on matrix
// units. A workgroup takes a tile of {{.BM}} rows by {{.BN}} of the weight's, of which a subgroup has
// {{.WM}} by {{.WN}}. It brings {{.BK}} elements of the weight's rows at a time into its memory, as binary16; what comes
// next is on its way from the GPU's memory meanwhile. x is narrow's, and is read where it lies. {{if gt .Parts 1}}{{.Parts}} subgroups share
// these elements, and their sums are added in order. {{end}}An element's sum runs along the row in float32, {{.K}} elements at a time.
{{template "operands.wgsl" .}}
{{template "weight.wgsl" .}}
{{template "result.wgsl" .}}

// Rows are 16 bytes longer than they need, so that neighbouring ones lie in different banks.
const LD: u32 = {{add .BK 8}}u;
var<workgroup> memory: {{if .Views}}buffer<{{.Memory}}>{{else}}array<vec4u, {{div .Memory 16}}>{{end}}; // tiles of what is multiplied, and then results
var<workgroup> factors: array<f32, {{.BM}}>; // of the tile's rows

// Unit is one of a row of the weight, as it lies in memory.
struct Unit {
	low: vec4u,
{{- if eq .Bits 8}}
	more: vec4u,
{{- end}}
{{- if .High}}
	high: vec2u,
{{- end}}
	head: vec3u,
}

fn fetch(n: u32, u: u32) -> Unit {
	var v = Unit();
{{- if eq .Bits 4}}
	v.low = w[u * p.n + n];
{{- else if eq .Bits 8}}
	v.low = w[u * 2u * p.n + n];
	v.more = w[(u * 2u + 1u) * p.n + n];
{{- else}}
	v.low = vec4u(word((u * p.n + n) * 2u), word((u * p.n + n) * 2u + 1u), 0u, 0u);
{{- end}}
{{- if eq .High 1}}
	v.high.x = word((units() * {{.Bits}}u + u) * p.n + n);
{{- else if eq .High 2}}
	v.high = vec2u(word((units() * {{.Bits}}u + u * 2u) * p.n + n), word((units() * {{.Bits}}u + u * 2u + 1u) * p.n + n));
{{- end}}
	v.head = head(0u, n, u);
	return v;
}

// of_weight is the row of the weight that is row r of the tile which begins at column.{{if .GLU}} Pairs
// of results lie in neighbouring matrices.{{end}}
fn of_weight(column: u32, r: u32) -> u32 {
{{- if .GLU}}
	let part = r / {{.N}}u;
	return min(column + (part >> 1u) * {{.N}}u + r % {{.N}}u, (p.n >> 1u) - 1u) + (part & 1u) * (p.n >> 1u);
{{- else}}
	return min(column + r, p.n - 1u);
{{- end}}
}

{{if $short}}
// short is eight weights whose scale is d, as they lie in the workgroup's memory: codes become the last
// bits of a binary16 that is 1024 and more.
fn short(low: {{if eq .Bits 8}}vec2u{{else}}u32{{end}}, d: f16) -> vec4u {
{{- if eq .Bits 8}}
	let a = (bitcast<vec4<f16>>((low & vec2u(0x00ff00ffu)) | vec2u(0x64006400u)) - vec4<f16>({{add 1024 .Offset}}.0h)) * d;
	let b = (bitcast<vec4<f16>>(((low >> vec2u(8u)) & vec2u(0x00ff00ffu)) | vec2u(0x64006400u)) - vec4<f16>({{add 1024 .Offset}}.0h)) * d;
{{- else}}
	let pairs = vec2u(low, low >> 8u);
	let a = (bitcast<vec4<f16>>((pairs & vec2u(0x000f000fu)) | vec2u(0x64006400u)) - vec4<f16>({{add 1024 .Offset}}.0h)) * d;
	let b = (bitcast<vec4<f16>>((pairs & vec2u(0x00f000f0u)) | vec2u(0x64006400u)) * 0.0625h - vec4<f16>({{add 64 .Offset}}.0h)) * d;
{{- end}}
	return vec4u(bitcast<vec2<u32>>(a), bitcast<vec2<u32>>(b));
}
{{end}}
// block is where {{.M}} rows of x lie: their factors, and then {{.M}} by {{.K}} elements at a time; in such blocks.
fn block(row: u32) -> u32 {
	return min(row, step.rows - 1u) / {{.M}}u * (1u + (p.k + {{add pad -1}}u) / {{pad}}u * {{div pad .K}}u);
}

fn factor(row: u32) -> f32 {
	let at = block(row) * {{mul .M .K}}u + row % {{.M}}u * 8u;
	return bitcast<f32>({{if .Views}}vec2<f16>(x[at], x[at + 1u]){{else}}x[at >> 3u].x{{end}});
}
{{- if not .Views}}

fn product(i: u32) -> f32 {
	return bitcast<f32>(memory[i >> 2u][i & 3u]);
}
{{- end}}

@compute @workgroup_size({{.Threads}})
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) t: u32) {
{{- if .Views}}
	// what a workgroup has of memory in all is little, so that tiles and results share it
	let words = bufferView<array<vec4u, {{div .Memory 16}}>>(&memory, 0);
	let halfs = bufferView<array<f16, {{div .Memory 2}}>>(&memory, 0);
	let results = bufferView<array<f32, {{div .Memory 4}}>>(&memory, 0);
{{- end}}
	let rows = step.rows;
	let first = wg.y * {{.BM}}u;
	let column = wg.x * {{if .GLU}}{{div .BN 2}}{{else}}{{.BN}}{{end}}u;
	let subgroup = t / {{.Lanes}}u;
	let lane = t % {{.Lanes}}u;
	let wm = subgroup / {{div .BN .WN}}u % {{div .BM .WM}}u * {{.WM}}u;
	let wn = subgroup % {{div .BN .WN}}u * {{.WN}}u;
	let part = subgroup / {{div .Subgroups .Parts}}u; // of a tile's elements
	for (var i = t; i < {{.BM}}u; i += {{.Threads}}u) {
		factors[i] = factor(min(first + i, rows - 1u)) * p.down;
	}
{{- range $i := $down}}
	let m{{$i}} = (block(first + wm + {{mul $i $.M}}u) + 1u) * {{mul $.M $.K}}u + part * {{div (mul $.M $.BK) $.Parts}}u;
{{- range $j := $across}}
	var c{{$i}}_{{$j}} = subgroup_matrix_result<f32, {{$.N}}, {{$.M}}>();
{{- end}}
{{- end}}
{{- range $i := $rights}}
	let n{{$i}} = of_weight(column, (t + {{mul $i $.Threads}}u) % {{$.BN}}u);
	let u{{$i}} = (t + {{mul $i $.Threads}}u) / {{$.BN}}u;
	let to_b{{$i}} = (t + {{mul $i $.Threads}}u) % {{$.BN}}u * LD + u{{$i}} * 32u;
	var b{{$i}} = fetch(n{{$i}}, min(u{{$i}}, units() - 1u));
{{- end}}
	let steps = (units() + {{add (div .BK 32) -1}}u) / {{div .BK 32}}u;
	for (var s = 0u; s < steps; s++) {
{{- range $i := $rights}}
		{{if gt (mul $rights $.Threads) $units}}if (t + {{mul $i $.Threads}}u < {{$units}}u) {{end}}{
			let u = min(s * {{div $.BK 32}}u + u{{$i}}, units() - 1u);
			let scale0 = scales(b{{$i}}.head, u, 0u) * p.up;
{{- if eq $.Group 16}}
			let scale1 = scales(b{{$i}}.head, u, 1u) * p.up;
{{- end}}
{{- range $j := 4}}
			{
				let {{if $short}}packed = short{{else}}v = eight{{end}}({{if eq $.Bits 8}}vec2u({{if lt $j 2}}b{{$i}}.low[{{mul 2 $j}}], b{{$i}}.low[{{add 1 (mul 2 $j)}}]{{else}}b{{$i}}.more[{{add -4 (mul 2 $j)}}], b{{$i}}.more[{{add -3 (mul 2 $j)}}]{{end}})
{{- else if eq $.Bits 4}}b{{$i}}.low[{{$j}}]
{{- else}}b{{$i}}.low[{{div $j 2}}] >> {{mul 16 (mod $j 2)}}u{{end}},
{{- if $short}} f16(scale0.x));
{{- else}}{{if $.High}} b{{$i}}.high[{{if eq $.High 2}}{{div $j 2}}{{else}}0{{end}}] >> {{begins $.Bits $.High $j}}u{{else}} 0u{{end}}, scale{{if eq $.Group 16}}{{div $j 2}}{{else}}0{{end}});
				let packed = vec4u(
{{- range $h := 4}}{{if $h}}, {{end}}pack2x16float(vec2f(v{{index $.Spots (mul 2 $h)}}, v{{index $.Spots (add 1 (mul 2 $h))}})){{end}});
{{- end}}
				{{if $.Views}}(*words){{else}}memory{{end}}[(to_b{{$i}} >> 3u) + {{$j}}u] = packed;
			}
{{- end}}
		}
{{- end}}
		let at = s * {{mul .M .BK}}u;
{{- range $i := $down}}
		let l0_{{$i}} = subgroupMatrixLoad<subgroup_matrix_left<f16, {{$.K}}, {{$.M}}>, row_major>(&x, m{{$i}} + at, {{$.K}}u);
{{- end}}
		workgroupBarrier();
		let next = min(s + 1u, steps - 1u);
{{- range $i := $rights}}
		b{{$i}} = fetch(n{{$i}}, min(next * {{div $.BK 32}}u + u{{$i}}, units() - 1u));
{{- end}}
{{- range $k := (div .BK (mul .K .Parts))}}
{{- if gt $k 0}}
{{- range $i := $down}}
		let l{{$k}}_{{$i}} = subgroupMatrixLoad<subgroup_matrix_left<f16, {{$.K}}, {{$.M}}>, row_major>(&x, m{{$i}} + at + {{mul $k $.M $.K}}u, {{$.K}}u);
{{- end}}
{{- end}}
{{- range $j := $across}}
		let r{{$k}}_{{$j}} = subgroupMatrixLoad<subgroup_matrix_right<f16, {{$.N}}, {{$.K}}>, col_major>({{if $.Views}}halfs{{else}}&memory{{end}}, (wn + {{mul $j $.N}}u) * LD + part * {{div $.BK $.Parts}}u + {{mul $k $.K}}u, LD);
{{- range $i := $down}}
		c{{$i}}_{{$j}} = subgroupMatrixMultiplyAccumulate(l{{$k}}_{{$i}}, r{{$k}}_{{$j}}, c{{$i}}_{{$j}});
{{- end}}
{{- end}}
{{- end}}
		workgroupBarrier();
	}
	// Results go through the workgroup's memory to where they belong, {{.M}} rows at a time. Several are read before
	// they are written, for a compiler does not know that what is read is not what was written.
	let mine = subgroup * {{mul .M $wide}}u;
	let from_part = subgroup % {{div .Subgroups .Parts}}u * {{mul .M $wide}}u;
{{- range $i := $down}}
{{- range $j := $across}}
	subgroupMatrixStore<row_major>({{if $.Views}}results{{else}}&memory{{end}}, mine + {{mul $j $.N}}u, c{{$i}}_{{$j}}, {{$wide}}u);
{{- end}}
	workgroupBarrier();
	for (var e = lane + part * {{$.Lanes}}u; e < {{$.Results}}u; e += {{mul $batch $.Parts $.Lanes}}u) {
{{- range $q := $batch}}
		let row{{$q}} = wm + {{mul $i $.M}}u + (e + {{mul $q $.Parts $.Lanes}}u) / {{$.Columns}}u;
		let n{{$q}} = (e + {{mul $q $.Parts $.Lanes}}u) % {{$.Columns}}u;
		let at{{$q}} = from_part + (e + {{mul $q $.Parts $.Lanes}}u) / {{$.Columns}}u * {{$wide}}u + n{{$q}}{{if $.GLU}} + n{{$q}} / {{$.N}}u * {{$.N}}u{{end}};
		let to{{$q}} = column + {{if $.GLU}}(wn >> 1u){{else}}wn{{end}} + n{{$q}};
		let is{{$q}} = first + row{{$q}} < rows && to{{$q}} < {{if $.GLU}}(p.n >> 1u){{else}}p.n{{end}};
		var v{{$q}} = {{if $.Views}}(*results)[at{{$q}}]{{else}}product(at{{$q}}){{end}};
{{- if $.GLU}}
		var w{{$q}} = {{if $.Views}}(*results)[at{{$q}} + {{$.N}}u]{{else}}product(at{{$q}} + {{$.N}}u){{end}};
{{- end}}
{{- range $other := (add $.Parts -1)}}
		v{{$q}} += {{if $.Views}}(*results)[at{{$q}} + {{mul (add 1 $other) (div $.Subgroups $.Parts) $.M $wide}}u]{{else}}product(at{{$q}} + {{mul (add 1 $other) (div $.Subgroups $.Parts) $.M $wide}}u){{end}};
{{- if $.GLU}}
		w{{$q}} += {{if $.Views}}(*results)[at{{$q}} + {{add $.N (mul (add 1 $other) (div $.Subgroups $.Parts) $.M $wide)}}u]{{else}}product(at{{$q}} + {{add $.N (mul (add 1 $other) (div $.Subgroups $.Parts) $.M $wide)}}u){{end}};
{{- end}}
{{- end}}
{{- if or $.Add $.Gate}}
		var known{{$q}} = 0.0;
		if (is{{$q}}) { known{{$q}} = known(first + row{{$q}}, to{{$q}}); }
{{- end}}
{{- end}}
{{- range $q := $batch}}
		if (is{{$q}}) { {{if or $.Add $.Gate}}put(first + row{{$q}}, to{{$q}}, v{{$q}} * factors[row{{$q}}], known{{$q}});{{else}}result(first + row{{$q}}, to{{$q}}, v{{$q}} * factors[row{{$q}}]{{if $.GLU}}, w{{$q}} * factors[row{{$q}}]{{end}});{{end}} }
{{- end}}
	}
	workgroupBarrier();
{{- end}}
}
