package simd

func attendF32Generic(a *Attention, q, k, v []float32, n int, scale float32) {
	var scores [BlockSlots]float32
	s, d := scores[:n], len(q)
	for j := range s {
		s[j] = float32(dotF32Generic(k[j*d:(j+1)*d], q) * scale)
	}
	raise(a, maxGeneric(s))
	for j, x := range s {
		p := Exp(x - a.Top)
		a.Sum += p
		addScaledGeneric(a.Acc, v[j*d:(j+1)*d], p)
	}
}

func attendF16Generic(a *Attention, q []float32, k, v []uint16, n int, scale float32) {
	var scores [BlockSlots]float32
	s, d := scores[:n], len(q)
	for j := range s {
		var dot [1]float32
		dotRows16Generic(dot[:], k[j*d:(j+1)*d], q, false)
		s[j] = float32(dot[0] * scale)
	}
	raise(a, maxGeneric(s))
	for j, x := range s {
		p := Exp(x - a.Top)
		a.Sum += p
		addScaledF16Generic(a.Acc, v[j*d:(j+1)*d], p)
	}
}

func addScaledF16Generic(dst []float32, x []uint16, s float32) {
	var buf [256]float32
	for len(x) > 0 {
		part := buf[:min(len(buf), len(x))]
		loadF16Generic(part, x[:len(part)])
		addScaledGeneric(dst, part, s)
		dst, x = dst[len(part):], x[len(part):]
	}
}

// raise makes the sums relative to top where it is above a.Top.
func raise(a *Attention, top float32) {
	if top <= a.Top {
		return
	}
	c := Exp(a.Top - top)
	a.Sum = float32(a.Sum * c)
	scaleGeneric(a.Acc, a.Acc, c)
	a.Top = top
}

func divideGeneric(dst, x []float32, s float32) {
	for i, v := range x {
		dst[i] = v / s
	}
}
