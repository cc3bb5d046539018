package simd

import "encoding/binary"

func addBlockRowGeneric(acc []float32, rows []byte, stride int, q []int16, dx []float32) {
	for r := range acc {
		row := rows[r*stride:]
		for g, d := range dx {
			b, sum := row[g*bytesQ8_0:][:bytesQ8_0], int32(0)
			for i, code := range b[2:] {
				sum += int32(int8(code)) * int32(q[g*BlockWeights+i&^3+order[i%4]])
			}
			var scale [1]float32
			loadF16Generic(scale[:], []uint16{binary.LittleEndian.Uint16(b)})
			acc[r] = fma32(float32(float32(sum)*d), scale[0], acc[r])
		}
	}
}
