package processor

import "github.com/karat-run/karat/internal/image"

// Order is the order of a patch's values, and of the patches.
type Order int

// The orders. Patches go by rows, except where blocks are said.
const (
	ChannelFirst Order = iota // [channel, row, column]
	ChannelLast               // [row, column, channel]
	BlocksTwice               // [channel, time, row, column] with two equal times; patches by blocks of merge x merge
)

// Values turns pixels to numbers.
type Values struct {
	order  Order
	patch  int
	merge  int
	levels [3][256]float32 // a channel's numbers
}

// values returns the numbers of the 256 levels. By Pillow's processors a level is scaled in float64, then normalized in
// float32; torchvision's fold the scale into mean and deviation.
func (s *settings) values(o Order) Values {
	v := Values{order: o, patch: max(int(s.Patch), s.EncoderPatch), merge: max(s.Merge, 1)}
	scale := s.scale()
	for c := range v.levels {
		mean, std := float32(s.Mean[c]), float32(s.Std[c])
		for i := range v.levels[c] {
			switch normalize := isOn(s.Normalize); {
			case !normalize:
				v.levels[c][i] = float32(float64(i) * scale)
			case s.Library == image.Torchvision:
				by := float32(1 / scale)
				v.levels[c][i] = (float32(i) - mean*by) / (std * by)
			default:
				v.levels[c][i] = (float32(float64(i)*scale) - mean) / std
			}
		}
	}
	return v
}

// Order returns the order of a patch's values, and of the patches.
func (v *Values) Order() Order { return v.order }

// Patch appends the numbers of the patch at a pixel, of so many pixels along a side.
func (v *Values) Patch(out []float32, m *image.Image, x, y, side int) []float32 {
	row := func(j int) []byte { return m.Pix[3*((y+j)*m.Width+x):][:3*side] }
	if v.order == ChannelLast {
		for j := range side {
			for i, level := range row(j) {
				out = append(out, v.levels[i%3][level])
			}
		}
		return out
	}
	times := 1
	if v.order == BlocksTwice {
		times = 2
	}
	for c := range 3 {
		for range times {
			for j := range side {
				pixels := row(j)
				for i := range side {
					out = append(out, v.levels[c][pixels[3*i+c]])
				}
			}
		}
	}
	return out
}
