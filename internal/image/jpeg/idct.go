package jpeg

// The fixed-point numbers of the transform have 13 bits behind the point, and values between its passes 2 more than
// samples. (libjpeg-turbo, jidctint.c; Loeffler, Ligtenberg and Moschytz 1989)
const (
	fix0298 = 2446
	fix0390 = 3196
	fix0541 = 4433
	fix0765 = 6270
	fix0899 = 7373
	fix1175 = 9633
	fix1501 = 12299
	fix1847 = 15137
	fix1961 = 16069
	fix2053 = 16819
	fix2562 = 20995
	fix3072 = 25172

	constBits = 13
	passBits  = 2
)

// inverse writes the 8x8 samples of a block to dst, with stride bytes between rows.
func inverse(dst []byte, stride int, block *[64]int16, quant *[64]uint16) {
	var work [64]int32
	for i := range 8 {
		var in [8]int32
		for j := range in {
			in[j] = int32(block[8*j+i]) * int32(quant[8*j+i])
		}
		out := transform(&in)
		for j, v := range out {
			work[8*j+i] = (v + 1<<(constBits-passBits-1)) >> (constBits - passBits)
		}
	}
	const bits = constBits + passBits + 3
	for i := range 8 {
		out := transform((*[8]int32)(work[8*i:]))
		row := dst[i*stride:][:8]
		for j, v := range out {
			row[j] = clamp(128 + (v+1<<(bits-1))>>bits)
		}
	}
}

// transform returns the sums of a row or column, times 1<<constBits and the square root of 8.
func transform(in *[8]int32) (out [8]int32) {
	z1 := (in[2] + in[6]) * fix0541
	t2, t3 := z1-in[6]*fix1847, z1+in[2]*fix0765
	t0, t1 := (in[0]+in[4])<<constBits, (in[0]-in[4])<<constBits
	e0, e3, e1, e2 := t0+t3, t0-t3, t1+t2, t1-t2

	t0, t1, t2, t3 = in[7], in[5], in[3], in[1]
	z1, z2, z3, z4 := t0+t3, t1+t2, t0+t2, t1+t3
	z5 := (z3 + z4) * fix1175
	z1, z2 = -z1*fix0899, -z2*fix2562
	z3, z4 = z5-z3*fix1961, z5-z4*fix0390
	t0 = t0*fix0298 + z1 + z3
	t1 = t1*fix2053 + z2 + z4
	t2 = t2*fix3072 + z2 + z3
	t3 = t3*fix1501 + z1 + z4
	return [8]int32{e0 + t3, e1 + t2, e2 + t1, e3 + t0, e3 - t0, e2 - t1, e1 - t2, e0 - t3}
}

func clamp(v int32) byte { return byte(min(max(v, 0), 255)) }
