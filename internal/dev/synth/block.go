package synth

import (
	"encoding/binary"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/tensor"
)

// scaleBlock gives a block of random bytes scales that make its weights about 0.02
// in size. The layouts are those of package quant.
func scaleBlock(b []byte, d tensor.DType) {
	put := func(at int, x float32) { binary.LittleEndian.PutUint16(b[at:], float16.ToF16(x)) }
	switch d {
	case tensor.F16: // 2^-9 to 2^-6
		x := binary.LittleEndian.Uint16(b)
		binary.LittleEndian.PutUint16(b, x&0x83ff|(6+x>>10&3)<<10)
	case tensor.BF16:
		x := binary.LittleEndian.Uint16(b)
		binary.LittleEndian.PutUint16(b, x&0x807f|(118+x>>7&3)<<7)
	case tensor.Q4_0:
		put(0, 0.0043)
	case tensor.Q5_0:
		put(0, 0.0022)
	case tensor.Q5_1:
		put(0, 0.0022)
		put(2, -0.034)
	case tensor.Q8_0:
		put(0, 0.00027)
	case tensor.Q2_K:
		put(80, 0.0018)
		put(82, 0.0018*1.5)
	case tensor.Q3_K:
		put(108, 0.0006)
	case tensor.Q4_K: // the minima, of six bits as the scales, take the mean away
		put(0, 0.000075)
		put(2, 0.000075*7.5)
	case tensor.Q5_K:
		put(0, 0.000065)
		put(2, 0.000065*15.5)
	case tensor.Q6_K:
		for i, s := range b[192:208] {
			b[192+i] = byte(int8(s) >> 3)
		}
		put(208, 0.00012)
	case tensor.IQ4_NL:
		put(0, 0.0003)
	case tensor.IQ4_XS: // scales of six bits, whose upper two become 01 or 10: at most 16 from zero, which is 32
		put(0, 0.000065)
		upper := binary.LittleEndian.Uint16(b[2:]) & 0xaaaa
		binary.LittleEndian.PutUint16(b[2:], upper|^upper>>1&0x5555)
	case tensor.IQ1_S:
		put(0, 0.0025)
	case tensor.IQ1_M: // four bits of the scale over twelve others
		scale := float16.ToF16(0.0025)
		for i := range 4 {
			b[49+2*i] = b[49+2*i]&15 | byte(scale>>(4*i)&15)<<4
		}
	case tensor.IQ2_XXS, tensor.IQ2_XS, tensor.IQ2_S:
		put(0, 0.0005)
	case tensor.IQ3_XXS:
		put(0, 0.0002)
	case tensor.IQ3_S:
		put(0, 0.00016)
	case tensor.TQ1_0:
		put(52, 0.02)
	case tensor.TQ2_0:
		put(64, 0.02)
	case tensor.NVFP4:
		copy(b, []byte{4, 4, 4, 4})
	case tensor.Q1_0, tensor.Q2_0:
		put(0, 0.02)
	case tensor.MXFP4: // an exponent: weights to 6/128
		b[0] = 120
	}
}
