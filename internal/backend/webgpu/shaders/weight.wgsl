// weight is how the kernels of products read weights, and which order their sums have.
//
// A weight lies as weight.go has laid it. Its rows are units of 32 elements, padded
// with zeros; a sum is that of 32 runs of units, in order, and that of a run a chain
// of fma. So a row's bits depend on the weight alone, not on the kernel.
const RUNS: u32 = 32u;

fn units() -> u32 {
	return (p.k + 31u) >> 5u;
}

// run is how many units a run has, but for the last ones.
fn run() -> u32 {
	return (units() + RUNS - 1u) / RUNS;
}

fn word(i: u32) -> u32 {
	return w[i >> 2u][i & 3u];
}

// chain adds the products of eight weights.
fn chain(sum: f32, v: mat2x4<f32>, a: vec4f, b: vec4f) -> f32 {
	var s = fma(v[0].x, a.x, sum);
	s = fma(v[0].y, a.y, s);
	s = fma(v[0].z, a.z, s);
	s = fma(v[0].w, a.w, s);
	s = fma(v[1].x, b.x, s);
	s = fma(v[1].y, b.y, s);
	s = fma(v[1].z, b.z, s);
	return fma(v[1].w, b.w, s);
}
{{if .Bits}}
// signed is byte i of a word.
fn signed(word: u32, i: u32) -> f32 {
	return f32(i32(word << (24u - 8u * i)) >> 24u);
}

fn low_half(word: u32) -> f32 {
	return {{if .Normal}}unpack2x16float(word).x{{else}}from_half(word & 0xffffu){{end}};
}

fn high_half(word: u32) -> f32 {
	return {{if .Normal}}unpack2x16float(word).y{{else}}from_half(word >> 16u){{end}};
}

// head is the words that have the scales of unit u of row n.
fn head(base: u32, n: u32, u: u32) -> vec3u {
	let at = base + units() * {{add .Bits .High}}u * p.n + n;
{{- if eq .Units 8}}
	let block = at + (u >> 3u) * {{.Head}}u * p.n;
	let i = ((u & 7u) * {{div 32 .Group}}u) >> 2u;
	return vec3u(word(block), word(block + (1u + i) * p.n), {{if .Min}}word(block + ({{add 1 (div 64 .Group)}}u + i) * p.n){{else}}0u{{end}});
{{- else if .Wide}}
	return vec3u(word(at + 2u * u * p.n), word(at + (2u * u + 1u) * p.n), 0u);
{{- else if or .Min .Each .E4M3}}
	return vec3u(word(at + (u / {{.Units}}u) * p.n), 0u, 0u);
{{- else}}
	return vec3u(word(at + (u >> 1u) * p.n), 0u, 0u);
{{- end}}
}

// scales is the scale of group g of unit u, of its head, and what is added to its weights. Both are
// exact.
fn scales(h: vec3u, u: u32, g: u32) -> vec2f {
{{- if eq .Units 8}}
	let i = ((u & 7u) * {{div 32 .Group}}u + g) & 3u;
	let s = low_half(h.x) * signed(h.y, i){{if .Unit}} * {{.Unit}}{{end}};
{{- if .Min}}
	return vec2f(s, -(high_half(h.x) * signed(h.z, i)));
{{- else}}
	return vec2f(s, 0.0);
{{- end}}
{{- else if .E4M3}}
	return vec2f(bitcast<f32>(h.x), 0.0);
{{- else if .Wide}}
	return vec2f(bitcast<f32>(select(h.x, h.y, g == 1u)), 0.0);
{{- else if .Zero}}
	let d = low_half(h.x);
	return vec2f(d, -(d * f32(h.x >> 16u)));
{{- else if .Min}}
	return vec2f(low_half(h.x), high_half(h.x));
{{- else if .Each}}
	return vec2f(from_half((h.x >> (16u * g)) & 0xffffu), 0.0);
{{- else}}
	let d = h.x >> ((u & 1u) * 16u);
	return vec2f({{if .Bfloat}}bitcast<f32>(d << 16u){{else}}low_half(d){{end}}, 0.0);
{{- end}}
}

// scale is scales of group g of unit u of row n.
fn scale(base: u32, n: u32, u: u32, g: u32) -> vec2f {
	return scales(head(base, n, u), u, g);
}
{{if .Table}}
// value is the one of a code, of 16 that lie in four words: an array would go to memory.
fn value(code: u32) -> f32 {
	let odd = (code & 4u) != 0u;
	let word = select(select({{index .Table 0}}u, {{index .Table 1}}u, odd), select({{index .Table 2}}u, {{index .Table 3}}u, odd), (code & 8u) != 0u);
	return signed(word, code & 3u);
}
{{end}}
{{if .E4M3}}
// float is a float of eight bits, in the lowest of a word: binary16 has the bits at the same places.
fn float(b: u32) -> f32 {
	return from_half(((b & 0x80u) << 8u) | ((b & 0x7fu) << 7u)) * 256.0;
}

fn floats(word: u32) -> vec4f {
	return vec4f(float(word), float(word >> 8u), float(word >> 16u), float(word >> 24u));
}
{{end}}
// eight is weights of a group: low has the low bits of their codes, from bit 0 on, and
// high the others. Codes become floats where they lie, as parts of a mantissa; what a
// place is worth too much is taken from the scale. So there is one rounding at most.
fn eight(low: {{if eq .Bits 8}}vec2u{{else}}u32{{end}}, high: u32, s: vec2f) -> mat2x4<f32> {
{{- if .E4M3}}
	return mat2x4<f32>(s.x * floats(low.x), s.x * floats(low.y));
{{- else if and .Table .High}}
	return mat2x4<f32>(
{{- range $j := 8}}{{if $j}}, {{end}}{{if eq (mod $j 4) 0}}s.x * vec4f({{end}}value(((low >> {{mul 2 $j}}u) & 3u) | (((high >> {{mul 2 $j}}u) & 1u) << 2u)){{if eq (mod $j 4) 3}}){{end}}{{end}});
{{- else if .Table}}
	return mat2x4<f32>(
		s.x * vec4f(value(low), value(low >> 4u), value(low >> 8u), value(low >> 12u)),
		s.x * vec4f(value(low >> 16u), value(low >> 20u), value(low >> 24u), value(low >> 28u)));
{{- else}}
{{- if eq .Bits 8}}
	var a = vec4u(low.x, low.x, low.x >> 16u, low.x >> 16u) & {{places .Bits "masks"}};
	var b = vec4u(low.y, low.y, low.y >> 16u, low.y >> 16u) & {{places .Bits "masks"}};
{{- else}}
	var a = vec4u(low) & {{places .Bits "masks"}};
	var b = vec4u(low >> {{mul 4 .Bits}}u) & {{places .Bits "masks"}};
{{- end}}
{{- if .High}}
	a |= vec4u(high << {{.Bits}}u) & {{places .Bits (print "high" .High)}};
	b |= vec4u(high >> {{mul 3 .Bits}}u) & {{places .Bits (print "high" .High)}};
{{- end}}
	let base = vec4f(8388608.0) + {{.Offset}}.0 * {{places .Bits "worth"}};
	let by = s.x * {{places .Bits "inverse"}};
	let c = bitcast<vec4<f32>>(a | vec4u(0x4b000000u)) - base;
	let d = bitcast<vec4<f32>>(b | vec4u(0x4b000000u)) - base;
{{- if .Min}}
	return mat2x4<f32>(fma(c, by, vec4f(s.y)), fma(d, by, vec4f(s.y)));
{{- else}}
	return mat2x4<f32>(c * by, d * by);
{{- end}}
{{- end}}
}
{{else if eq .Plain "f32"}}
fn eight(a: vec4u, b: vec4u) -> mat2x4<f32> {
	return mat2x4<f32>(bitcast<vec4<f32>>(a), bitcast<vec4<f32>>(b));
}
{{else}}
fn eight(a: vec4u) -> mat2x4<f32> {
{{- if eq .Plain "bf16"}}
	return mat2x4<f32>(bitcast<vec4<f32>>(vec4u(a.x << 16u, a.x & 0xffff0000u, a.y << 16u, a.y & 0xffff0000u)),
		bitcast<vec4<f32>>(vec4u(a.z << 16u, a.z & 0xffff0000u, a.w << 16u, a.w & 0xffff0000u)));
{{- else}}
	return mat2x4<f32>(
		from_half(a.x & 0xffffu), from_half(a.x >> 16u), from_half(a.y & 0xffffu), from_half(a.y >> 16u),
		from_half(a.z & 0xffffu), from_half(a.z >> 16u), from_half(a.w & 0xffffu), from_half(a.w >> 16u));
{{- end}}
}
{{end}}
{{define "pair"}}
// pair is eight j of unit u of row n{{if .Bits}}, whose scale is s{{end}}.
fn pair(n: u32, u: u32, j: u32{{if .Bits}}, s: vec2f{{end}}) -> mat2x4<f32> {
{{- if eq .Plain "f32"}}
	let at = (u * 8u + 2u * j) * p.n + n;
	return eight(w[at], w[at + p.n]);
{{- else if .Plain}}
	return eight(w[(u * 4u + j) * p.n + n]);
{{- else}}
{{- if eq .Bits 4}}
	let low = w[u * p.n + n][j];
{{- else if eq .Bits 8}}
	let at = ((u * 2u + (j >> 1u)) * p.n + n) * 4u + (j & 1u) * 2u;
	let low = vec2u(word(at), word(at + 1u));
{{- else}}
	let low = word((u * p.n + n) * 2u + (j >> 1u)) >> ((j & 1u) * 16u);
{{- end}}
{{- if eq .High 2}}
	let high = word((units() * {{.Bits}}u + u * 2u + (j >> 1u)) * p.n + n) >> (2u * (j & 1u));
{{- else if .High}}
	let high = word((units() * {{.Bits}}u + u) * p.n + n) >> {{if eq .Bits 4}}j{{else}}((j & 1u) + 16u * (j >> 1u)){{end}};
{{- else}}
	let high = 0u;
{{- end}}
	return eight(low, high, s);
{{- end}}
}
{{end}}
