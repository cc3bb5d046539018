package simd

// Eights are rows of 8-bit floats E4M3, each times a scale: the codes, of a byte, lie row after row.
type Eights struct {
	Codes []byte
	K     int // elements of a row

	// The scales of row r are at Scales[At[r]:], each of Group elements, a multiple of 16: 256 times the factors, since
	// codes are read as binary16, with the bits at the same places and a bias larger by 8.
	Scales []float32
	At     []int
	Group  int
}

// DotsE4M3 does DotsF32's work for rows [from, to) of w: a weight is the product of its code and its scale, rounded.
func DotsE4M3(dst []float32, stride int, w *Eights, from, to int, x []float32) {
	dots(dst, stride, weights{eights: w, at: from * w.K}, to-from, x, w.K)
}

// addDots adds the products of x, whole blocks of 16, with the rows at multiples of stride from element at on.
func (w *Eights) addDots(sums *dotSums, at, stride int, x []float32) {
	if len(x) == 0 {
		return
	}
	var scales [dotRows]*float32
	last := (len(x)-1)/w.Group + 1
	for i := range scales {
		scales[i] = &w.Scales[w.At[(at+i*stride)/w.K]:][:last][0]
	}
	addDotsE4M3Vec(sums, w.Codes[at:][:(dotRows-1)*stride+len(x)], stride, x, &scales, w.Group/lanes)
}

// load sets dst to weights of a row from element at on.
func (w *Eights) load(dst []float32, at int) {
	scales, column := w.Scales[w.At[at/w.K]:], at%w.K
	for i, c := range w.Codes[at:][:len(dst)] {
		dst[i] = float32(e4m3[c] * (1. / 256) * scales[(column+i)/w.Group])
	}
}

// LoadE4M3Row sets dst to the weights of a row of w.
func LoadE4M3Row(dst []float32, w *Eights, row int) {
	codes, scales := w.Codes[row*w.K:][:w.K], w.Scales[w.At[row]:]
	for from := 0; from < w.K; from += w.Group {
		to := min(from+w.Group, w.K)
		ScaleE4M3(dst[from:to], codes[from:to], scales[from/w.Group]/256)
	}
}
