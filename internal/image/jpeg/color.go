package jpeg

// pixels returns the image's pixels as RGB.
func (d *decoder) pixels() []byte {
	for i := range d.comps {
		if c := &d.comps[i]; c.samples == nil {
			c.samples = make([]byte, c.across*c.down*64)
			for at := range c.across * c.down {
				inverse(c.place(at), c.across*8, (*[64]int16)(c.coefs[at*64:]), d.quants[c.table])
			}
			c.coefs = nil
		}
	}
	rgb := make([]byte, d.Width*d.Height*3)
	rows := make([][]byte, len(d.comps))
	for i := range rows {
		rows[i] = make([]byte, d.Width+2*d.hMax) // a sample may make pixels behind the edge
	}
	sums := make([]int32, d.Width+2)
	for y := range d.Height {
		for i := range d.comps {
			d.row(rows[i], &d.comps[i], y, sums)
		}
		d.convert(rgb[y*d.Width*3:][:d.Width*3], rows)
	}
	return rgb
}

// row writes the samples of the image's row y to dst. Samples twice as wide or as high as pixels are interpolated,
// other coarse samples repeated. (libjpeg-turbo, jdsample.c)
func (d *decoder) row(dst []byte, c *component, y int, sums []int32) {
	h, v := d.hMax/c.h, d.vMax/c.v
	line := func(i int) []byte { return c.samples[min(max(i, 0), c.height-1)*c.across*8:][:c.width] }
	near := line(y / v)
	far := line(y/v - 1 + y%v*2) // the row above an upper half, and below a lower half
	wide := c.width > 2
	switch {
	case h == 1 && v == 1:
		copy(dst, near)
	case h == 2 && v == 1 && wide:
		dst[0], dst[1] = near[0], byte((3*int32(near[0])+int32(near[1])+2)>>2)
		last := len(near) - 1
		for i := 1; i < last; i++ {
			x := 3 * int32(near[i])
			dst[2*i], dst[2*i+1] = byte((x+int32(near[i-1])+1)>>2), byte((x+int32(near[i+1])+2)>>2)
		}
		dst[2*last], dst[2*last+1] = byte((3*int32(near[last])+int32(near[last-1])+1)>>2), near[last]
	case h == 1 && v == 2:
		round := int32(1 + y%2)
		for i := range near {
			dst[i] = byte((3*int32(near[i]) + int32(far[i]) + round) >> 2)
		}
	case h == 2 && v == 2 && wide:
		for i := range near {
			sums[i] = 3*int32(near[i]) + int32(far[i])
		}
		last := len(near) - 1
		dst[0], dst[1] = byte((4*sums[0]+8)>>4), byte((3*sums[0]+sums[1]+7)>>4)
		for i := 1; i < last; i++ {
			dst[2*i], dst[2*i+1] = byte((3*sums[i]+sums[i-1]+8)>>4), byte((3*sums[i]+sums[i+1]+7)>>4)
		}
		dst[2*last], dst[2*last+1] = byte((3*sums[last]+sums[last-1]+8)>>4), byte((4*sums[last]+7)>>4)
	default:
		for i := range dst[:d.Width] {
			dst[i] = near[i/h]
		}
	}
}

// convert writes a row of pixels. (libjpeg-turbo, jdcolor.c)
func (d *decoder) convert(rgb []byte, rows [][]byte) {
	switch n := len(rgb) / 3; {
	case len(rows) == 1:
		for i, v := range rows[0][:n] {
			rgb[3*i], rgb[3*i+1], rgb[3*i+2] = v, v, v
		}
	case len(rows) == 3 && !d.isYCC():
		for i := range n {
			rgb[3*i], rgb[3*i+1], rgb[3*i+2] = rows[0][i], rows[1][i], rows[2][i]
		}
	case len(rows) == 3:
		for i := range n {
			rgb[3*i], rgb[3*i+1], rgb[3*i+2] = fromYCC(rows[0][i], rows[1][i], rows[2][i])
		}
	default:
		for i := range n {
			c, m, y, k := rows[0][i], rows[1][i], rows[2][i], rows[3][i]
			if d.adobe == 2 {
				r, g, b := fromYCC(c, m, y)
				c, m, y = 255-r, 255-g, 255-b
			}
			// Files have inverted inks, by Adobe's convention.
			rgb[3*i], rgb[3*i+1], rgb[3*i+2] = fromInk(255-c, k), fromInk(255-m, k), fromInk(255-y, k)
		}
	}
}

// isYCC reports whether three components are luma and chroma, as libjpeg guesses.
func (d *decoder) isYCC() bool {
	switch {
	case d.jfif:
		return true
	case d.adobe >= 0:
		return d.adobe != 0
	}
	return d.comps[0].id != 'R' || d.comps[1].id != 'G' || d.comps[2].id != 'B'
}

// fromYCC returns a pixel of luma and chroma. The factors have 16 bits behind the point.
func fromYCC(luma, cb, cr byte) (r, g, b byte) {
	y, u, v := int32(luma), int32(cb)-128, int32(cr)-128
	const half = 1 << 15
	return clamp(y + (91881*v+half)>>16), clamp(y + (-22554*u-46802*v+half)>>16), clamp(y + (116130*u+half)>>16)
}

// fromInk returns the light left by an ink, and by the inverse of black. (Pillow, libImaging/Convert.c)
func fromInk(ink, light byte) byte {
	t := int32(ink)*int32(light) + 128
	return clamp(int32(light) - (t>>8+t)>>8)
}
