package jpeg

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Header is what a file says before its pixels.
type Header struct {
	Width, Height int
	Components    int    // 1 for grey, 3 for colors, 4 for CMYK
	EXIF          []byte // the TIFF structure of EXIF; nil for none
	XMP           []byte // the XMP packet; nil for none
}

// component is a color's plane of samples.
type component struct {
	id            byte
	h, v          int // sampling factors
	table         byte
	width, height int // in samples
	across, down  int // blocks of 8x8 samples, whole MCUs
	dc, ac        *huffman
	predicted     int     // DC value of the block before
	coefs         []int16 // [down*across*64], progressive files alone
	samples       []byte  // [down*8, across*8]
}

// decoder reads a file.
type decoder struct {
	Header
	data        []byte // not yet read
	progressive bool
	comps       []component
	hMax, vMax  int
	mcux, mcuy  int // MCUs of an interleaved scan
	quants      [4]*[64]uint16
	huffmans    [2][4]*huffman // DC, AC
	restart     int            // MCUs between restart markers; 0 for none
	adobe       int            // the transform of Adobe's marker; negative without the marker
	jfif        bool
	scans       int
	bits        bits
	run         int          // blocks to come without further values of a band
	stop        func() error // asked for each row of MCUs; nil for none
}

// frame reads the frame header, B.2.2.
func (d *decoder) frame(b []byte, progressive bool) error {
	if d.comps != nil {
		return errors.New("two frames in one image")
	}
	if len(b) < 6 || len(b) != 6+3*int(b[5]) {
		return errors.New("the frame's header has another length than its components")
	}
	if b[0] != 8 {
		return fmt.Errorf("samples of %d bits: only 8 are supported", b[0])
	}
	d.Height, d.Width = int(binary.BigEndian.Uint16(b[1:])), int(binary.BigEndian.Uint16(b[3:]))
	d.Components, d.progressive = int(b[5]), progressive
	if d.Width == 0 || d.Height == 0 {
		return fmt.Errorf("an image of %dx%d pixels", d.Width, d.Height)
	}
	if n := d.Components; n != 1 && n != 3 && n != 4 {
		return fmt.Errorf("%d components: want 1, 3 or 4", n)
	}
	for b = b[6:]; len(b) > 0; b = b[3:] {
		c := component{id: b[0], h: int(b[1] >> 4), v: int(b[1] & 15), table: b[2]}
		if c.h < 1 || c.h > 4 || c.v < 1 || c.v > 4 || c.table > 3 {
			return fmt.Errorf("component %d: factors %dx%d, table %d", c.id, c.h, c.v, c.table)
		}
		for _, x := range d.comps {
			if x.id == c.id {
				return fmt.Errorf("component %d comes twice", c.id)
			}
		}
		d.hMax, d.vMax = max(d.hMax, c.h), max(d.vMax, c.v)
		d.comps = append(d.comps, c)
	}
	d.mcux, d.mcuy = ceil(d.Width, 8*d.hMax), ceil(d.Height, 8*d.vMax)
	for i := range d.comps {
		c := &d.comps[i]
		if d.hMax%c.h != 0 || d.vMax%c.v != 0 {
			return fmt.Errorf("component %d has %dx%d samples where another has %dx%d", c.id, c.h, c.v, d.hMax, d.vMax)
		}
		c.width, c.height = ceil(d.Width*c.h, d.hMax), ceil(d.Height*c.v, d.vMax)
		c.across, c.down = d.mcux*c.h, d.mcuy*c.v
	}
	return nil
}

func ceil(a, b int) int { return (a + b - 1) / b }

// zigzag has the place of each coefficient in a block by rows.
var zigzag = [64]byte{
	0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
	28,
	35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47,
	55, 62, 63,
}
