// Package jpeg decodes JPEG files to the bytes that libjpeg-turbo decodes, by its defaults: integer cosine transforms of
// 13 bits, chroma samples interpolated ("fancy upsampling"), and colors by tables of 16 bits.
//
// Models that see were trained on pixels decoded so. image/jpeg of the standard library repeats chroma samples and
// rounds otherwise: many of its pixels lie some levels off.
//
// Files in reading order: jpeg.go (markers), scan.go (entropy-coded data), huffman.go, idct.go, color.go (planes to
// pixels).
//
// Source: ITU-T T.81; libjpeg-turbo 3.1, jidctint.c, jdsample.c, jdcolor.c.
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
	run         int // blocks to come without further values of a band
}

// Markers of T.81, table B.1.
const (
	sof0 = 0xc0 // baseline
	sof1 = 0xc1 // extended, Huffman
	sof2 = 0xc2 // progressive
	dht  = 0xc4
	rst0 = 0xd0
	rst7 = 0xd7
	soi  = 0xd8
	eoi  = 0xd9
	sos  = 0xda
	dqt  = 0xdb
	dri  = 0xdd
	app0 = 0xe0
	app1 = 0xe1
	appE = 0xee
)

// maxScans bounds the work of a progressive file; encoders make a dozen.
const maxScans = 100

var errShort = errors.New("the file is truncated")

// ReadHeader returns what the file says of itself, without decoding any pixel.
func ReadHeader(data []byte) (Header, error) {
	d := decoder{data: data, adobe: -1}
	err := d.read(true)
	return d.Header, err
}

// Decode returns the pixels of a file as RGB, [height, width, 3]. CMYK is turned to RGB as Pillow does.
func Decode(data []byte) (rgb []byte, h Header, err error) {
	d := decoder{data: data, adobe: -1}
	if err := d.read(false); err != nil {
		return nil, d.Header, err
	}
	return d.pixels(), d.Header, nil
}

// read reads markers up to the end of the image, or to the first scan.
func (d *decoder) read(headerOnly bool) error {
	if len(d.data) < 2 || d.data[0] != 0xff || d.data[1] != soi {
		return errors.New("no JPEG file")
	}
	d.data = d.data[2:]
	for {
		m, segment, err := d.segment()
		switch {
		case err == errShort && d.scans > 0 && d.complete(): // only the end's marker is missing
			return nil
		case err != nil:
			return err
		case m == eoi:
			if d.scans == 0 || !d.complete() {
				return errors.New("the image ends before its pixels")
			}
			return nil
		case m == sos && headerOnly:
			return nil
		}
		if err := d.marker(m, segment); err != nil {
			return err
		}
	}
}

// segment returns the next marker, and the bytes belonging to the marker.
func (d *decoder) segment() (marker byte, segment []byte, err error) {
	for { // bytes outside segments are skipped, as libjpeg does
		for len(d.data) > 0 && d.data[0] != 0xff {
			d.data = d.data[1:]
		}
		for len(d.data) > 0 && d.data[0] == 0xff {
			d.data = d.data[1:]
		}
		if len(d.data) == 0 {
			return 0, nil, errShort
		}
		m := d.data[0]
		d.data = d.data[1:]
		switch {
		case m == 0 || m == 1 || m >= rst0 && m <= rst7:
			continue
		case m == soi:
			return 0, nil, errors.New("an image within the image")
		case m == eoi:
			return m, nil, nil
		}
		if len(d.data) < 2 {
			return 0, nil, errShort
		}
		n := int(binary.BigEndian.Uint16(d.data))
		if n < 2 {
			return 0, nil, fmt.Errorf("marker %#x has a length of %d", m, n)
		}
		if n > len(d.data) {
			return 0, nil, errShort
		}
		segment, d.data = d.data[2:n], d.data[n:]
		return m, segment, nil
	}
}

func (d *decoder) marker(m byte, b []byte) error {
	switch {
	case m == sof0 || m == sof1 || m == sof2:
		return d.frame(b, m == sof2)
	case m > sof2 && m <= 0xcf && m != dht && m != 0xc8 && m != 0xcc:
		return fmt.Errorf("the image is coded by %s: convert it to a baseline or progressive JPEG file", codings[m])
	case m == dht:
		return d.huffmanTables(b)
	case m == dqt:
		return d.quantTables(b)
	case m == dri:
		if len(b) != 2 {
			return errors.New("the restart interval has no two bytes")
		}
		d.restart = int(binary.BigEndian.Uint16(b))
	case m == sos:
		return d.scan(b)
	case m == app0 && len(b) >= 5 && string(b[:5]) == "JFIF\x00":
		d.jfif = true
	case m == appE && len(b) >= 12 && string(b[:5]) == "Adobe":
		d.adobe = int(b[11])
	case m == app1:
		const exif, xmp = "Exif\x00\x00", "http://ns.adobe.com/xap/1.0/\x00"
		switch {
		case len(b) >= len(exif) && string(b[:len(exif)]) == exif && d.EXIF == nil:
			d.EXIF = b[len(exif):]
		case len(b) >= len(xmp) && string(b[:len(xmp)]) == xmp && d.XMP == nil:
			d.XMP = b[len(xmp):]
		}
	}
	return nil
}

// codings are the codings of T.81 that libjpeg-turbo's defaults do not write and no camera makes.
var codings = map[byte]string{0xc3: "the lossless process", 0xc5: "a differential process",
	0xc6: "a differential process", 0xc7: "a differential process", 0xc9: "arithmetic codes", 0xca: "arithmetic codes",
	0xcb: "arithmetic codes", 0xcd: "arithmetic codes", 0xce: "arithmetic codes", 0xcf: "arithmetic codes"}

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

// quantTables reads tables of quantization, B.2.4.1.
func (d *decoder) quantTables(b []byte) error {
	for len(b) > 0 {
		wide, id := int(b[0]>>4), b[0]&15
		if wide > 1 || id > 3 || len(b) < 1+64<<wide {
			return errors.New("a broken table of quantization")
		}
		t := new([64]uint16)
		for i, at := range zigzag {
			if wide == 1 {
				t[at] = binary.BigEndian.Uint16(b[1+2*i:])
			} else {
				t[at] = uint16(b[1+i])
			}
		}
		d.quants[id] = t
		b = b[1+64<<wide:]
	}
	return nil
}

// zigzag has the place of each coefficient in a block by rows.
var zigzag = [64]byte{
	0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
	35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47,
	55, 62, 63,
}
